"""SARIF 2.1.0, for code-scanning pages and editors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import msgspec

from cacheaudit.model.money import plain
from cacheaudit.report.catalogue import group_of, rule_page
from cacheaudit.report.renderer import View, not_for_usage
from cacheaudit.report.result import AuditResult, FindingRow, UsageResult
from cacheaudit.report.summary import by_money, paid
from cacheaudit.report.verdict import balance

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"loss": "warning", "error": "error"}
_WHERE = re.compile(r"(.+):(\d+)")
_PLACES = 20


class SarifRenderer:
    """Writes one result a finding; calls are its locations where the record names their lines."""

    name = "sarif"
    suffix = ".sarif"

    def audit(self, result: AuditResult, out: BinaryIO, view: View) -> None:
        """Write the result of an audit."""
        del view
        findings = by_money(result.findings)
        wanted = {call for finding in findings for call in finding.calls[:_PLACES]}
        places: dict[str, str] = {}
        if wanted:
            places = {c.id: c.where for c in result.calls if c.where and c.id in wanted}
        names = {finding.rule: finding.name for finding in findings}
        order = {rule: index for index, rule in enumerate(names)}
        balanced = balance(result)
        run = {
            "tool": {
                "driver": {
                    "name": "cacheaudit",
                    "version": result.tool.version,
                    "rules": [_rule(rule, name) for rule, name in names.items()],
                }
            },
            "columnKind": "utf16CodeUnits",
            "results": [_result(f, order[f.rule], places) for f in findings],
            "properties": {
                "paid": paid(result.totals)[0],
                "avoidable": None if balanced is None else plain(balanced.avoidable),
                "bestCase": None if balanced is None else plain(balanced.best),
                "unit": None if balanced is None else balanced.unit,
                "score": None if balanced is None else balanced.score,
            },
        }
        document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
        out.write(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")

    def usage(self, result: UsageResult, out: BinaryIO, view: View) -> None:
        """Refuse: totals alone hold no findings."""
        del result, out, view
        raise not_for_usage(self.name)


def _rule(rule: str, name: str) -> dict[str, Any]:
    """Describe a rule, with its whole page as help."""
    page = rule_page(rule)
    made: dict[str, Any] = {"id": rule, "name": name, "shortDescription": {"text": name}}
    if page is not None:
        made["shortDescription"] = {"text": f"{page.title}."}
        made["fullDescription"] = {"text": " ".join(page.lead.split())}
        made["help"] = {"text": page.markdown, "markdown": page.markdown}
    made["properties"] = {"tags": ["prompt-cache", group_of(rule).lower()]}
    return made


def _result(finding: FindingRow, rule_index: int, places: dict[str, str]) -> dict[str, Any]:
    calls = [call for call in finding.calls[:_PLACES] if call in places]
    sentences = [finding.title.rstrip(".") + ".", *finding.established]
    if finding.fix is not None:
        sentences.append(f"Fix: {finding.fix.title}.")
    if finding.no_fix is not None:
        sentences.append(f"No fix: {finding.no_fix}")
    lost = finding.lost
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": _LEVELS.get(finding.kind, "note"),
        "message": {"text": " ".join(sentences)},
        "locations": [_location(places[call]) for call in calls],
        "partialFingerprints": {"finding/v1": f"{finding.rule}/{'/'.join(finding.calls[:1])}"},
        "properties": {
            "verdict": finding.verdict,
            "evidence": finding.evidence,
            "calls": finding.calls,
            "tokensLost": finding.tokens_lost,
            "inputEquivalentsLost": lost.input_equivalents if lost else None,
            "costLost": lost.cost if lost else None,
            "costSaved": _saved(finding),
        },
    }


def _saved(finding: FindingRow) -> str | None:
    alone = None if finding.fix is None else finding.fix.saves_alone
    return None if alone is None else alone.cost


def _location(where: str) -> dict[str, Any]:
    match = _WHERE.fullmatch(where)
    file, line = (match[1], int(match[2])) if match else (where, 0)
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
    if line:
        place["region"] = {"startLine": line}
    return {"physicalLocation": place}


def _uri(file: str) -> str:
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


RENDERER = SarifRenderer()

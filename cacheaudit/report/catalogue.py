"""What the catalogue says of a rule, in the parts that a report shows."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from cacheaudit.report.result import AuditResult, Check

GROUPS = {
    "PFX": "Prefix",
    "CMP": "Prefix",
    "TOL": "Tools",
    "MDL": "Settings",
    "BRK": "Breakpoints",
    "TTL": "Timing",
    "WRM": "Timing",
    "SIZ": "Size",
    "RTE": "Routing",
    "WST": "Waste",
    "DAT": "Record",
}
_HEADING = re.compile(r"^## +(.+)$", re.MULTILINE)


class RulePage(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's page, taken apart.

    Attributes:
        title: One line.
        lead: What is wrong.
        why: Why it costs.
        rests_on: What it takes to see it.
        ignore: When it need not bother anyone.
        markdown: The whole page.
    """

    title: str
    lead: str
    why: str | None
    rests_on: str | None
    ignore: str | None
    markdown: str


def group_of(rule: str) -> str:
    """Name the group of opportunities that a rule belongs to."""
    return GROUPS.get(rule[:3], "Other")


@lru_cache(maxsize=256)
def rule_page(rule: str) -> RulePage | None:
    """Return the page of a rule; ``None`` where this version has none of that id."""
    from cacheaudit.diagnose.pages import page
    from cacheaudit.diagnose.rule import find_rule

    found = find_rule(rule)
    if found is None:
        return None
    lead, parts = _parts(found.explanation)
    return RulePage(
        title=found.title,
        lead=lead,
        why=_part(parts, "why"),
        rests_on=parts.get("what it rests on"),
        ignore=parts.get("when to ignore"),
        markdown=page(found),
    )


def _parts(text: str) -> tuple[str, dict[str, str]]:
    pieces = _HEADING.split(text)
    heads = (head.strip().lower() for head in pieces[1::2])
    return pieces[0].strip(), dict(zip(heads, map(str.strip, pieces[2::2]), strict=True))


def _part(parts: dict[str, str], start: str) -> str | None:
    return next((text for head, text in parts.items() if head.startswith(start)), None)


def checks(result: AuditResult) -> list[Check]:
    """List every rule and how it went; as far as findings tell where the result does not say."""
    if result.checks:
        return list(result.checks)
    from cacheaudit.diagnose.rule import all_rules

    found = {finding.rule: finding for finding in result.findings if finding.kind != "error"}
    failed = {finding.rule for finding in result.findings if finding.kind == "error"}
    return [
        Check(
            rule=rule.id,
            name=rule.name,
            title=rule.title,
            state="failed" if rule.id in failed else "found" if rule.id in found else "clear",
        )
        for rule in all_rules()
    ]

"""What the page's copy buttons put into the clipboard, as text that is safe inside a page."""

from __future__ import annotations

import msgspec

from cacheaudit.report.markdown import audit_markdown
from cacheaudit.report.result import AuditResult, CallRow, FindingRow, WhatIf

MOST_CALLS = 60
MOST_FINDINGS = 25
MOST_IDS = 10
MOST_LINES = 12
_FIELDS = (
    "schema",
    "tool",
    "scope",
    "totals",
    "what_if",
    "simulation",
    "data_quality",
    "by_model",
    "by_purpose",
    "prices",
)


def copies(result: AuditResult, calls: list[CallRow], findings: list[FindingRow]) -> str:
    """Encode both copies as one JSON object.

    Args:
        result: The result.
        calls: Its calls; left out of the copy where there are many.
        findings: Its findings, dearest first; the first ones are copied.
    """
    document = {name: getattr(result, name) for name in _FIELDS}
    document["what_if"] = _shortened(result.what_if)
    shown = findings[:MOST_FINDINGS]
    document["findings"] = [_brief(finding) for finding in shown]
    document["calls"] = calls if len(calls) == result.scope.calls <= MOST_CALLS else []
    left_out = {
        "calls": result.scope.calls - len(document["calls"]),
        "findings": len(findings) - len(shown),
        "ids": sum(max(0, len(finding.calls) - MOST_CALLS) for finding in shown),
        "lines": sum(max(0, len(finding.established) - MOST_LINES) for finding in shown),
    }
    if any(left_out.values()):
        document["left_out"] = left_out
    both = {"json": document, "md": audit_markdown(result, brief=True)}
    text = msgspec.json.encode(both).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _brief(finding: FindingRow) -> FindingRow:
    """Cut what is told of single calls."""
    return msgspec.structs.replace(
        finding,
        calls=finding.calls[:MOST_CALLS],
        established=finding.established[:MOST_LINES],
        places=finding.places[:MOST_LINES],
    )


def _shortened(what_if: WhatIf) -> WhatIf:
    """Cut the lists of findings that steps mend."""
    replace = msgspec.structs.replace
    steps = [replace(step, findings=step.findings[:MOST_IDS]) for step in what_if.waterfall]
    return replace(what_if, waterfall=steps)

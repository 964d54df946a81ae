"""The loss table: causes, and what each is known from. The remainder is always a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

import msgspec

from cacheaudit.model.money import ZERO
from cacheaudit.report.result import FindingRow
from cacheaudit.report.summary import Lost, causes, losses, lost

UNEXPLAINED = "unexplained"
EVIDENCE = ("reported", "body_diff", "replayed", "simulated", "usage", UNEXPLAINED)
HEADS = {
    "reported": "Reported",
    "body_diff": "Body diff",
    "replayed": "Replayed",
    "simulated": "Simulated",
    "usage": "Usage",
    UNEXPLAINED: "Unexplained",
}
_REMAINDER = "unexplained-loss"


class CauseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One cause: tokens by what they are known from, and the sum in money."""

    rule: str
    name: str
    tokens: dict[str, int]
    lost: Lost
    share: Decimal


class LossTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table.

    Attributes:
        columns: Kinds of evidence that occur; ``unexplained`` always.
        rows: Causes, dearest first.
        remainder: What nothing explains.
        total: All rows.
    """

    columns: tuple[str, ...]
    rows: tuple[CauseRow, ...]
    remainder: CauseRow
    total: CauseRow


def loss_table(findings: Iterable[FindingRow]) -> LossTable:
    """Make the table."""
    every = losses(findings)
    known = [finding for finding in every if not is_unexplained(finding)]
    rest = [finding for finding in every if is_unexplained(finding)]
    whole = lost(every)
    rows = tuple(
        _row(cause.rule, cause.name, [f for f in known if f.rule == cause.rule], whole)
        for cause in causes(known)
    )
    total = _row("", "All losses", every, whole)
    used = [name for name in EVIDENCE if name == UNEXPLAINED or total.tokens.get(name)]
    return LossTable(
        columns=tuple(used),
        rows=rows,
        remainder=_row("", "Unexplained remainder", rest, whole),
        total=total,
    )


def is_unexplained(finding: FindingRow) -> bool:
    """Whether a finding names no cause."""
    return finding.name == _REMAINDER or (finding.verdict == "unknown" and not finding.rivals)


def _row(rule: str, name: str, findings: Sequence[FindingRow], whole: Lost) -> CauseRow:
    tokens: dict[str, int] = {}
    for finding in findings:
        column = UNEXPLAINED if is_unexplained(finding) else finding.evidence
        tokens[column] = tokens.get(column, 0) + finding.tokens_lost
    mine = lost(findings)
    return CauseRow(rule=rule, name=name, tokens=tokens, lost=mine, share=_share(mine, whole))


def _share(mine: Lost, whole: Lost) -> Decimal:
    if whole.cost:
        return (mine.cost or ZERO) / whole.cost
    if whole.input_equivalents:
        return mine.input_equivalents / whole.input_equivalents
    return Decimal(mine.tokens) / whole.tokens if whole.tokens else ZERO

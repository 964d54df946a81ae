"""What ``demo agent`` says, in the shape of its JSON."""

from __future__ import annotations

import msgspec

from cacheaudit.report.comparison import CompareResult
from cacheaudit.report.tasks import TasksResult

DEMO_SCHEMA = "cacheaudit.demo/1"


class Found(msgspec.Struct, frozen=True):
    """What the audit of a side found; ``kind`` is ``loss`` or ``note``."""

    rule: str
    title: str
    kind: str
    tokens: int
    calls: int


class DemoSide(msgspec.Struct, frozen=True, kw_only=True):
    """One way of working.

    Attributes:
        file: Its recording.
        findings: What its audit found.
        ledger: Its tasks.
    """

    file: str
    findings: list[Found]
    ledger: TasksResult


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the demo.

    Attributes:
        before: The naive loop.
        after: The careful one.
        compared: Both, side by side.
        decisions: What became of the question whether to compact, with counts.
        refreshes: Refreshes that kept an entry alive.
    """

    before: DemoSide
    after: DemoSide
    compared: CompareResult
    decisions: dict[str, int]
    refreshes: int
    schema: str = DEMO_SCHEMA

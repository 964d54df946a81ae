"""Results of replays, written by hand."""

from __future__ import annotations

from typing import Any

from cacheaudit.report.replay import BackendRow, ReplayedCall, ReplayResult, ReplayTotals
from cacheaudit.report.simulation import Parts


def parts(read: int, write: int | None) -> Parts:
    return Parts(cache_read=read, cache_write=write, uncached_input=0)


def call(name: str, reported: Parts, replayed: Parts | None, **more: Any) -> ReplayedCall:
    fields: dict[str, Any] = {"session": "s", "lane": "main", "basis": "request", **more}
    return ReplayedCall(id=name, predicted=reported, reported=reported, replayed=replayed, **fields)


def result(*calls: ReplayedCall, **more: Any) -> ReplayResult:
    none = parts(0, 0)
    totals = ReplayTotals(
        calls=0, replayed_calls=0, failed_calls=0, compared_calls=0, equal_calls=0,
        reported_calls=0, reproduced_calls=0, predicted=none, reported=none, replayed=none,
        sent=none, first_token_s=0.0,
    )  # fmt: skip
    backend = BackendRow(url="local", model="tiny", rules={}, content="filler", sizes="exact")
    fields: dict[str, Any] = {"clock": "recorded", "scale": 1, **more}
    return ReplayResult(
        calls=[*calls], totals=totals, rules_version="2026-11-30", backend=backend, **fields
    )

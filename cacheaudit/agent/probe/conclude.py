"""What the figures of a probe allow to say, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from cacheaudit.agent.probe.run import Row
from cacheaudit.report.format import count

Verdict = Literal["confirmed", "partly", "contradicted", "not_confirmed", "unknown", "incomplete"]

_NOTHING: Final = (
    "The same request again read nothing: check the model's minimum length, the marker, the "
    "lifetime, and whether requests reach the same cache."
)


class Conclusion(msgspec.Struct, frozen=True):
    """What a probe has shown.

    Attributes:
        verdict: ``confirmed``: the prefix was reused behind another question, and less of it when
            its beginning had changed. ``partly``: reused by the same request only.
            ``contradicted``: as much was read although the beginning had changed.
            ``not_confirmed``: a second, equal request read nothing. ``unknown``: the server does
            not say. ``incomplete``: a
            request failed.
        reasons: The figures, sentence by sentence.
        requests: How many were sent.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    requests: int


def conclude(rows: Sequence[Row]) -> Conclusion:
    """Say what the rows show."""
    verdict, reasons = _conclude(list(rows))
    return Conclusion(verdict, tuple(reasons), len(rows))


def _conclude(rows: list[Row]) -> tuple[Verdict, list[str]]:
    said = [_written(rows[0])] if rows and rows[0].complete else []
    failed = next((row for row in rows if not row.complete), None)
    if failed is not None:
        return "incomplete", [*said, f"Request {failed.case} failed: {failed.error}. No retry."]
    if len(rows) < 2:
        return "incomplete", said
    read = rows[1].cache_read
    if read is None:
        return "unknown", [*said, "The server does not report cache reads, so no hit can be seen."]
    if not read:
        return "not_confirmed", [
            *said,
            _NOTHING,
        ]
    said.append(f"The same request again read {count(read)} tokens.")
    if len(rows) < 4:
        return "incomplete", said
    return _reuse(rows, said)


def _reuse(rows: list[Row], said: list[str]) -> tuple[Verdict, list[str]]:
    behind, changed = rows[2].cache_read, rows[3].cache_read
    if behind is None or changed is None:
        return "unknown", [*said, "A later response does not report cache reads."]
    said.append(f"With another question {count(behind)} tokens were read.")
    said.append(
        f"With another beginning {count(changed)} were read"
        + ("." if rows[3].cache_write is None else f" and {count(rows[3].cache_write)} written.")
    )
    if not behind:
        return "partly", [*said, "The prefix was reused by an equal request only."]
    if changed >= behind:
        return "contradicted", [
            *said,
            "What was read does not depend on the beginning: this is no reuse of a prefix.",
        ]
    return "confirmed", [
        *said,
        "Reuse depends on the prefix. One run shows no lasting gain in time.",
    ]


def _written(row: Row) -> str:
    if row.cache_write is None:
        return "The first request: the server does not report writes."
    return f"The first request wrote {count(row.cache_write)} tokens."

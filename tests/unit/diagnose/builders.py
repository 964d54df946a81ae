"""Sessions for the tests of this folder."""

from __future__ import annotations

from cacheaudit.model.call import Call, Session
from cacheaudit.model.finding import Finding
from cacheaudit.model.usage import Usage

# row, start, duration, input, written, read; requests 12 to 14 start in the same second.
EXERCISE = (
    (1, 0, 20, 8_500, 8_500, 0),
    (2, 30, 15, 10_000, 1_500, 8_500),
    (3, 55, 18, 11_500, 1_500, 10_000),
    (4, 80, 25, 32_800, 21_300, 11_500),
    (5, 115, 15, 34_650, 34_650, 0),
    (6, 140, 150, 36_150, 1_500, 34_650),
    (7, 475, 20, 37_650, 37_650, 0),
    (8, 505, 15, 39_150, 1_500, 37_650),
    (9, 530, 15, 40_650, 33_300, 7_350),
    (10, 555, 15, 42_150, 3_000, 39_150),
    (11, 580, 20, 51_870, 44_520, 7_350),
    (12, 610, 25, 82_370, 30_500, 51_870),
    (13, 610, 25, 82_370, 30_500, 51_870),
    (14, 610, 25, 82_370, 30_500, 51_870),
)


def exercise(*, own_lanes: bool = False, ttl: str | None = None, starts: bool = True) -> Session:
    """The log of fourteen requests, by usage alone."""
    field = {"5m": "write_5m", "1h": "write_1h", None: "write_other"}[ttl]
    return Session(
        id="exercise",
        source="test",
        calls=tuple(
            Call(
                id=f"row{row}",
                lane=f"sub-{row}" if own_lanes and row >= 12 else "main",
                started_at=float(start) if starts else None,
                ended_at=float(start + duration) if starts else None,
                relative_time=True,
                usage=Usage(
                    total_input=total,
                    uncached_input=0,
                    cache_read=read,
                    output=300,
                    dialect="plain",
                    **{field: written},
                ),
            )
            for row, start, duration, total, written, read in EXERCISE
        ),
    )


def by_call(findings: tuple[Finding, ...], *, kind: str = "loss") -> dict[str, str]:
    """Name of the finding that holds each call; a call in two findings fails."""
    found: dict[str, str] = {}
    for finding in findings:
        if finding.kind != kind:
            continue
        for call in finding.calls:
            assert call not in found, f"{call} in {found[call]} and {finding.name}"
            found[call] = finding.name
    return found

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.report.metrics import Reuse, Strip
from cacheaudit.report.result import AuditResult
from tests.unit.report import samples

STEPS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 1)), max_size=40)


def naive(steps: list[tuple[int, int, int]]) -> int:
    """Keep every token for itself: whether it was written and not yet read."""
    lanes: dict[int, list[bool]] = {0: [], 1: []}
    in_vain = 0
    for read, wrote, name in steps:
        lane = lanes[name]
        in_vain += sum(lane[read:])
        lane[:] = [False] * min(read, len(lane))
        lane += [False] * (read - len(lane))
        lane += [True] * wrote
    return in_vain + sum(sum(lane) for lane in lanes.values())


@given(STEPS)
def test_writes_never_read_agree_with_a_count_token_by_token(
    steps: list[tuple[int, int, int]],
) -> None:
    reuse = Reuse()
    for number, (read, wrote, lane) in enumerate(steps):
        reuse.take(samples.call(number, 0, read + wrote, wrote, read, f"lane-{lane}"))
    assert reuse.unread == naive(steps)
    assert reuse.written == sum(wrote for _, wrote, _ in steps)


def metrics(result: AuditResult) -> dict[str, tuple[str, str]]:
    strip = Strip()
    for row in result.calls:
        strip.take(row)
    return {metric.name: (metric.value, metric.note) for metric in strip.metrics(result)}


def test_the_strip_of_the_fourteen_requests() -> None:
    found = metrics(samples.audit())
    assert found["Read ratio"] == ("52.6 %", "of all input tokens")
    # 381,701 / 592,180 of 3 dollars
    assert found["A million in"] == ("$1.93", "of $3.00 list price")
    # 311,760 / 280,420
    assert found["Reuse per write"][0] == "1.1 ×"  # noqa: RUF001
    assert found["Lifetime losses"] == ("1", "36.1k tokens")
    assert found["Prefix breaks"] == ("1", "calls left their prefix")
    assert found["First token"] == ("1.0 s", "cached; 4.0 s uncached")


def test_what_is_not_known_is_left_out() -> None:
    found = metrics(samples.bare())
    assert "First token" not in found
    assert found["Effective price"] == ("64.5 %", "of the list price")
    assert found["Prefix breaks"] == ("0", "every prompt was extended")


def test_the_effective_price_is_left_out_where_some_input_has_no_weight() -> None:
    result = samples.audit()
    assert "A million in" in metrics(result)
    result.totals = msgspec.structs.replace(result.totals, unweighted_calls=1)
    assert not {"A million in", "Effective price"} & set(metrics(result))

"""Requests sketched from sizes: simulated, they bill what was billed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import all_rules
from cacheaudit.model.call import Call, Session, Span
from cacheaudit.simulate.build import in_order
from cacheaudit.simulate.edit import EditRefused, parse_edit
from cacheaudit.simulate.request import is_sketch
from cacheaudit.simulate.run import run
from cacheaudit.simulate.sketch import sketched

# What a session read before the record began, or of a lane whose times are wrong, no sketch tells.
UNTOLD = {
    "clock-skew", "compaction-request-cold", "keep-alive-missed", "price-unknown",
    "unrelated-prompts", "usage-missing", "write-counts-dropped",
}  # fmt: skip
BY_SIZE = [
    rule
    for rule in all_rules()
    if not any(call.prompt is not None for call in rule.bad().calls) and rule.name not in UNTOLD
]


def billed(calls: Sequence[Call]) -> list[tuple[int | None, int | None]]:
    return [
        (call.usage.cache_read, call.usage.cache_write) for call in calls if call.usage is not None
    ]


def simulated(calls: Sequence[Call]) -> list[tuple[int | None, int | None]]:
    rows = run(sketched(in_order(calls))).calls
    return [
        (row.predicted.read, row.predicted.written)
        if row.predicted is not None
        else (row.reported.cache_read, row.reported.cache_write)
        for row in rows
        if row.reported is not None
    ]


@pytest.mark.parametrize("rule", BY_SIZE, ids=lambda rule: rule.name)
def test_the_sketch_bills_what_was_billed(rule) -> None:
    session = rule.bad()
    if session.calls[0].provider == "anthropic":
        assert simulated(session.calls) == billed(in_order(session))
    else:  # automatic caches report no writes
        reads = [read for read, _ in billed(in_order(session))]
        assert [read for read, _ in simulated(session.calls)] == reads


def test_it_predicts_from_sizes_and_says_so() -> None:
    session = Script().call(0, 0, 20_000).call(30, 20_000, 2_000).session()
    rows = run(sketched(session.calls)).calls
    assert {row.mode for row in rows} == {"sizes"}


def test_bodies_and_what_lacks_sizes_stay_as_they_are() -> None:
    session = Script().call(0, 0, 20_000).call(None, 20_000, 2_000).call(60, 22_000, None).session()
    first, second, third = sketched(in_order(session))
    by_id = {call.id: call for call in (first, second, third)}
    assert is_sketch(by_id["call-1"].prompt)
    assert by_id["call-2"].prompt is None
    assert by_id["call-3"].prompt is None


def test_edits_of_content_refuse_a_sketch() -> None:
    calls = sketched(Script().call(0, 0, 20_000).call(30, 0, 22_000).session().calls)
    for name in ("append-only", "freeze-text", "late-tools", "sort-tools", "early-media"):
        with pytest.raises(EditRefused, match="no requests"):
            parse_edit(name).apply(calls)


def test_what_was_taken_out_stays_in_and_is_carried_on() -> None:
    shrunk = Script().call(0, 0, 90_000).call(40, 15_000, 20_000).call(70, 35_000, 900).session()
    edit = parse_edit("keep-prefix:calls=call-2")
    rows = run(edit.apply(sketched(shrunk.calls))).calls
    parts = [(row.predicted.read, row.predicted.written) for row in rows if row.predicted]
    assert parts == [(0, 90_000), (90_000, 0), (90_000, 900)]


def test_a_call_that_is_not_named_keeps_its_break() -> None:
    broken = Script().call(0, 0, 10_000).call(30, 0, 12_000).call(60, 0, 14_000).session()
    rows = run(parse_edit("keep-prefix:calls=call-2").apply(sketched(broken.calls))).calls
    reads = [row.predicted.read for row in rows if row.predicted is not None]
    assert reads == [0, 10_000, 0]


@st.composite
def lanes(draw: st.DrawFn) -> Session:
    """A growing lane in which some calls read less than they could: nothing, or a fixed front."""
    script = Script(model="claude-opus-5")
    front = draw(st.integers(2_000, 6_000))
    size = front + draw(st.integers(2_000, 30_000))
    script.call(0.0, 0, size)
    at, cached = 0.0, size
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.floats(10, 200))
        cached_now = cached + draw(st.integers(1, 9_000))
        tail = draw(st.sampled_from([0, 0, 700]))
        read = draw(st.sampled_from([cached, cached, cached, 0, front]))
        script.call(at, read, cached_now - read, uncached=tail)
        cached = cached_now
    return script.session()


@given(lanes())
def test_any_lane_is_billed_as_recorded(session: Session) -> None:
    assert simulated(session.calls) == billed(session.calls)


@given(lanes())
def test_sizes_markers_and_usage_are_those_of_the_record(session: Session) -> None:
    for before, after in zip(session.calls, sketched(session.calls), strict=True):
        assert after.prompt is not None
        assert before.usage is not None
        assert after.prompt.tokens == before.usage.total_input
        assert 1 <= len(after.prompt.marked) <= 4
        assert msgspec.structs.replace(after, prompt=None) == before


@given(lanes())
def test_with_every_prefix_kept_nothing_is_lost(session: Session) -> None:
    kept = sketched(session.calls)
    ids = "+".join(call.id for call in session.calls)
    try:
        kept = list(parse_edit(f"keep-prefix:calls={ids}").apply(kept))
    except EditRefused:  # every call had read all
        assert all(
            b.usage.cache_read == (a.usage.cache_read or 0) + (a.usage.cache_write or 0)
            for a, b in zip(session.calls, session.calls[1:], strict=False)
            if a.usage is not None and b.usage is not None
        )
    ends = [
        (call.usage.cache_read or 0) + (call.usage.cache_write or 0)
        for call in session.calls
        if call.usage is not None
    ]
    reads = [row.predicted.read for row in run(kept).calls if row.predicted is not None]
    assert reads == [0, *ends[:-1]]


def test_an_interval_is_narrowed_to_what_the_read_allows() -> None:
    session = Script().call(0, 0, 20_000).call(302, 20_000, 500).session()
    first, second = session.calls
    late = msgspec.structs.replace(second, started_at=None, start_span=Span(low=298, high=302))
    drawn = sketched([first, late])
    assert drawn[1].started_at is not None
    assert 298 < drawn[1].started_at < 300
    assert simulated([first, late]) == [(0, 20_000), (20_000, 500)]


def test_what_shrank_after_a_pause_is_not_taken_to_be_the_same() -> None:
    session = Script().call(0, 0, 60_000).call(400, 0, 35_000).session()
    kept = run(parse_edit("ttl").apply(sketched(session.calls))).calls[1].predicted
    assert kept is not None
    assert (kept.read, kept.written) == (0, 35_000)


def test_what_was_never_marked_is_found_once_it_is() -> None:
    script = Script().call(0, 0, 0, uncached=10_000).call(30, 0, 0, uncached=12_000)
    calls = sketched(script.session().calls)
    assert simulated(script.session().calls) == [(0, 0), (0, 0)]
    rows = run(parse_edit("mark").apply(calls)).calls
    parts = [(row.predicted.read, row.predicted.written) for row in rows if row.predicted]
    assert parts == [(0, 10_000), (10_000, 2_000)]


def test_a_longer_read_than_the_call_before_had_goes_back_to_an_older_prompt() -> None:
    session = (
        Script(ttl="5m")
        .call(0, 0, 40_857, uncached=0)
        .call(60, 0, 16_500, uncached=0)
        .call(65, 16_500, 300, uncached=0)
        .call(185, 40_857, 1_500, uncached=0)
        .session()
    )
    calls = in_order(session.calls)
    assert simulated(sketched(calls)) == billed(calls)

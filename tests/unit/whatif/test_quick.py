"""The quick way to predict from sizes gives the answers of the general one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Boundary, Call, CallError, Session, Span
from cacheaudit.model.usage import Usage, UsagePart
from cacheaudit.simulate.quick import NotQuick, predict_sizes
from cacheaudit.simulate.run import run
from tests.unit.whatif.builders import growing


def general(calls: list[Call]) -> dict[str, tuple[int, int, int]]:
    return {
        row.id: (row.predicted.read, row.predicted.written, row.predicted.uncached)
        for row in run(calls).calls
        if row.predicted is not None
    }


def quick(calls: list[Call]) -> dict[str, tuple[int, int, int]]:
    ordered = sorted(calls, key=lambda call: call.at or 0.0)
    return {
        name: (found.read, found.written, found.uncached)
        for name, found in predict_sizes(ordered).calls.items()
    }


@st.composite
def logs(draw: st.DrawFn) -> list[Call]:
    """Usage logs with pauses, odd sizes, intervals, failures and several lanes."""
    calls: list[Call] = []
    at = 1_780_000_000.0
    count = draw(st.integers(1, 14))
    for number in range(count):
        at += draw(st.sampled_from([0.0, 0.5, 20.0, 290.0, 299.9, 300.0, 310.0, 3500.0, 4000.0]))
        read, written = draw(st.integers(0, 6000)), draw(st.integers(0, 4000))
        uncached = draw(st.sampled_from([0, 8, 500]))
        long = draw(st.booleans())
        usage = Usage(
            total_input=read + written + uncached,
            uncached_input=uncached,
            cache_read=draw(st.sampled_from([read, read, read, None])),
            write_5m=0 if long else written,
            write_1h=written if long else 0,
            context_input=draw(st.sampled_from([None, None, None, 700])),
            parts=draw(st.sampled_from([(), (), (), (UsagePart(kind="message"),)])),
        )
        width = draw(st.sampled_from([0.0, 4.0, 30.0]))
        exact = width == 0.0
        calls.append(
            Call(
                id=f"c{number}",
                session="s",
                lane=draw(st.sampled_from(["main", "main", "sub"])),
                provider="anthropic",
                model=draw(st.sampled_from(["claude-opus-5", "claude-opus-5", "claude-sonnet-5"])),
                started_at=at if exact else None,
                start_span=None if exact else Span(at - width, at),
                first_token_at=draw(st.sampled_from([None, at + 1.0])),
                ended_at=draw(st.sampled_from([None, at + 3.0, at + 40.0])),
                usage=draw(st.sampled_from([usage, usage, usage, None])),
                boundaries=draw(st.sampled_from([(), (), (), (Boundary("compaction"),)])),
                error=draw(st.sampled_from([None, None, None, CallError("overloaded")])),
                requests=draw(st.sampled_from([1, 1, 1, 2])),
            )
        )
    return calls


@settings(max_examples=300, deadline=None)
@given(logs())
def test_both_ways_agree(calls: list[Call]) -> None:
    try:
        found = quick(calls)
    except NotQuick:
        # Only where one lane mixes lifetimes.
        lives = {(c.usage.write_5m or 0) > 0 for c in calls if c.usage and c.usage.cache_write}
        assert len(lives) == 2
        return
    assert found == general(calls)


def test_other_calls_need_the_general_way() -> None:
    with pytest.raises(NotQuick):
        predict_sizes(growing([0, 10]))
    bare = [msgspec.structs.replace(call, prompt=None) for call in growing([0, 10])]
    for changes in (
        {"provider": "openai", "model": "gpt-5.6", "surface": "openai"},
        {"extra": {"workspace": "w"}},
        {"provider": None, "model": None},
    ):
        with pytest.raises(NotQuick):
            predict_sizes([msgspec.structs.replace(call, **changes) for call in bare])


@pytest.mark.shared
def test_both_ways_agree_on_recorded_sessions(shared: Path) -> None:
    folder = shared / "data" / "sessions"
    paths = [*(folder / "claude_code").glob("*.jsonl"), folder / "pi"]
    sessions: list[Session] = list(Corpus(paths, Problems(), lambda _d, _t: None).sessions())
    assert sum(len(session.calls) for session in sessions) > 1_000
    compared = 0
    for session in sessions:
        calls = list(session.calls)
        try:
            found = quick(calls)
        except NotQuick:
            continue
        assert found == general(calls)
        compared += len(found)
    assert compared > 900

"""The plan: order, times, rules, models, sizes, and what cannot be sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cacheaudit.jobs.replaying.extent import Extent, comfortable
from cacheaudit.jobs.replaying.plan import Step, steps
from cacheaudit.jobs.replaying.rule_versions import fitting_rules
from cacheaudit.model.call import Call, CallError, Span
from cacheaudit.model.usage import Usage
from cacheaudit.simulate.build import Refusal
from cacheaudit.simulate.run import run
from cacheaudit.simulate.switches import Switches
from tests.unit.replay.builders import (
    MARK,
    SESSIONS,
    assistant,
    calls_of,
    prompt_of,
    text,
    user,
)

BODY: dict[str, Any] = {"messages": [user(text("a" * 4_000, cache_control=MARK))]}


def call(name: str, **more: Any) -> Call:
    usage = Usage(total_input=1_000, uncached_input=0, cache_read=0, write_5m=1_000)
    fields: dict[str, Any] = {
        "provider": "anthropic", "model": "claude-opus-5-20260801", "started_at": 5.0,
        "usage": usage, "prompt": prompt_of(BODY), **more,
    }  # fmt: skip
    return Call(id=name, **fields)


def planned(*calls: Call, **more: Any) -> list[Step]:
    found = list(steps(calls, Switches(), **more))
    assert all(isinstance(item, Step) for item in found), found
    return [item for item in found if isinstance(item, Step)]


def refused(item: Call, **more: Any) -> str:
    (found,) = steps([item], Switches(), **more)
    assert isinstance(found, Refusal)
    return found.reason


def test_calls_go_out_in_order_of_their_start_whatever_their_lane() -> None:
    found = planned(call("b", started_at=9.0), call("a", lane="x", started_at=5.0))
    assert [step.call.id for step in found] == ["a", "b"]


def test_times_are_the_start_and_the_first_token() -> None:
    one, two = planned(
        call("a", first_token_at=7.5, ended_at=9.0),
        call("b", started_at=None, start_span=Span(10.0, 12.0), ended_at=20.0),
    )
    assert (one.at, one.readable_at) == (5.0, 7.5)
    assert (two.at, two.readable_at) == (12.0, 20.0)


def test_sizes_are_calibrated_on_the_recorded_total() -> None:
    (found,) = planned(call("a"))
    assert (found.sizes, found.sums, found.sized) == ((1_000,), (1_000,), "calibrated")


def test_recorded_sizes_of_the_exercise() -> None:
    first = planned(*calls_of(SESSIONS / "exercise-14.session.jsonl"))[0]
    assert first.sizes == (*[500] * 11, 1_100, 400, 1_500)
    assert (first.sized, first.rules, first.machine) == ("recorded", "anthropic", "claude")


@pytest.mark.parametrize(
    ("provider", "model", "wanted", "name"),
    [
        ("anthropic", "claude-opus-5-20260801", "anthropic", "claude-opus-5"),
        ("deepseek", "deepseek-chat", "deepseek", "deepseek-chat"),
        ("openai", "gpt-5.4", "implicit", "gpt-5.4"),
        ("nobody", "nothing", "anthropic", "nothing"),
        (None, None, "anthropic", "unknown"),
    ],
)
def test_rules_and_names(provider: str | None, model: str | None, wanted: str, name: str) -> None:
    (found,) = planned(call("a", provider=provider, model=model))
    assert (found.rules, found.model) == (wanted, name)


def test_unknown_rules_without_a_marker_are_those_of_any_engine() -> None:
    prompt = prompt_of({"messages": [user(text("a"))]})
    (found,) = planned(call("a", provider="nobody", model="x", prompt=prompt))
    assert (found.rules, found.machine) == ("implicit", None)


def test_caches_that_share_nothing_have_scopes_of_their_own() -> None:
    one, two, three = planned(call("a"), call("b"), call("c", extra={"workspace": "secret"}))
    assert one.scope == two.scope != three.scope
    assert "secret" not in three.scope


def test_requests_are_drawn_from_usage_where_there_are_none() -> None:
    found = planned(*calls_of(SESSIONS / "exercise-14.csv"))
    assert len(found) == 14
    assert all(step.is_sketch for step in found)
    assert [step.sums[-1] for step in found][:4] == [8_500, 10_000, 11_500, 32_800]


def test_thinking_of_earlier_turns_goes_where_the_provider_drops_it() -> None:
    thought = {"type": "thinking", "thinking": "a", "signature": "b"}
    body = {"messages": [user(text("a")), assistant(thought, text("b")), user(text("c"))]}
    kept = planned(call("a", prompt=prompt_of(body)))[0].blocks
    dropped = planned(call("a", prompt=prompt_of(body), model="claude-haiku-4-5"))[0].blocks
    assert [len(kept), len(dropped)] == [4, 3]


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"prompt": None, "usage": None}, "no_body"),
        ({"usage": None, "error": CallError("overloaded_error", 529)}, "failed"),
        ({"requests": 3}, "many_requests"),
        ({"started_at": None}, "no_start_time"),
        ({"prompt": prompt_of({"messages": []})}, "empty"),
    ],
    ids=["body", "failed", "several", "start", "empty"],
)
def test_what_cannot_be_sent(more: dict[str, Any], wanted: str) -> None:
    assert refused(call("a", **more)) == wanted


def test_without_time_calls_without_a_start_are_sent() -> None:
    found = planned(call("a", started_at=None), call("b", started_at=None), timeless=True)
    assert [step.call.id for step in found] == ["a", "b"]


def test_the_scale_is_the_first_comfortable_one() -> None:
    exercise = planned(*calls_of(SESSIONS / "exercise-14.session.jsonl"))
    assert comfortable(exercise) == 10
    assert comfortable(planned(*calls_of(SESSIONS / "probe.session.jsonl"))) == 1
    assert comfortable([]) == 1


def test_an_extent_holds_everything_that_is_sent() -> None:
    exercise = planned(*calls_of(SESSIONS / "exercise-14.session.jsonl"))
    extent = Extent(exercise, 10)
    # 82,370 tokens, and 115,570 that no two prompts share, with what JSON and turns add.
    assert 8_237 < extent.longest < 12_000
    assert 11_557 < extent.distinct < 16_000
    assert Extent(exercise, 1).longest > 82_370


def test_a_rule_that_explains_what_was_billed_is_found() -> None:
    """A forced tool dropped nothing, as one public measurement has it."""
    usage = Usage(total_input=1_000, uncached_input=0, cache_read=1_000, write_5m=0)
    forced = prompt_of({**BODY, "tool_choice": {"type": "any"}})
    calls = [call("a", first_token_at=6.0), call("b", started_at=20.0, prompt=forced, usage=usage)]
    found = run(calls)
    assert found.by_id()["b"].error_tokens == -1_000
    assert fitting_rules(calls, found, Switches()) == {"b": "tool_choice=nothing"}


def test_no_rule_is_sought_where_all_is_explained() -> None:
    calls = calls_of(SESSIONS / "exercise-14.session.jsonl")
    assert fitting_rules(calls, run(calls), Switches()) == {}
    assert msgspec.structs.asdict(Switches())["images"] == "auto"

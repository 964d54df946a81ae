"""From recorded calls to requests: identity, sizes, markers, times, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.model.call import Call, CallError, Span
from cacheaudit.model.usage import Usage
from cacheaudit.simulate.build import Builder, Built, Refusal, in_order, requests
from cacheaudit.simulate.request import SimRequest
from cacheaudit.simulate.run import Simulated, run
from cacheaudit.simulate.switches import Switches
from tests.unit.simulate.builders import MARK, body, call

PLAIN = Switches()


def usage(total: int, read: int = 0, written: int = 0) -> Usage:
    return Usage(
        total_input=total,
        uncached_input=total - read - written,
        cache_read=read,
        write_5m=written,
    )


def built(one: Call, *earlier: Call, switches: Switches = PLAIN) -> Built:
    builder = Builder(switches)
    for item in earlier:
        builder.build(item)
    found = builder.build(one)
    assert isinstance(found, Built)
    return found


def predicted(found: Simulated, index: int) -> int:
    outcome = found.calls[index].predicted
    assert outcome is not None
    return outcome.read


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────


def test_recorded_sizes_are_added_up() -> None:
    found = built(call("1", body("q", "a", "r"), at=0, sizes=[700, 10, 20, 30])).request
    assert list(found.sizes) == [700, 710, 730, 760]
    assert found.total == 760
    assert [mark.index for mark in found.marks] == [0, 3]


def test_estimated_sizes_add_up_to_the_recorded_total() -> None:
    found = built(call("1", body("q" * 90, "a" * 300), at=0, usage=usage(5_000)))
    assert found.request.total == 5_000
    assert (found.sized, found.gap) == ("calibrated", 0)


def test_what_two_prompts_share_has_one_size() -> None:
    """The second total only tells the size of what is new, so the whole first prompt is read."""
    calls = [
        call("1", body("q" * 90), at=0, usage=usage(5_000)),
        call("2", body("q" * 90, "a", "r"), at=60, usage=usage(5_321)),
    ]
    found = run(calls)
    assert predicted(found, 1) == 5_000
    assert found.calls[1].predicted is not None
    assert found.calls[1].predicted.writes == {"5m": 321}


def test_a_call_without_a_total_takes_the_measure_of_those_before() -> None:
    first = call("1", body("x" * 3_600), at=0, usage=usage(3_000))
    second = call("2", body("y" * 3_600), at=60)
    found = built(second, first)
    assert found.sized == "estimated"
    assert found.request.total == pytest.approx(3_000, rel=0.05)


def test_the_providers_own_text_on_tools_explains_a_constant_gap() -> None:
    """Opus 5 adds 286 tokens where tools are given; the recorded sizes leave them out."""
    first = call("1", body("q", tools=["a"]), at=0, sizes=[900, 600, 14], usage=usage(1_800))
    found = built(first)
    assert (found.request.total, found.gap) == (1_800, 0)
    other = call("2", body("q", tools=["a"]), at=0, sizes=[900, 600, 14], usage=usage(1_801))
    assert (built(other).request.total, built(other).gap) == (1_514, 287)


TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TEXTS, st.integers(0, 2)), min_size=1, max_size=8))
def test_sums_are_those_of_a_plain_walk(drawn: list[tuple[list[int], int]]) -> None:
    builder = Builder(PLAIN)
    for number, (texts, model) in enumerate(drawn):
        names = [f"{position}{text}" for position, text in enumerate(texts)]
        sizes = [50, *(7 + 13 * text for text in texts)]
        made = body(*names, model=("claude-opus-5", "claude-sonnet-5", "claude-opus-5")[model])
        found = builder.build(call(str(number), made, at=float(number), sizes=sizes))
        assert isinstance(found, Built)
        running, walk = 0, []
        for size in sizes:
            running += size
            walk.append(running)
        assert list(found.request.sizes) == walk


# ── identity ─────────────────────────────────────────────────────────────────────────────────────


def pair(change: dict[str, Any], switches: Switches = PLAIN, **more: Any) -> tuple[int, int, int]:
    """Send a prompt, a changed one, and the first again, grown; return what each reads."""
    sizes = [2_000, 1_000]
    calls = [
        call("1", body("q", **more), at=0, sizes=sizes),
        call("2", body("q", **{**more, **change}), at=60, sizes=sizes),
        call("3", body("q", "a", "r", **more), at=120, sizes=[*sizes, 10, 10]),
    ]
    found = run(calls, switches=switches)
    return predicted(found, 0), predicted(found, 1), predicted(found, 2)


FORCED = {"tool_choice": {"type": "any"}}
THINKING = {"thinking": {"type": "adaptive"}}
EFFORT = {"output_config": {"effort": "low"}}


@pytest.mark.parametrize(
    ("change", "switches", "read"),
    [
        (FORCED, {}, 2_000),
        (FORCED, {"tool_choice": "nothing"}, 3_000),
        (THINKING, {}, 0),
        (THINKING, {"thinking": "messages"}, 2_000),
        (EFFORT, {}, 0),
        (EFFORT, {"effort": "messages"}, 2_000),
        (EFFORT, {"thinking": "messages"}, 0),
        ({"speed": "fast"}, {}, 0),
        ({"speed": "fast"}, {"speed": "nothing"}, 3_000),
        ({"model": "claude-opus-4-8"}, {}, 0),
        ({"tool_choice": {"type": "auto"}}, {}, 3_000),
        ({"output_config": {"effort": "high"}}, {}, 3_000),
    ],
)
def test_what_a_setting_drops(change: dict[str, Any], switches: dict[str, str], read: int) -> None:
    """Two levels are marked: 2,000 of system, 1,000 of messages. Later the first is found again."""
    assert pair(change, Switches.parse(switches)) == (0, read, 3_000)


def test_a_speed_change_keeps_tools() -> None:
    made = body("q", tools=["t"])
    made["tools"][0]["cache_control"] = MARK
    sizes = [1_500, 2_000, 1_000]
    fast = {**made, "speed": "fast"}
    calls = [call("1", made, at=0, sizes=sizes), call("2", fast, at=60, sizes=sizes)]
    assert predicted(run(calls), 1) == 1_500
    assert predicted(run(calls, switches=Switches(speed="tools")), 1) == 0


def picture(text: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    image = {"type": "image", "source": source, "cache_control": MARK}
    made = body("q", "a", text)
    made["messages"][2]["content"] = [{"type": "text", "text": text}, image]
    return made


def test_a_first_picture_is_an_append_unless_switched() -> None:
    calls = [
        call("1", body("q"), at=0, sizes=[2_000, 1_000]),
        call("2", picture("see"), at=60, sizes=[2_000, 1_000, 10, 10, 1_500]),
    ]
    assert predicted(run(calls), 1) == 3_000
    assert predicted(run(calls, switches=Switches(images="messages")), 1) == 2_000


@pytest.mark.parametrize(
    ("field", "first", "second"),
    [
        ("anthropic_beta", ["x"], ["y"]),
        ("betas", ["x"], ["x", "y"]),
        ("anthropic-beta", "x", "x,y"),
    ],
)
def test_beta_headers_are_told_apart_where_switched(field: str, first: Any, second: Any) -> None:
    calls = [
        call(str(n), body("q"), at=60.0 * n, sizes=[2_000, 1_000], extra={field: betas})
        for n, betas in enumerate((first, second))
    ]
    assert predicted(run(calls), 1) == 3_000
    assert predicted(run(calls, switches=Switches(beta_headers="tools")), 1) == 0


def test_the_same_beta_features_in_another_order_are_the_same() -> None:
    calls = [
        call(str(n), body("q"), at=60.0 * n, sizes=[2_000, 1_000], extra={"anthropic-beta": betas})
        for n, betas in enumerate(("x,y", "y, x"))
    ]
    assert predicted(run(calls, switches=Switches(beta_headers="tools")), 1) == 3_000


def thought(text: str, *, tool: bool = False) -> dict[str, Any]:
    """A turn that thought, and what the user sent after it: a text, or the result of a tool."""
    made = body("q", "a", text)
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    use = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
    made["messages"][1]["content"] = [thinking, use if tool else {"type": "text", "text": "a"}]
    if tool:
        result = {"type": "tool_result", "tool_use_id": "1", "content": text, "cache_control": MARK}
        made["messages"][2]["content"] = [result]
    return made


@pytest.mark.parametrize(
    ("model", "read"), [("claude-opus-4-5", 7_800), ("claude-sonnet-4-5", 7_000)]
)
def test_a_user_turn_drops_old_thinking_on_some_models(model: str, read: int) -> None:
    """After a tool loop with thinking: Opus 4.5 keeps all of it, Sonnet 4.5 from the thought on."""
    looped = {**thought("result", tool=True), "model": model}
    spoken = {**looped, "messages": [*looped["messages"]]}
    spoken["messages"] += [
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        {"role": "user", "content": [{"type": "text", "text": "thanks", "cache_control": MARK}]},
    ]
    first = {**body("q", model=model)}
    calls = [
        call("0", first, at=0, sizes=[5_000, 2_000]),
        call("1", looped, at=30, sizes=[5_000, 2_000, 500, 100, 200]),
        call("2", spoken, at=60, sizes=[5_000, 2_000, 500, 100, 200, 10, 10]),
    ]
    assert predicted(run(calls), 1) == 7_000
    assert predicted(run(calls), 2) == read


@pytest.mark.parametrize(
    ("extra", "read"), [({}, 3_000), ({"account": "b"}, 0), ({"workspace": "w2"}, 0)]
)
def test_accounts_and_workspaces_are_kept_apart(extra: dict[str, Any], read: int) -> None:
    calls = [
        call("1", body("q"), at=0, sizes=[2_000, 1_000]),
        call("2", body("q"), at=60, sizes=[2_000, 1_000], extra=extra),
    ]
    assert predicted(run(calls), 1) == read


def test_workspaces_of_one_organisation_share_on_bedrock() -> None:
    calls = [
        call(
            str(n),
            body("q"),
            at=60.0 * n,
            sizes=[2_000, 1_000],
            surface="bedrock",
            extra={"organization": "o", "workspace": f"w{n}"},
        )
        for n in range(2)
    ]
    assert predicted(run(calls), 1) == 3_000


def gemini(
    identity: str, at: float, text: str, usage: Usage, sizes: list[int] | None = None
) -> Call:
    made = {
        "model": "gemini-2.5-pro",
        "cachedContent": "cachedContents/7",
        "contents": [{"role": "user", "parts": [{"text": text}]}],
    }
    return call(
        identity, made, at=at, usage=usage, sizes=sizes, provider="gemini", surface="gemini_api"
    )


def test_a_cache_object_is_as_large_as_its_first_call_says() -> None:
    calls = [
        gemini(str(n), 60.0 * n, f"question {n}", usage(9_030 + n, read=9_000)) for n in range(2)
    ]
    found = run(calls).calls
    assert found[0].refused == "object_size_unknown"
    assert found[1].exact
    assert found[1].predicted is not None
    assert found[1].predicted.uncached == 31


def test_recorded_sizes_tell_a_cache_object_apart() -> None:
    found = run([gemini("1", 0, "q", usage(9_030, read=9_000), [30])]).calls[0]
    assert found.exact


def test_lanes_and_sessions_share_one_cache() -> None:
    one = call("1", body("q"), at=0, sizes=[2_000, 1_000])
    other = call("2", body("q"), at=60, sizes=[2_000, 1_000])
    other = msgspec.structs.replace(other, session="t", lane="helper")
    assert predicted(run([other, one]), 1) == 3_000


# ── markers that are refused ─────────────────────────────────────────────────────────────────────


def refused(made: dict[str, Any]) -> str:
    outcome = run([call("1", made, at=0)]).calls[0].predicted
    assert outcome is not None
    return outcome.refused or ""


def test_markers_that_the_provider_refuses() -> None:
    five = body("a", "b", "c", "d", "e", system="")
    for message in five["messages"]:
        message["content"][0]["cache_control"] = MARK
    assert "5 markers" in refused(five)
    blank = body(" \n")
    assert "empty text" in refused(blank)
    deferred = body("q", tools=["t"])
    deferred["tools"][0] |= {"defer_loading": True, "cache_control": MARK}
    assert "defer_loading" in refused(deferred)
    thinking = thought("x")
    thinking["messages"][1]["content"][0]["cache_control"] = MARK
    assert "thinking" in refused(thinking)
    assert refused(body("q")) == ""


def test_an_automatic_marker_steps_over_blank_text() -> None:
    made = {**body("q", " ", mark=False, system=""), "cache_control": MARK}
    found = built(call("1", made, at=0, sizes=[2_000, 1])).request
    assert [mark.index for mark in found.marks] == [0]


def test_automatic_markers_are_refused_on_older_bedrock_models() -> None:
    made = {**body("q", model="claude-opus-4-6", mark=False, system=""), "cache_control": MARK}
    for surface, said in (("claude_api", ""), ("bedrock", "places no markers")):
        outcome = run([call("1", made, at=0, surface=surface)]).calls[0].predicted
        assert outcome is not None
        assert said in (outcome.refused or "")
        assert bool(outcome.refused) is bool(said)


# ── times and refusals ───────────────────────────────────────────────────────────────────────────


def test_without_a_first_token_the_end_of_the_response_counts() -> None:
    first = call("1", body("q"), at=0, seconds=30, sizes=[2_000, 1_000], first=None)
    for at, read in ((20, 0), (30, 3_000)):
        second = call("2", body("q"), at=at, sizes=[2_000, 1_000])
        assert predicted(run([first, second]), 1) == read


def test_calls_of_one_moment_cannot_read_each_other() -> None:
    calls = [
        msgspec.structs.replace(
            call(str(n), body("q"), at=5, sizes=[2_000, 1_000], first=None), ended_at=None
        )
        for n in range(3)
    ]
    later = call("later", body("q"), at=6, sizes=[2_000, 1_000])
    assert [predicted(run([*calls, later]), n) for n in range(4)] == [0, 0, 0, 3_000]


def test_an_interval_counts_by_its_end() -> None:
    one = call("1", body("q"), at=0, sizes=[2_000, 1_000])
    one = msgspec.structs.replace(one, started_at=None, start_span=Span(2.0, 9.0))
    assert built(one).request.at == 9.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": None}, "no_body"),
        ({"started_at": None}, "no_start_time"),
        ({"provider": "acme", "model": "acme-1"}, "unknown_rules"),
        ({"error": CallError("overloaded", 529), "usage": None}, "failed"),
        ({"error": CallError("aborted"), "usage": Usage(total_input=0)}, "failed"),
        ({"requests": 7}, "many_requests"),
    ],
)
def test_it_refuses_rather_than_guesses(change: dict[str, Any], reason: str) -> None:
    one = msgspec.structs.replace(call("1", body("q"), at=0, usage=usage(3_000)), **change)
    found = Builder(PLAIN).build(one)
    assert isinstance(found, Refusal)
    assert found.reason == reason
    assert found.id == "1"


def test_the_callers_order_does_not_matter() -> None:
    calls = [call(str(n), body("q"), at=float(9 - n), sizes=[1, 2]) for n in range(9)]
    assert [one.id for one in in_order(calls)] == [str(n) for n in range(8, -1, -1)]
    made = requests(calls)
    assert [item.id for item in made] == [str(n) for n in range(8, -1, -1)]
    assert all(isinstance(item, SimRequest) for item in made)

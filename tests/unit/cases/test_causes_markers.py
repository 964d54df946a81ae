"""Public cases of markers, lookback and minimum size (L)."""

from __future__ import annotations

import copy
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cases.recording import (
    HOUR,
    MARK,
    Recording,
    anthropic_usage,
    assistant,
    audit,
    body,
    command,
    result,
    simulated,
    text,
    tool,
    use,
    user,
)

FRONT = 7_000
TOOLS = (tool("read", 1_500), tool("run", 1_500, **MARK))
SYSTEM = (text("You help with code.", 4_000, **MARK),)


def bare(request: dict[str, Any], model: str = "claude-opus-5") -> dict[str, Any]:
    """A body without the sizes of its blocks, as it would be sent."""
    made = copy.deepcopy(request)
    for block in (*made.get("tools", ()), *made.get("system", ())):
        block.pop("_t", None)
    for message in made["messages"]:
        for block in message["content"]:
            block.pop("_t", None)
    return {"model": model, **made}


def lint(folder: Path, request: dict[str, Any], *options: str, code: int = 0) -> list[Any]:
    file = folder / "body.json"
    file.write_text(json.dumps(request), "utf-8")
    found: list[Any] = command(folder, "lint", str(file), *options, code=code)["problems"]
    return found


def wide(surface: str, read: int) -> Recording:
    """One turn appends twelve tool calls and their results, behind a single tail marker."""
    task = user(text("task", 5_000))
    turn = [
        task,
        assistant(*(use(n, 50) for n in range(12))),
        user(*(result(n, 200) for n in range(12))),
    ]
    model = "claude-opus-4-8" if surface == "bedrock" else "claude-opus-5"
    case = Recording(surface=surface, model=model)
    system = (text("You help with code.", 4_000),)
    case.call(0, anthropic_usage(0, 9_000), body([task], system=system))
    return case.call(30, anthropic_usage(read, 12_000 - read), body(turn, system=system))


def test_l01_where_every_block_counts_a_wide_turn_is_beyond_the_lookback(tmp_path: Path) -> None:
    case = wide("bedrock", 0)
    found = audit(tmp_path, case)
    loss = found.loss("marker-beyond-lookback")
    assert loss.verdict == "proved"
    assert loss.calls == ["call-2"]
    # The marked block is position 1, so that the 24 blocks behind the old endpoint put it at 25.
    assert "position 25 of the lookup" in loss.said
    assert "over 20 positions (each block counted)" in loss.said
    assert sum(one.tokens for one in found.losses) == 9_000
    assert found.reads == [0, 0]
    assert loss.fix["title"].startswith("Mark the last content block of the request before")


def test_l01_where_runs_count_once_the_same_turn_hits(tmp_path: Path) -> None:
    case = wide("claude_api", 9_000)
    found = audit(tmp_path, case)
    assert found.losses == []
    assert found.reads == [0, 9_000]
    # The rule is disputed, so it is a switch.
    each = simulated(tmp_path, case, "--switch", "lookback_runs=each")
    assert [c["predicted"]["cache_read"] for c in each["calls"]] == [0, 0]
    assert each["switches"] == {"lookback_runs": "each"}


def test_l01_a_miss_where_runs_count_once_is_not_proved(tmp_path: Path) -> None:
    found = audit(tmp_path, wide("claude_api", 0))
    assert found.losses
    assert all(loss.verdict != "proved" for loss in found.losses)
    assert found.reads == [0, 9_000]


def test_l01_an_intermediate_marker_mends_it(tmp_path: Path) -> None:
    edited = simulated(tmp_path, wide("bedrock", 0), "--edit", "sliding-markers")
    reads = edited["what_if"]["all_fixes"]["cache_read"]
    assert reads == 9_000


def stuck() -> tuple[Recording, int]:
    """Markers on the first message and on results 10, 20 and 30, never moved; 60 results."""
    case, at = Recording(), 0.0
    talk = [user(text("task", 3_000, **MARK))]
    system = (text("You help with code.", 4_000),)
    size, cached = 7_000, 7_000
    case.call(at, anthropic_usage(0, size), body(talk, system=system, last=False))
    for number in range(1, 61):
        at += 20
        more = MARK if number in (10, 20, 30) else {}
        talk += [assistant(use(number, 100)), user(result(number, 900, **more))]
        size += 1_000
        read = cached
        if number in (10, 20, 30):
            cached = size
        usage = anthropic_usage(read, cached - read, size - cached)
        case.call(at, usage, body(talk, system=system, last=False))
    return case, cached


def test_l04_markers_that_never_move(tmp_path: Path) -> None:
    case, cached = stuck()
    assert cached == 37_000
    found = audit(tmp_path, case)
    loss = found.loss("markers-never-moved")
    assert loss.verdict == "proved"
    # The prefix ends at result 30; from 32 on the tail is sent again: 1 + 2 + ... + 29 thousand.
    assert "37,000" in loss.said
    late = [call for call in loss.calls if int(call.removeprefix("call-")) > 32]
    assert late
    assert "call-61" in loss.calls
    assert loss.tokens == 1_000 * (3 * sum(range(2, 9)) + sum(range(3, 30)))
    sliding = simulated(tmp_path, case, "--edit", "sliding-markers")["what_if"]["all_fixes"]
    # Every prompt but the last is read once by the next one.
    assert sliding["cache_read"] == sum(7_000 + 1_000 * n for n in range(60))
    assert sliding["cache_write"] == 67_000
    after = Decimal("0.1") * sliding["cache_read"] + Decimal("1.25") * 67_000
    before = Decimal(found.document["totals"]["input_equivalents"])
    assert Decimal(loss.fix["saves_alone"]["input_equivalents"]) == before - after


def five_markers() -> dict[str, Any]:
    tools = [tool("read", 1), tool("run", 1, **MARK)]
    system = [text("a", 1, **MARK), text("b", 1, **MARK)]
    messages = [user(text("c", 1, **MARK)), assistant(text("d", 1)), user(text("e", 1))]
    return bare(body(messages, tools=tools, system=system))


def test_l05_five_markers_are_listed_before_they_are_sent(tmp_path: Path) -> None:
    problems = lint(tmp_path, five_markers(), code=1)
    (problem,) = [one for one in problems if one["rule"] == "too-many-markers"]
    assert problem["level"] == "refused"
    for path in (
        "tools[1]",
        "system[0]",
        "system[1]",
        "messages[0].content[0]",
        "messages[2].content[0]",
    ):
        assert path in problem["message"] + problem["path"]
    assert "5" in problem["message"]


def test_l05_markers_that_a_proxy_added_count_too(tmp_path: Path) -> None:
    request = five_markers()
    del request["messages"][2]["content"][0]["cache_control"]
    assert not [p for p in lint(tmp_path, request) if p["rule"] == "too-many-markers"]
    request["cache_control"] = {"type": "ephemeral"}
    problems = lint(tmp_path, request, code=1)
    assert [p for p in problems if p["level"] == "refused"]


def test_l05_in_a_recording_the_refusal_is_a_note(tmp_path: Path) -> None:
    request = body([user(text("task", 5_000))], tools=TOOLS, system=SYSTEM)
    request["system"].append(text("more", 10, **MARK))
    request["messages"] = [user(text("c", 10, **MARK)), *request["messages"]]
    error = {
        "type": "invalid_request_error",
        "status": 400,
        "message": "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    }
    case = Recording().call(0, None, request, error=error)
    note = audit(tmp_path, case).note("over-four-markers")
    assert note.calls == ["call-1"]


def test_l07_one_hour_behind_five_minutes(tmp_path: Path) -> None:
    tools = [tool("run", 1, **MARK)]
    request = bare(body([user(text("a", 1, **HOUR))], tools=tools, last=False))
    problems = lint(tmp_path, request, code=1)
    (problem,) = [one for one in problems if one["level"] == "refused"]
    assert problem["rule"] == "marker-lifetimes-out-of-order"
    assert "messages[0].content[0]" in problem["path"] + problem["message"]
    turned = bare(body([user(text("a", 1))], tools=[tool("run", 1, **HOUR)]))
    assert not [p for p in lint(tmp_path, turned) if p["level"] == "refused"]


def two_turns(model: str, surface: str = "claude_api", *, cached: bool) -> Recording:
    """A prefix of 3,000 tokens, between 1,024 and 4,095."""
    talk = [user(text("task", 1_000))]
    more = [*talk, assistant(text("a", 100)), user(text("b", 100))]
    system = (text("You help with code.", 2_000, **MARK),)
    case = Recording(model=model, surface=surface)
    first = anthropic_usage(0, 3_000) if cached else anthropic_usage(0, 0, 3_000)
    second = anthropic_usage(3_000, 200) if cached else anthropic_usage(0, 0, 3_200)
    case.call(0, first, body(talk, system=system))
    return case.call(30, second, body(more, system=system))


@pytest.mark.parametrize("model", ["claude-opus-4-5", "claude-haiku-4-5"])
def test_l09_below_the_minimum_of_this_model(tmp_path: Path, model: str) -> None:
    found = audit(tmp_path, two_turns(model, cached=False))
    assert found.losses == []
    note = found.note("below-minimum")
    assert "4,096" in note.said
    assert found.reads == [0, 0]
    words = "word " * 2_000
    request = bare(body([user(text(words, 1))]), model)
    problems = lint(tmp_path, request)
    (problem,) = [p for p in problems if p["rule"] == "below-minimum"]
    assert problem["level"] == "never_hits"
    assert "4,096" in problem["message"] or "4096" in problem["message"]


def test_l09_the_same_body_is_cached_by_another_model(tmp_path: Path) -> None:
    found = audit(tmp_path, two_turns("claude-sonnet-4-5", cached=True))
    assert found.losses == []
    assert "below-minimum" not in {note.name for note in found.notes}
    assert found.reads == [0, 3_000]
    request = bare(body([user(text("word " * 2_000, 1))]), "claude-sonnet-4-5")
    assert not [p for p in lint(tmp_path, request) if p["rule"] == "below-minimum"]


def test_l12_nothing_written_and_nothing_read_on_a_platform(tmp_path: Path) -> None:
    # Two checks: the size, and where the marker stands.
    found = audit(tmp_path, two_turns("claude-haiku-4-5", "bedrock", cached=False))
    assert found.losses == []
    note = found.note("below-minimum")
    assert "4,096" in note.said
    usage = anthropic_usage(0, 0, 9_000)
    case = Recording(model="claude-haiku-4-5", surface="bedrock").call(0, usage).call(30, usage)
    found = audit(tmp_path, case)
    assert found.losses == []
    note = found.note("nothing-cached")
    assert note.verdict != "proved"
    assert "minimum size" in note.to_check
    assert "marker" in note.to_check

"""What whole sessions cost with the planner and without, played by the simulator."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings

from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.model.tokens import estimate
from tests.unit.agent.planner.bodies import results, sessions, text, uses
from tests.unit.agent.planner.play import (
    MODEL,
    START,
    Played,
    call_of,
    exercise,
    input_cost,
    play,
    rows,
    unmarked,
)

EXAMPLES = settings(max_examples=30, deadline=None)
# The first write of a session at most: 1 input token more for each token, at one hour.
RISK = Decimal("0.25")


def without(items: list[Played]) -> Decimal:
    return input_cost([call_of(n, item, item.body) for n, item in enumerate(items)])


@EXAMPLES
@given(sessions(steady_start=True))
def test_a_session_that_goes_on_is_never_dearer(items: list[Played]) -> None:
    calls = play(BreakpointPlanner(), items)
    assert input_cost(calls) <= without(items)


@EXAMPLES
@given(sessions())
def test_no_session_loses_more_than_its_first_write_and_the_risk(items: list[Played]) -> None:
    calls = play(BreakpointPlanner(), items)
    first = next((call for call in calls if call.usage and call.usage.cache_write), None)
    premium = Decimal(0)
    if first is not None and first.usage is not None:
        premium = Decimal("0.25") * (first.usage.write_5m or 0) + (first.usage.write_1h or 0)
    total = without(items)
    assert input_cost(calls) <= total + premium + RISK * total


@EXAMPLES
@given(sessions(steady_start=True))
def test_completing_the_callers_markers_is_never_dearer(items: list[Played]) -> None:
    for item in items:
        said = item.body["messages"][-1]
        if isinstance(said["content"], str):
            said["content"] = [{"type": "text", "text": said["content"]}]
        said["content"][-1] = {**said["content"][-1], "cache_control": {"type": "ephemeral"}}
    calls = play(BreakpointPlanner(PlanPolicy(complete=True)), items)
    assert input_cost(calls) <= without(items)


def loop(turns: int, step: int = 2_000, gap: float = 20.0, front: int = 12_000) -> list[Played]:
    """An agent's loop: each request is the one before it and one exchange more."""
    body: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": 100,
        "tools": [{"name": "t", "description": "x", "input_schema": {"type": "object"}}],
        "system": text(front, 3),
        "messages": [{"role": "user", "content": "go"}],
    }
    items = [Played(copy.deepcopy(body), START)]
    for number in range(turns):
        body["messages"] += [
            {"role": "assistant", "content": [uses(number)]},
            {"role": "user", "content": [results(number, step)]},
        ]
        items.append(Played(copy.deepcopy(body), START + gap * (number + 1)))
    return items


def test_a_plain_loop_reads_all_that_was_sent_before() -> None:
    items = loop(12)
    calls = play(BreakpointPlanner(), items)
    sizes = [call.usage.prompt_size for call in calls if call.usage]
    assert [read for _, read in rows(calls)] == [0, *sizes[:-1]]
    assert all(call.usage and call.usage.uncached_input == 0 for call in calls)


@pytest.mark.parametrize("wide", [9, 19, 20, 25, 60, 200])
def test_a_turn_of_any_width_is_found(wide: int) -> None:
    """Each text block is a position of its own: more than twenty are beyond any lookup."""
    items = loop(3)
    body = copy.deepcopy(items[-1].body)
    body["messages"] += [
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": [{"type": "text", "text": text(300, n)} for n in range(wide)]},
    ]
    items.append(Played(body, items[-1].at + 20))
    calls = play(BreakpointPlanner(), items)
    before = calls[-2].usage
    assert before is not None
    assert rows(calls)[-1][1] == before.prompt_size


def test_messages_that_change_with_every_request_are_not_written_for_nothing() -> None:
    """A clock in the system prompt: after two changes only what stands before it is marked."""
    items = loop(10)
    for number, item in enumerate(items):
        item.body["system"] = [
            {"type": "text", "text": text(9_000, 1)},
            {"type": "text", "text": f"It is 10:{number:02}. " + text(200, 2)},
        ]
    planner = BreakpointPlanner()
    calls = play(planner, items)
    assert input_cost(calls) < without(items)
    front = sum(block.tokens or estimate(block) for block in calls[0].prompt.blocks[:2])
    assert rows(calls)[4:] == [(0, front)] * (len(items) - 4)
    report = "\n".join(planner.report("s"))
    assert "system[1] changes (clock, 10 times): reported only" in report


def test_moving_what_changes_keeps_the_rest() -> None:
    items = loop(10)
    for number, item in enumerate(items):
        item.body["system"] = text(9_000, 1) + f"\nIt is 10:{number:02} o'clock.\nBe brief.\n"
    planner = BreakpointPlanner(PlanPolicy(move_volatile=True))
    calls = play(planner, items)
    assert input_cost(calls) < without(items) / 2
    last = items[-1].sent
    assert last["system"] == [
        {
            "type": "text",
            "text": text(9_000, 1) + "\nBe brief.\n",
            "cache_control": {"type": "ephemeral"},
        }
    ]
    assert last["messages"][-1]["content"][-1] == {"type": "text", "text": "It is 10:10 o'clock.\n"}
    assert "cache_control" in last["messages"][-1]["content"][-2]
    assert "system[0] changes (clock, 10 times): sent behind the last marker" in "\n".join(
        planner.report("s")
    )


@pytest.mark.parametrize("size", [300, 9_000])
def test_a_whole_system_prompt_is_never_moved(size: int) -> None:
    items = loop(4)
    for number, item in enumerate(items):
        item.body["system"] = f"It is 10:{number:02} o'clock. " + text(size, 1)
    play(BreakpointPlanner(PlanPolicy(move_volatile=True)), items)
    assert all("o'clock" in str(item.sent["system"]) for item in items)
    assert all("o'clock" not in str(item.sent["messages"]) for item in items)


def test_a_short_block_beside_others_is_moved_whole() -> None:
    items = loop(3)
    for number, item in enumerate(items):
        clock = {"type": "text", "text": f"It is 10:{number:02}."}
        item.body["system"] = [{"type": "text", "text": text(9_000, 1)}, clock]
    other = copy.deepcopy(items[-1])
    other.lane, other.at = "helper", other.at + 5
    play(BreakpointPlanner(PlanPolicy(move_volatile=True)), [*items, other])
    assert [len(item.sent["system"]) for item in (*items, other)] == [2, 1, 1, 1, 2]
    assert items[-1].sent["messages"][-1]["content"][-1]["text"] == "It is 10:03."


def test_thinking_of_older_models_is_not_cut_off_by_moved_text() -> None:
    items = loop(4)
    for number, item in enumerate(items):
        item.body["model"] = "claude-sonnet-4-5"
        item.body["system"] = text(9_000, 1) + f"\nIt is 10:{number:02} o'clock."
    play(BreakpointPlanner(PlanPolicy(move_volatile=True)), items)
    assert all("10:0" in str(item.sent["system"]) for item in items)


def test_single_requests_with_one_front_are_marked_at_the_front_alone() -> None:
    """After enough of them nobody expects a conversation to go on."""
    items = []
    for number in range(120):
        (item,) = loop(0)
        item.body["messages"] = [{"role": "user", "content": text(4_000, number) + str(number)}]
        item.at = START + 4_000.0 * (number // 40) + 3 * number
        item.lane = f"single-{number}"
        items.append(item)
    calls = play(BreakpointPlanner(), items)
    assert "cache_control" in str(items[0].sent["messages"])
    assert "cache_control" not in str(items[-1].sent["messages"])
    assert "cache_control" in str(items[-1].sent["system"])
    assert input_cost(calls) < without(items)


# ── the session of fourteen requests ─────────────────────────────────────────────────────────────


def test_completing_the_exercise_finds_the_wide_turn() -> None:
    """Row 11 reads 42,150 tokens and writes 9,720: 40,020 saved, nothing else changes."""
    items = exercise()
    before = [call_of(n, item, item.body) for n, item in enumerate(items)]
    calls = play(BreakpointPlanner(PlanPolicy(complete=True)), items)
    assert input_cost(before) == Decimal(381_701)
    assert input_cost(calls) == Decimal(381_701 - 40_020)
    assert rows(calls)[10] == (9_720, 42_150)
    assert rows(calls)[11:] == [(30_500, 51_870)] * 3


def test_with_the_siblings_behind_a_leader_the_common_end_is_read() -> None:
    """Rows 12 to 14: the planner marks the common end; who sends the others later reads it."""
    items = exercise()
    for item in items[12:]:
        item.at += 5
    calls = play(BreakpointPlanner(PlanPolicy(complete=True)), items)
    assert rows(calls)[11:] == [(30_500, 51_870), (200, 82_170), (200, 82_170)]
    assert input_cost(calls) == Decimal(381_701 - 40_020 - 69_690)


def test_the_exercise_without_markers_of_its_own() -> None:
    """The same figures as with the caller's own markers, and the two fixes besides.

    The texts of the recording are shorter than their recorded sizes: one call teaches the planner
    how much.
    """
    items = exercise()
    for item in items[12:]:
        item.at += 5
    for item in items:
        item.body = unmarked(item.body)
    planner = BreakpointPlanner(PlanPolicy(ttl="5m"))
    teach(planner, items[0])
    calls = play(planner, items)
    assert rows(calls) == [
        (8_500, 0), (1_500, 8_500), (1_500, 10_000), (21_300, 11_500), (34_650, 0),
        (1_500, 34_650), (37_650, 0), (1_500, 37_650), (33_300, 7_350), (3_000, 39_150),
        (9_720, 42_150), (30_500, 51_870), (200, 82_170), (200, 82_170),
    ]  # fmt: skip
    assert input_cost(calls) == Decimal(271_991)
    assert without(items) == Decimal(592_180)


def teach(planner: BreakpointPlanner, item: Played) -> None:
    """Let the planner learn how many tokens the recording counts for its texts."""
    from msgspec.structs import replace

    from cacheaudit.model.usage import Usage
    from tests.unit.agent.planner.play import outgoing

    body = {**item.body, "model": item.body["model"]}
    planner.plan(outgoing(body, 900, item.at - 90_000, session="other"))
    usage = Usage(uncached_input=8_500, cache_read=0, write_5m=0, total_input=8_500, output=1)
    call = call_of(900, item, body)
    planner.learn(replace(call, usage=usage))


def test_the_kind_of_a_change_is_told_a_few_times_and_then_only_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cacheaudit.agent.planner import volatile

    told: list[str] = []
    explain = volatile.explain
    monkeypatch.setattr(volatile, "explain", lambda a, b: (told.append(a), explain(a, b))[1])
    items = loop(12)
    for number, item in enumerate(items):
        item.body["system"] = text(9_000, 1) + f"\nIt is 10:{number:02}."
        item.body["tools"][0]["description"] = f"counts {number}"
    planner = BreakpointPlanner()
    play(planner, items)
    assert len(told) == 6
    report = "\n".join(planner.report("s"))
    assert "system[0] changes (clock, 12 times): reported only" in report
    assert "tools[0] changes (counter, 12 times): reported only" in report

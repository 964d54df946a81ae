"""Public reports of changed prefixes: prevented where a client can, told in the report at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cacheaudit.agent.keep_alive.replay import Replay, replay
from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.jobs.lint import lint_body
from cacheaudit.model.tokens import estimate
from tests.unit.agent.cases.helpers import (
    changed,
    loop,
    planned,
    reads,
    reads_all_before,
    sent,
    sizes,
    tool,
    without,
)
from tests.unit.agent.planner.bodies import text
from tests.unit.agent.planner.play import Played, input_cost, rows


def test_p01_a_block_that_moves_to_the_newest_message_is_told_and_the_front_is_read() -> None:
    """A list of skills, in the first message before a resume, in the newest one behind it."""
    skills = {"type": "text", "text": text(3_000, 9)}

    def resumed(body: dict[str, Any], number: int) -> None:
        asked = {"type": "text", "text": "do it"}
        body["messages"][0]["content"] = [skills, asked] if number < 3 else [asked]
        if number >= 3:
            body["messages"][-1]["content"].append(skills)

    items = changed(loop(5), resumed)
    for item in items:
        item.lane = "main"
    calls, report = planned(items)
    assert calls[0].prompt is not None
    front = sum(estimate(block) for block in calls[0].prompt.blocks[:4])
    assert reads(calls)[3] == front > 2_000
    assert "messages[0] changes (earlier content" in report


def test_p03_the_conversation_is_read_again_although_only_the_front_was_marked() -> None:
    def at_the_front(body: dict[str, Any], _: int) -> None:
        body["system"][-1]["cache_control"] = {"type": "ephemeral"}

    items = changed(loop(), at_the_front)
    calls, _ = planned(items, complete=True)
    assert reads_all_before(calls)
    assert input_cost(calls) < without(items) * 6 / 10
    plain, _ = planned(loop())
    assert reads_all_before(plain)


def test_p06_tools_of_a_server_that_comes_back_keep_their_places() -> None:
    def reconnected(body: dict[str, Any], number: int) -> None:
        if number >= 3:
            body["tools"] = [body["tools"][2], *body["tools"][:2]]

    items = changed(loop(), reconnected)
    calls, _ = planned(items, stable_tools=True)
    assert reads_all_before(calls)
    calls, report = planned(items)
    assert reads(calls)[3] == 0
    assert "tools changes (order, 1 times)" in report


def test_p08_a_random_order_of_tools_is_the_same_in_every_process() -> None:
    names = ["gamma", "alpha", "beta"]
    made = []
    for order in (names, names[::-1], sorted(names)):
        body = {**loop(0)[0].body, "tools": [tool(name) for name in order]}
        made.append(sent(BreakpointPlanner(PlanPolicy(stable_tools=True)), body)["tools"])
    assert [t["name"] for t in made[0]] == sorted(names)
    assert made[1] == made[2] == made[0]


def test_p08_keys_of_schemas_keep_the_order_of_the_first_request() -> None:
    def flipped(body: dict[str, Any], number: int) -> None:
        if number % 2:
            schema = body["tools"][1]["input_schema"]
            body["tools"][1]["input_schema"] = dict(reversed(schema.items()))

    items = changed(loop(), flipped)
    calls, _ = planned(items, stable_tools=True)
    assert reads_all_before(calls)
    assert len({json.dumps(item.sent["tools"]) for item in items}) == 1
    _, report = planned(items)
    assert "tools[1] changes (key order, 6 times): reported only" in report


def test_p10_a_nonce_in_a_header_of_the_prompt_is_told_at_once_and_may_be_moved() -> None:
    def header(body: dict[str, Any], number: int) -> None:
        line = f"x-billing-header: version=2.1.3; cch={0xA1B2C + number * 7919:05x};"
        body["system"].insert(0, {"type": "text", "text": line})

    items = changed(loop(8), header)
    _, report = planned(items[:1])
    assert "system[0] looks like it changes (id): not seen to change so far" in report
    calls, report = planned(items, move_volatile=True)
    assert "system[0] changes (id" in report
    assert "sent behind the last marker" in report
    assert all(read > 2_000 for read in reads(calls)[2:])
    assert input_cost(calls) < without(items) / 2


def test_p13_a_clock_is_told_at_once_and_may_be_moved() -> None:
    def clock(body: dict[str, Any], number: int) -> None:
        body["system"][0]["text"] += f"\nCurrent time is 2026-11-30 10:00:{number:02}\n"

    items = changed(loop(8), clock)
    _, report = planned(items[:1])
    assert "system[0] looks like it changes (clock): not seen to change so far" in report
    calls, report = planned(items, move_volatile=True)
    assert "system[0] changes (clock, 8 times): sent behind the last marker" in report
    assert input_cost(calls) < without(items) / 2
    _, report = planned(items)
    assert "system[0] changes (clock, 8 times): reported only" in report


def test_p15_a_git_status_is_told_at_once_and_may_be_moved() -> None:
    def status(body: dict[str, Any], number: int) -> None:
        status = f"git status:\nOn branch main\n M file_{number}.py\n"
        body["system"].append({"type": "text", "text": status})

    items = changed(loop(8), status)
    _, report = planned(items[:1])
    assert "system[1] looks like it changes (git): not seen to change so far" in report
    calls, report = planned(items, move_volatile=True)
    assert "system[1] changes (git" in report
    assert input_cost(calls) < without(items) / 2


def test_p17_arguments_of_earlier_calls_keep_their_key_order() -> None:
    def written(body: dict[str, Any], number: int) -> None:
        for message in body["messages"][1::2]:
            given = {"city": "Bern", "unit": "celsius"}
            message["content"][0]["input"] = dict(
                reversed(given.items()) if number % 2 else given.items()
            )

    items = changed(loop(), written)
    calls, report = planned(items, stable_inputs=True)
    assert reads_all_before(calls)
    assert "key order kept as it was sent first: 5 calls" in report
    calls, report = planned(items)
    assert not reads_all_before(calls)
    assert "messages[1].content[0].input changes (key order" in report


def test_p17_arguments_that_say_something_else_are_never_changed() -> None:
    planner = BreakpointPlanner(PlanPolicy(stable_inputs=True))
    body = loop(1)[1].body
    for number, given in enumerate([{"a": 1, "b": 2}, {"b": 2, "a": True}, {"b": 2.0, "a": 1}]):
        body["messages"][1]["content"][0]["input"] = given
        made = sent(planner, body, number)["messages"][1]["content"][0]["input"]
        assert json.dumps(made) == json.dumps(given)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_p17_texts_of_arguments_too(api: str) -> None:
    def body(arguments: str) -> dict[str, Any]:
        if api == "chat":
            call = {"id": "c1", "type": "function"}
            call |= {"function": {"name": "weather", "arguments": arguments}}  # type: ignore[dict-item]
            said = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
            return {"model": "gpt-5.6", "messages": said}
        call = {"type": "function_call", "call_id": "c1", "name": "w", "arguments": arguments}
        return {"model": "gpt-5.6", "input": [{"role": "user", "content": "x"}, call]}

    planner = BreakpointPlanner(PlanPolicy(stable_inputs=True))
    first, other = '{"city":"Bern","unit":"C"}', '{"unit": "C", "city": "Bern"}'
    sent(planner, body(first))
    made = json.dumps(sent(planner, body(other), 1))
    assert json.dumps(first) in made
    changed_text = '{"unit": "F", "city": "Bern"}'
    assert json.dumps(changed_text) in json.dumps(sent(planner, body(changed_text), 2))


def test_p20_thinking_that_is_switched_back_and_forth_is_told() -> None:
    def switched(body: dict[str, Any], number: int) -> None:
        body["thinking"] = {"type": "disabled" if number % 2 else "adaptive"}

    _, report = planned(changed(loop(), switched))
    assert "thinking changes (parameter, 6 times): reported only" in report


def test_p21_a_picture_that_becomes_text_is_told_and_what_stands_before_it_is_read() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 90},
    }

    def shown(body: dict[str, Any], number: int) -> None:
        if len(body["messages"]) > 6:
            pointer = {"type": "text", "text": "[picture: see screenshot.png]"}
            body["messages"][6]["content"].append(picture if number == 3 else pointer)

    calls, report = planned(changed(loop(), shown))
    assert "messages[6] changes (image became text, 1 times)" in report
    assert reads(calls)[4] >= sizes(calls)[2]
    assert reads(calls)[5:] == sizes(calls)[4:-1]


def test_p26_a_forced_tool_with_no_output_is_refused_by_lint_and_never_sent_by_keep_alive() -> None:
    body = {**loop(2)[2].body, "tool_choice": {"type": "tool", "name": "alpha"}}
    problems = lint_body({**body, "max_tokens": 0}, provider="anthropic")
    assert any(p.level == "refused" and "max_tokens" in p.message for p in problems)
    made = replay(body)
    assert isinstance(made, Replay)
    assert made.output_tokens == 1
    assert {k: v for k, v in made.body.items() if k != "max_tokens"} == {
        k: v for k, v in body.items() if k != "max_tokens"
    }


def test_p27_a_description_that_changes_every_turn_is_told_and_written_for_nothing_no_more() -> (
    None
):
    def warned(body: dict[str, Any], number: int) -> None:
        body["tools"][1]["description"] += f"\nFailures so far: {number}"

    items: list[Played] = changed(loop(10), warned)
    calls, report = planned(items)
    assert "tools[1] changes (counter, 10 times): reported only" in report
    assert [write for write, _ in rows(calls)][4:] == [0] * 7

"""Public reports of markers: placed rightly, or refused before anything is sent."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.jobs.lint import lint_body
from tests.unit.agent.cases.helpers import MARK, changed, loop, planned, reads, reads_all_before
from tests.unit.agent.planner.bodies import results, text, uses
from tests.unit.agent.planner.play import START, Played, input_cost, outgoing
from tests.unit.agent.planner.test_acceptance import refusal
from tests.unit.agent.planner.test_properties import markers


@pytest.mark.parametrize("complete", [False, True])
def test_l01_a_turn_of_twelve_calls_and_twelve_results_is_found(complete: bool) -> None:
    items = loop(3)
    body = copy.deepcopy(items[-1].body)
    for kind, role in ((uses, "assistant"), (lambda n: results(n, 400), "user")):
        body["messages"].append({"role": role, "content": [kind(n) for n in range(90, 102)]})
    items.append(Played(body, items[-1].at + 20))
    if complete:  # the caller marks the tail alone
        items = changed(items, _mark_tail)
    calls, _ = planned(items, complete=complete)
    assert reads_all_before(calls)


def _mark_tail(body: dict[str, Any], _: int) -> None:
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        body["messages"][-1]["content"] = content = [{"type": "text", "text": content}]
    content[-1]["cache_control"] = MARK


def test_l04_markers_slide_with_the_conversation() -> None:
    """Sixty tool results; the caller's own markers stay at three of them."""

    def fixed(body: dict[str, Any], _: int) -> None:
        for index in (20, 40, 60):
            if index < len(body["messages"]):
                body["messages"][index]["content"][-1]["cache_control"] = MARK

    calls, _ = planned(loop(60))
    assert reads_all_before(calls)
    stuck, _ = planned(changed(loop(60), fixed))
    assert reads(stuck)[-1] < reads(calls)[-1] / 1.5
    helped, _ = planned(changed(loop(60), fixed), complete=True)
    assert input_cost(helped) < input_cost(stuck)


def five() -> dict[str, Any]:
    body = loop(2)[2].body
    body["tools"][-1]["cache_control"] = MARK
    body["system"].append({"type": "text", "text": "more"})
    for block in body["system"]:
        block["cache_control"] = MARK
    for message in body["messages"][2::2]:
        message["content"][-1]["cache_control"] = MARK
    return body


def test_l05_five_markers_are_refused_by_lint_with_their_places_and_none_is_added() -> None:
    body = five()
    (problem,) = [p for p in lint_body(body, provider="anthropic") if p.level == "refused"]
    for place in ("tools[2]", "system[0]", "system[1]", "messages[2]", "messages[4]"):
        assert place in f"{problem.path} {problem.message}"
    assert refusal(body) is not None
    planner = BreakpointPlanner(PlanPolicy(complete=True))
    assert planner.plan(outgoing(body)) is None
    assert "left as sent" in "\n".join(planner.report("s"))


def test_l05_a_set_of_four_is_never_made_five() -> None:
    body = five()
    del body["tools"][-1]["cache_control"]
    planner = BreakpointPlanner(PlanPolicy(complete=True))
    for number in range(3):
        planned_body = planner.plan(outgoing(body, number, START + number))
        assert refusal(planned_body or body) is None
        assert markers(dict(planned_body or body)) == 4


def test_l07_an_hour_behind_five_minutes_is_refused_by_lint_and_never_made() -> None:
    body = loop(2)[2].body
    body["system"][0]["cache_control"] = {**MARK, "ttl": "5m"}
    wrong = copy.deepcopy(body)
    wrong["messages"][-1]["content"][-1]["cache_control"] = {**MARK, "ttl": "1h"}
    refused = [p for p in lint_body(wrong, provider="anthropic") if p.level == "refused"]
    assert len(refused) == 1
    assert refused[0].path.startswith("messages[4]")
    for ttl in ("auto", "5m", "1h"):
        planner = BreakpointPlanner(PlanPolicy(complete=True, ttl=ttl))
        made = planner.plan(outgoing(body))
        assert made is not None
        assert refusal(dict(made)) is None
        assert "1h" not in str(made["messages"])


@pytest.mark.parametrize(
    ("model", "marked"),
    [("claude-sonnet-4-5", True), ("claude-opus-4-5", False), ("claude-haiku-4-5", False)],
)
def test_l09_a_prefix_below_the_models_minimum_is_told_as_such(model: str, marked: bool) -> None:
    """Some 2,000 tokens: Sonnet keeps them, Opus 4.5 and Haiku 4.5 do not."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": 9,
        "system": [{"type": "text", "text": text(7_200, 1)}],
        "messages": [{"role": "user", "content": "go"}],
    }
    planner = BreakpointPlanner()
    assert (planner.plan(outgoing(body)) is not None) == marked
    report = "\n".join(planner.report("s"))
    assert ("1 left as sent: shorter than the model caches" in report) != marked
    body["system"][0]["cache_control"] = MARK
    found = [p for p in lint_body(body, provider="anthropic") if p.level == "never_hits"]
    assert bool(found) != marked
    assert marked or "4,096" in found[0].message


def test_l12_a_short_cache_point_of_bedrock_is_told_before_it_is_sent() -> None:
    content = [{"text": "x" * 3_000}, {"cachePoint": {"type": "default"}}]
    said = [{"role": "user", "content": content}]
    body = {"modelId": "us.anthropic.claude-haiku-4-5-20251001-v1:0", "messages": said}
    found = [p for p in lint_body(body) if p.level == "never_hits"]
    assert found
    assert "4,096" in found[0].message
    assert BreakpointPlanner().plan(outgoing(body)) is None

"""What holds for every request: accepted, unchanged but for markers, planned once."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.planner.marks import own_marks
from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.jobs.lint import lint_body
from cacheaudit.model.usage import Usage
from cacheaudit.simulate.build import Refusal
from tests.unit.agent.planner.bodies import bodies, sessions
from tests.unit.agent.planner.play import (
    START,
    Cache,
    Played,
    call_of,
    outgoing,
    stripped,
    unmarked,
)

EXAMPLES = settings(max_examples=40, deadline=None)
policies = st.builds(
    PlanPolicy,
    ttl=st.sampled_from(["auto", "5m", "1h"]),
    complete=st.booleans(),
    never_behind=st.booleans(),
)


def refused(body: dict[str, Any]) -> set[str]:
    return {problem.rule for problem in lint_body(body) if problem.level == "refused"}


def markers(body: dict[str, Any]) -> int:
    return lint_markers(body)


def lint_markers(body: dict[str, Any]) -> int:
    levels = [
        list(enumerate(value)) if isinstance(value := body.get(name), list) else []
        for name in ("tools", "system", "messages")
    ]
    return own_marks(body, *levels)["markers"]


@EXAMPLES
@given(policies, st.lists(bodies(marked=False), min_size=1, max_size=3))
def test_what_is_sent_is_accepted_and_differs_in_markers_alone(
    policy: PlanPolicy, requests: list[dict[str, Any]]
) -> None:
    planner = BreakpointPlanner(policy)
    for number, body in enumerate(requests):
        before, raw = refused(body), msgspec.json.encode(body)
        planned = planner.plan(outgoing(body, number, START + number))
        assert msgspec.json.encode(body) == raw
        if planned is None:
            continue
        sent = dict(planned)
        assert refused(sent) <= before
        assert 1 <= markers(sent) <= 4
        assert stripped(sent) == stripped(body)
        assert list(sent) == list(body)
        # Without markers the very bytes are the same, where no text had to become a block.
        if all(isinstance(m["content"], list) for m in body["messages"]) and isinstance(
            body.get("system", []), list
        ):
            assert msgspec.json.encode(unmarked(sent)) == msgspec.json.encode(unmarked(body))


@EXAMPLES
@given(st.lists(bodies(marked=True), min_size=1, max_size=2))
def test_a_request_with_markers_is_left_alone(requests: list[dict[str, Any]]) -> None:
    planner = BreakpointPlanner()
    for number, body in enumerate(requests):
        assert planner.plan(outgoing(body, number, START + number)) is None


@EXAMPLES
@given(policies, st.lists(bodies(marked=True), min_size=1, max_size=3))
def test_completing_keeps_the_callers_markers_and_adds_no_fault(
    policy: PlanPolicy, requests: list[dict[str, Any]]
) -> None:
    planner = BreakpointPlanner(msgspec.structs.replace(policy, complete=True))
    for number, body in enumerate(requests):
        raw = msgspec.json.encode(body)
        planned = planner.plan(outgoing(body, number, START + number))
        assert msgspec.json.encode(body) == raw
        if planned is not None:
            assert refused(dict(planned)) <= refused(body)
            assert markers(body) < markers(dict(planned)) <= 4
            assert stripped(dict(planned)) == stripped(body)
            assert kept(body, planned)


def kept(given_body: Any, sent: Any) -> bool:
    """Whether every marker of a value stands in another one, at the same place."""
    if isinstance(given_body, dict):
        return all(name in sent and kept(value, sent[name]) for name, value in given_body.items())
    if isinstance(given_body, list):
        return all(kept(a, b) for a, b in zip(given_body, sent, strict=True))
    if isinstance(given_body, str) and isinstance(sent, list):
        return bool(sent[0]["text"] == given_body)
    return bool(given_body == sent)


@EXAMPLES
@given(policies, bodies(), st.booleans())
def test_a_planned_request_is_planned_no_more(
    policy: PlanPolicy, body: dict[str, Any], same: bool
) -> None:
    planner = BreakpointPlanner(policy)
    planned = planner.plan(outgoing(body, 0, START))
    if planned is None:
        return
    again = planner if same else BreakpointPlanner(policy)
    twice = again.plan(outgoing(copy.deepcopy(dict(planned)), 1, START + 5))
    assert twice is None


@settings(max_examples=30, deadline=None)
@given(policies, sessions())
def test_nothing_that_a_session_sends_is_refused(policy: PlanPolicy, items: list[Played]) -> None:
    planner, cache = BreakpointPlanner(policy), Cache()
    for number, item in enumerate(items):
        planned = planner.plan(outgoing(item.body, number, item.at))
        call = call_of(number, item, item.body if planned is None else planned)
        assert not isinstance(call, Refusal)
        assert cache.step(call).refused is None
        again = planner.plan(outgoing(dict(planned or item.body), number, item.at))
        assert planned is None or again is None


@pytest.mark.parametrize(
    "extra",
    [
        {"thread": {"type": "create"}},
        {"thread": {"type": "continue", "id": "t"}},
        {"previous_response_id": "resp_1"},
        {"model": None},
        {"messages": "no list"},
        {"messages": [3]},
        {"messages": [{"role": "user", "content": 7}]},
        {"model": "an-unknown-model"},
    ],
    ids=["thread", "continued", "response", "no model", "text", "numbers", "content", "unknown"],
)
def test_what_cannot_be_planned_is_sent_as_it_is(extra: dict[str, Any]) -> None:
    body = {
        "model": "claude-opus-5",
        "system": "x" * 9_000,
        "messages": [{"role": "user", "content": "hello"}],
        **extra,
    }
    planner = BreakpointPlanner()
    assert planner.plan(outgoing(body)) is None
    assert any("left as sent" in line for line in planner.report("s"))


@pytest.mark.parametrize(
    ("model", "tokens", "planned"),
    [
        ("claude-opus-5", 500, False),
        ("claude-opus-5", 520, True),
        ("claude-sonnet-4-6", 1_000, False),
        ("claude-sonnet-4-6", 1_040, True),
        ("claude-opus-4-7", 2_030, False),
        ("claude-opus-4-7", 2_070, True),
        ("claude-haiku-4-5", 4_080, False),
        ("claude-haiku-4-5", 4_110, True),
    ],
)
def test_prefixes_below_the_models_minimum_are_not_marked(
    model: str, tokens: int, planned: bool
) -> None:
    """By our estimate of 3.6 bytes a token; a block has some thirty bytes besides its text."""
    body = {
        "model": model,
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "x" * round(tokens * 3.6 - 40)}],
    }
    assert (BreakpointPlanner().plan(outgoing(body)) is not None) == planned


def test_what_was_billed_corrects_the_estimate() -> None:
    """A text that turns out to have three times the tokens is long enough the next time."""
    planner, item = BreakpointPlanner(), Played({}, START)
    item.body = {
        "model": "claude-opus-5",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "x" * 700}],
    }
    assert planner.plan(outgoing(item.body)) is None
    usage = Usage(uncached_input=600, cache_read=0, write_5m=0, total_input=600, output=1)
    planner.learn(msgspec.structs.replace(call_of(0, item, item.body), usage=usage))
    assert planner.plan(outgoing(item.body, 1, START + 9)) is not None

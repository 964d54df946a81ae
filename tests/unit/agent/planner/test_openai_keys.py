"""Keys from GPT-5.6 on, where they part the cache: stable, never forced, never dearer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.fan_out.layout import layout
from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.model.call import Call
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers.registry import expand
from cacheaudit.simulate.run import run
from tests.unit.agent.planner.bodies import text
from tests.unit.agent.planner.play import START, outgoing

CHAT_URL = "https://api.openai.com/v1/chat/completions"
RESPONSES_URL = "https://api.openai.com/v1/responses"
POINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
KEYLESS = PlanPolicy(routing=False)


def tool(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": f"t{number}", "description": text(2_000, number), **more}


def response(**more: Any) -> dict[str, Any]:
    return {
        "model": "gpt-6.1-sol",
        "instructions": text(6_000, 2),
        "tools": [tool(1), tool(2)],
        "input": [{"role": "user", "content": "hello"}],
        **more,
    }


def keys(bodies: list[dict[str, Any]], url: str = RESPONSES_URL, **policy: Any) -> list[Any]:
    planner = BreakpointPlanner(PlanPolicy(**policy))
    found = []
    for number, body in enumerate(bodies):
        raw = copy.deepcopy(body)
        made = planner.plan(outgoing(body, number, START + number, url=url)) or body
        assert body == raw
        found.append(made.get("prompt_cache_key"))
    return found


@pytest.mark.parametrize(
    "change",
    [
        {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "t1"}]}},
        {"tool_choice": "none"},
        {"tools": [tool(2), tool(1)]},
        {"tools": [tool(1), tool(2), tool(3, defer_loading=True)]},
        {"input": "something else"},
        {"reasoning": {"effort": "high"}},
        {"text": {"verbosity": "low"}},
        {"parallel_tool_calls": False},
        {"previous_response_id": "resp_1", "input": "go on"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_may_keep_the_cache_keeps_the_key(change: dict[str, Any]) -> None:
    one, two, three = keys([response(), response(**change), response()])
    assert one == two == three
    assert one.startswith("front-")
    assert len(one) <= 64


@pytest.mark.parametrize(
    "change",
    [{"tools": [tool(1)]}, {"tools": [tool(1), tool(3)]}, {"instructions": text(6_000, 4)}],
    ids=["fewer tools", "other tools", "other instructions"],
)
def test_another_front_has_another_key(change: dict[str, Any]) -> None:
    one, two = keys([response(), response(**change)])
    assert one != two


def test_other_processes_have_the_same_key_and_no_rate_parts_it() -> None:
    many = keys([response(input=f"request {n}") for n in range(60)])
    assert len(set(many)) == 1
    assert keys([response()]) == many[:1]


@pytest.mark.parametrize(
    ("body", "url", "policy"),
    [
        (response(), RESPONSES_URL, KEYLESS),
        (response(instructions=None, tools=[]), RESPONSES_URL, PlanPolicy()),
        (response(model="openai/gpt-5.6"), "https://openrouter.ai/api/v1/responses", PlanPolicy()),
        (response(), "http://127.0.0.1:4000/v1/responses", PlanPolicy()),
    ],
    ids=["switched off", "nothing in front", "gateway", "local"],
)
def test_no_key_where_it_is_not_wanted(body: dict[str, Any], url: str, policy: PlanPolicy) -> None:
    made = BreakpointPlanner(policy).plan(outgoing(body, url=url)) or body
    assert "prompt_cache_key" not in made


def test_the_callers_key_stays() -> None:
    assert keys([response(prompt_cache_key="mine")]) == ["mine"]
    assert keys([response(prompt_cache_key="mine", previous_response_id="r")]) == ["mine"]


def test_azure_gets_a_key() -> None:
    url = "https://mine.openai.azure.com/openai/v1/responses"
    assert keys([response()], url) == keys([response()])


# ── with the simulator ───────────────────────────────────────────────────────────────────────────

MODELS = st.sampled_from(["gpt-5.6-sol", "gpt-6.1-sol"])


@st.composite
def parts(draw: st.DrawFn, seed: int) -> Any:
    """Instructions as a text, or in parts that may carry breakpoints of the caller's."""
    whole = text(draw(st.sampled_from([300, 5_000])), seed)
    if draw(st.booleans()):
        return whole
    clock = {"type": "text", "text": f"It is {draw(st.integers(10, 12))} o'clock."}
    first = {"type": "text", "text": whole}
    if draw(st.booleans()):
        first |= POINT
    return [first, clock] if draw(st.booleans()) else [clock, first]


@st.composite
def chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Requests of several conversations, mixed, with all that a key could part."""
    fronts = [draw(parts(seed)) for seed in range(draw(st.integers(1, 3)))]
    listed = [{"type": "function", "function": {"name": "f", "description": text(4_000, 7)}}]
    said: list[list[dict[str, Any]]] = [[] for _ in range(3)]
    made = []
    for number in range(draw(st.integers(2, 9))):
        line = draw(st.integers(0, 2))
        said[line] = [*said[line], {"role": "user", "content": text(900, number)}]
        leading = [{"role": "developer", "content": draw(st.sampled_from(fronts))}]
        leading += [{"role": "system", "content": text(5_000, 9)}] * draw(st.integers(0, 1))
        body: dict[str, Any] = {
            "model": draw(MODELS),
            "messages": [*leading * draw(st.sampled_from([0, 1, 1, 1])), *said[line]],
        }
        if draw(st.booleans()):
            body["tools"] = listed
        for name, values in (
            ("reasoning_effort", ["low", "high"]),
            ("verbosity", ["low", "medium"]),
            ("prompt_cache_key", ["mine"]),
            ("prompt_cache_options", [{"mode": "explicit"}, {"mode": "implicit"}]),
            ("response_format", [{"type": "json_object"}]),
        ):
            if draw(st.sampled_from([False, False, True])):
                body[name] = draw(st.sampled_from(values))
        made.append(copy.deepcopy(body))
    return made


def cost(bodies: list[Mapping[str, Any]], gaps: list[float]) -> Decimal:
    at, calls = START, []
    for number, (body, gap) in enumerate(zip(bodies, gaps, strict=True)):
        at += gap
        calls.append(
            Call(
                id=f"c{number}",
                session="s",
                provider="openai",
                surface="openai",
                model=str(body["model"]),
                started_at=at,
                ended_at=at + 2,
                prompt=expand(body, provider="openai"),
            )
        )
    amount = run(calls, PriceBook()).totals.input_equivalents
    assert amount is not None
    return amount


@settings(max_examples=60, deadline=None)
@given(chats(), st.data())
def test_with_the_key_nothing_is_ever_dearer(
    bodies: list[dict[str, Any]], data: st.DataObject
) -> None:
    gaps = [data.draw(st.sampled_from([1.0, 60.0, 1_900.0])) for _ in bodies]
    sent: list[list[Mapping[str, Any]]] = []
    for policy in (KEYLESS, PlanPolicy()):
        planner = BreakpointPlanner(policy)
        sent.append(
            [planner.plan(outgoing(b, n, START, url=CHAT_URL)) or b for n, b in enumerate(bodies)]
        )
    without, with_key = (cost(made, gaps) for made in sent)
    assert with_key == without


@settings(max_examples=40, deadline=None)
@given(chats())
def test_siblings_of_a_family_share_one_key(bodies: list[dict[str, Any]]) -> None:
    for body in bodies:
        body.pop("prompt_cache_key", None)
    planned = layout(bodies, provider="openai", surface="openai", at=START, least=1)
    planner = BreakpointPlanner()
    made = [
        (planner.plan(outgoing(dict(b), n, START, url=CHAT_URL, session=f"s{n}")) or b)
        for n, b in enumerate(planned.bodies)
    ]
    for group in planned.groups:
        if group.path.startswith("tools"):
            continue  # no breakpoint can stand there: nothing is ever read up to it
        members = (group.leader, *group.members)
        assert len({made[index].get("prompt_cache_key") for index in members}) == 1

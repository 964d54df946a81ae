"""Providers that keep prompts by themselves: breakpoints, keys, questions, or nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from cacheaudit import CacheAudit
from cacheaudit.agent.planner.implicit import Routes
from cacheaudit.agent.planner.keys import key_of
from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.jobs.lint import lint_body
from cacheaudit.model.call import Call
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers.registry import expand
from cacheaudit.simulate.run import run
from tests.unit.agent.planner.bodies import text
from tests.unit.agent.planner.play import START, outgoing
from tests.unit.agent.servers import Reply, Script, transport

CHAT_URL = "https://api.openai.com/v1/chat/completions"
RESPONSES_URL = "https://api.openai.com/v1/responses"
EXPLICIT = {"mode": "explicit"}


def chat(model: str = "gpt-5.6-sol", turns: int = 0, who: str = "a") -> dict[str, Any]:
    said: list[dict[str, Any]] = [
        {"role": "developer", "content": text(9_000, 3)},
        {"role": "user", "content": f"{who}: " + text(600, 1)},
    ]
    for turn in range(turns):
        said.append({"role": "assistant", "content": text(200, turn)})
        said.append({"role": "user", "content": text(500, turn + 1)})
    return {"model": model, "messages": said}


def responses(turns: int = 0) -> dict[str, Any]:
    return {
        "model": "gpt-6.1-sol",
        "instructions": "Be brief.",
        "input": [
            {
                "role": "developer",
                "content": [
                    {"type": "input_text", "text": "first"},
                    {"type": "input_text", "text": text(9_000, 3)},
                ],
            },
            {"role": "user", "content": "hello"},
        ],
    }


def plan(planner: BreakpointPlanner, body: dict[str, Any], url: str = CHAT_URL, **at: Any) -> Any:
    raw = json.dumps(body)
    made = planner.plan(outgoing(body, url=url, **at))
    assert json.dumps(body) == raw
    return made


def test_instructions_get_a_breakpoint_of_their_own() -> None:
    body = chat()
    made = plan(BreakpointPlanner(), body)
    assert made["messages"][0]["content"] == [
        {
            "type": "text",
            "text": body["messages"][0]["content"],
            "prompt_cache_breakpoint": EXPLICIT,
        }
    ]
    assert made["messages"][1:] == body["messages"][1:]
    assert made["prompt_cache_key"] == key_of(body)
    assert [p.rule for p in lint_body(made)] == [p.rule for p in lint_body(body)]


def test_so_do_those_of_a_response() -> None:
    made = plan(BreakpointPlanner(), responses(), RESPONSES_URL)
    content = made["input"][0]["content"]
    assert "prompt_cache_breakpoint" not in content[0]
    assert content[1]["prompt_cache_breakpoint"] == EXPLICIT
    assert expand(made, provider="openai").marked == (2,)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_cache_options": {"mode": "explicit"}},
        {"messages": [{"role": "user", "content": text(9_000)}]},
        {"messages": [{"role": "system", "content": "short"}, {"role": "user", "content": "x"}]},
        {"previous_response_id": "resp_1"},
    ],
    ids=["explicit mode", "no instructions", "short", "continued"],
)
def test_nothing_else_is_touched(change: dict[str, Any]) -> None:
    planner = BreakpointPlanner(PlanPolicy(routing=False))
    assert plan(planner, {**chat(), **change}) is None
    assert any("1 left as sent" in line for line in planner.report("s"))


def test_a_planned_request_is_planned_no_more() -> None:
    planner = BreakpointPlanner()
    for body, url in ((chat(), CHAT_URL), (responses(), RESPONSES_URL)):
        made = plan(planner, body, url)
        assert plan(planner, dict(made), url) is None


def cost(bodies: list[Mapping[str, Any]]) -> tuple[int, Any]:
    calls = [
        Call(
            id=f"c{n}",
            session="s",
            provider="openai",
            surface="openai",
            model=str(body["model"]),
            started_at=START + 60 * n,
            ended_at=START + 60 * n + 5,
            prompt=expand(body, provider="openai"),
        )
        for n, body in enumerate(bodies)
    ]
    totals = run(calls, PriceBook()).totals
    return totals.cache_read, totals.input_equivalents


def test_conversations_that_share_instructions_read_them() -> None:
    planner = BreakpointPlanner()
    bodies = [chat(turns=t, who=who) for who in "abc" for t in range(3)]
    sent = [planner.plan(outgoing(b, n, url=CHAT_URL)) or b for n, b in enumerate(bodies)]
    read_before, cost_before = cost(bodies)
    read_after, cost_after = cost(sent)
    front = round(9_000 / 3.6)
    assert read_after >= read_before + 2 * front
    assert cost_after < cost_before


def test_a_single_conversation_costs_the_same() -> None:
    planner = BreakpointPlanner()
    bodies = [chat(turns=t) for t in range(6)]
    sent = [planner.plan(outgoing(b, n, url=CHAT_URL)) or b for n, b in enumerate(bodies)]
    assert cost(sent) == cost(bodies)


# ── earlier models: a key for the route ──────────────────────────────────────────────────────────


def test_earlier_models_get_a_routing_key() -> None:
    planner = BreakpointPlanner()
    one = plan(planner, chat("gpt-5.1", who="a"), session="a")
    two = plan(planner, chat("gpt-5.1", turns=2, who="b"), session="b")
    other = chat("gpt-5.1")
    other["messages"][0]["content"] = text(9_000, 4)
    three = plan(planner, other, session="c")
    assert one["prompt_cache_key"] == two["prompt_cache_key"] != three["prompt_cache_key"]
    assert {k: v for k, v in one.items() if k != "prompt_cache_key"} == chat("gpt-5.1", who="a")
    assert "no-cache-key" in {p.rule for p in lint_body(chat("gpt-5.1"))}
    assert "no-cache-key" not in {p.rule for p in lint_body(one)}


def test_a_busy_key_gets_a_sibling_and_sessions_keep_theirs() -> None:
    routes = Routes()
    for second in range(15):
        routes.used("k", START + second)
    assert routes.choose("k", START + 20) == "k-1"
    assert routes.choose("k", START + 61) == "k"
    planner = BreakpointPlanner()
    keys = [
        plan(planner, chat("gpt-5.1"), session=name, at=START + n)["prompt_cache_key"]
        for n, name in enumerate(["a"] * 16 + ["b", "a"])
    ]
    assert len(set(keys[:16])) == 1
    assert keys[16] == keys[0] + "-1"
    assert keys[17] == keys[0]


@pytest.mark.parametrize(
    ("policy", "change"),
    [
        (PlanPolicy(routing=False), {}),
        (PlanPolicy(), {"prompt_cache_key": "mine"}),
        (PlanPolicy(), {"messages": [{"role": "user", "content": "short"}]}),
    ],
    ids=["switched off", "own key", "short"],
)
def test_keys_are_not_forced(policy: PlanPolicy, change: dict[str, Any]) -> None:
    assert plan(BreakpointPlanner(policy), {**chat("gpt-5.1"), **change}) is None


@pytest.mark.parametrize("model", ["deepseek-chat", "gemini-3-pro", "kimi-k3", "glm-5.2"])
def test_others_have_nothing_to_mark(model: str) -> None:
    planner = BreakpointPlanner()
    url = "https://api.example.com/v1/chat/completions"
    assert plan(planner, chat(model), url) is None
    assert any("1 left as sent" in line for line in planner.report("s"))


def test_tools_keep_their_order_where_that_is_allowed() -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("b", "d")
    ]
    planner = BreakpointPlanner(PlanPolicy(stable_tools=True))
    body = {**chat("deepseek-chat"), "tools": tools}
    assert plan(planner, body) is None
    added = {"type": "function", "function": {"name": "c", "parameters": {}}}
    later = {**body, "tools": [tools[1], added, tools[0]]}
    made = plan(planner, later)
    assert [t["function"]["name"] for t in made["tools"]] == ["b", "d", "c"]
    assert {k: v for k, v in made.items() if k != "tools"} == chat("deepseek-chat")


# ── the provider's own word ──────────────────────────────────────────────────────────────────────


def test_responses_are_asked_to_compare(tmp_path: Path) -> None:
    answer = {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-6.1-sol",
        "output": [],
        "usage": {"input_tokens": 2_600, "output_tokens": 3},
    }
    missed = {
        "type": "cache_miss",
        "reason": {"type": "tools_changed"},
        "cache_missed_tokens": 77,
    }
    script = Script(
        Reply(answer), Reply({**answer, "id": "resp_2", "prompt_cache_diagnostics": missed})
    )
    with CacheAudit(tmp_path / "x.db") as audit, audit.session("s") as s:
        made = httpx.Client(transport=audit.transport(transport(script, httpx)))
        for _ in range(2):
            made.post(RESPONSES_URL, json=responses())
            assert audit.flush()
        sent = [json.loads(body) for body in script.sent]
        assert "prompt_cache_options" not in sent[0]
        assert sent[1]["prompt_cache_options"] == {"comparison_response_id": "resp_1"}
        found = [call.diagnostics for call in s.calls()]
    assert found[1] is not None
    assert (found[1].type, found[1].missed_tokens) == ("tools_changed", 77)


def test_chat_completions_are_not() -> None:
    planner = BreakpointPlanner()
    made = plan(planner, chat())
    call = Call(id="resp_1", session="s", surface="openai", dedupe_key="recorder:call-0")
    planner.learn(replace(call, model="gpt-5.6-sol"))
    assert "prompt_cache_options" not in plan(planner, copy.deepcopy(chat()))
    assert "prompt_cache_options" not in made

"""Real loops of the Anthropic SDK, its tool runner too, against a server on this machine."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import anthropic
import pytest
from openai.types.chat import ChatCompletionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

from cacheaudit import CacheAudit, ToolDirectory
from cacheaudit.agent.tools.runner import attach, runnable, tool_runner
from cacheaudit.agent.tools.session import ToolSession
from cacheaudit.errors import ToolDriftError
from tests.unit.agent.servers import KEY, MODEL, Reply, Script, client, loopback, message
from tests.unit.agent.tools.sample import fetch_page, log_query, plain_tool, use, weather

PARAMS: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 500,
    "messages": [{"role": "user", "content": "What does run_42 say?"}],
}
SEARCH = use("search_tools", {"query": "read test logs"}, 1)
CALL = use("call_tool", {"name": "log_query", "arguments": {"run_id": "run_42"}}, 2)


def calls(*blocks: dict[str, Any]) -> Reply:
    return Reply(message(content=list(blocks), stop_reason="tool_use"))


def bodies(script: Script) -> list[dict[str, Any]]:
    return [json.loads(body) for body in script.sent]


def sent_results(body: dict[str, Any]) -> list[dict[str, Any]]:
    last = [m for m in body["messages"] if m["role"] == "user"][-1]
    return [block for block in last["content"] if block["type"] == "tool_result"]


def text_of(result: dict[str, Any]) -> str:
    content = result["content"]
    return content if isinstance(content, str) else content[0]["text"]


def loop(sdk: anthropic.Anthropic, session: ToolSession) -> anthropic.types.Message:
    """The loop of anyone's agent."""
    messages = list(PARAMS["messages"])
    while True:
        reply = sdk.messages.create(**{**PARAMS, "messages": messages}, tools=session.tools())
        answers = session.answer(reply)
        if not answers:
            return reply
        messages += [{"role": "assistant", "content": reply.content}, *answers]


def test_a_loop_of_ones_own() -> None:
    script = Script(calls(SEARCH), calls(CALL))
    with ToolDirectory([log_query, weather]) as directory, loopback(script) as url:
        session = directory.open()
        sdk = attach(session, anthropic.Anthropic(api_key=KEY, base_url=url))
        assert loop(sdk, session).stop_reason == "end_turn"
    sent = bodies(script)
    assert len(sent) == 3
    assert len({json.dumps(body["tools"]) for body in sent}) == 1
    assert json.loads(text_of(sent_results(sent[1])[0]))["tools"][0]["name"] == "log_query"
    assert text_of(sent_results(sent[2])[0]) == "run_42: 20 lines"
    assert sent[2]["messages"][: len(sent[1]["messages"])] == sent[1]["messages"]


@pytest.mark.parametrize("threads", [True, False])
def test_the_tool_runner(threads: bool) -> None:
    script = Script(calls(SEARCH), calls(CALL))
    with ToolDirectory([log_query, weather]) as directory, loopback(script) as url:
        sdk = anthropic.Anthropic(api_key=KEY, base_url=url)
        extra = {} if threads else {"thread": False}
        last = tool_runner(directory.open(), sdk, **PARAMS, **extra).until_done()
    assert last.stop_reason == "end_turn"
    sent = bodies(script)
    assert len(sent) == 3
    assert len({json.dumps(body["tools"]) for body in sent if "tools" in body}) == 1
    assert text_of(sent_results(sent[2])[0]) == "run_42: 20 lines"


@pytest.mark.parametrize("threads", [True, False])
def test_the_tool_runner_refuses_search_and_call_in_one_reply(threads: bool) -> None:
    script = Script(calls(SEARCH, CALL), calls(CALL))
    with ToolDirectory([log_query]) as directory, loopback(script) as url:
        sdk = anthropic.Anthropic(api_key=KEY, base_url=url)
        extra = {} if threads else {"thread": False}
        tool_runner(directory.open(), sdk, **PARAMS, **extra).until_done()
    found, refused = sent_results(bodies(script)[1])
    assert not found.get("is_error")
    assert refused["is_error"]
    assert json.loads(text_of(refused))["error"] == "schema_not_shown"
    assert text_of(sent_results(bodies(script)[2])[0]) == "run_42: 20 lines"


def test_the_asynchronous_tool_runner() -> None:
    fetch = use("call_tool", {"name": "fetch_page", "arguments": {"url": "u"}}, 2)
    script = Script(calls(use("search_tools", {"query": "page"}), fetch), calls(fetch))

    async def main(url: str) -> Any:
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url) as sdk:
            return await tool_runner(directory.open(), sdk, **PARAMS).until_done()

    with ToolDirectory([fetch_page]) as directory, loopback(script) as url:
        assert asyncio.run(main(url)).stop_reason == "end_turn"
    assert sent_results(bodies(script)[1])[1]["is_error"]
    assert text_of(sent_results(bodies(script)[2])[0]) == "page at u"


def test_the_tool_runner_brings_late_tools_by_value() -> None:
    """The declarations stay; the runner sends what a search has loaded in a system message."""
    script = Script(
        calls(use("search_tools", {"query": "weather"}, 1)),
        calls(use("weather", {"city": "Ulm"}, 2)),
    )
    with ToolDirectory([log_query], exposure="deferred") as directory, loopback(script) as url:
        session = directory.open(model=MODEL)
        tool = directory.add(weather)
        sdk = anthropic.Anthropic(api_key=KEY, base_url=url)
        tool_runner(session, sdk, **PARAMS, thread=False).until_done()
    sent = bodies(script)
    assert len({json.dumps(body["tools"]) for body in sent}) == 1
    betas = {head["anthropic-beta"] for head in script.heads}
    assert len(betas) == 1, "the set of betas is part of what is cached"
    assert set(session.betas) <= set(betas.pop().split(","))
    system = [m for m in sent[1]["messages"] if m["role"] == "system"]
    assert [block["tool"]["definition"] for m in system for block in m["content"]] == [
        tool.definition()
    ]
    assert text_of(sent_results(sent[2])[0]) == "sunny in Ulm"


def test_the_tool_runner_loads_known_tools_by_reference() -> None:
    script = Script(
        calls(use("search_tools", {"query": "logs"}, 1), use("log_query", {"run_id": "r"}, 2)),
        calls(use("log_query", {"run_id": "r"}, 3)),
    )
    with ToolDirectory([log_query], exposure="deferred") as directory, loopback(script) as url:
        sdk = anthropic.Anthropic(api_key=KEY, base_url=url)
        tool_runner(directory.open(model=MODEL), sdk, **PARAMS, thread=False).until_done()
    sent = bodies(script)
    found, refused = sent_results(sent[1])
    assert found["content"][1] == {"type": "tool_reference", "tool_name": "log_query"}
    assert refused["is_error"]
    assert text_of(sent_results(sent[2])[0]) == "r: 20 lines"


def test_other_tools_are_refused_before_they_are_sent() -> None:
    script = Script()
    with ToolDirectory([log_query]) as directory:
        session = directory.open()
        sdk = attach(session, client(script))
        tools = session.tools()
        tools[0]["description"] += " Today is Monday."
        with pytest.raises(ToolDriftError, match="'search_tools': description changed"):
            sdk.messages.create(**PARAMS, tools=tools)
        assert script.sent == []
        sdk.messages.create(**PARAMS, tools=session.tools())
        sdk.messages.create(**PARAMS, tools=session.tools(), stream=True).close()
        assert len(script.sent) == 2


def test_runnables_fit_the_loop_that_they_are_for() -> None:
    session = ToolDirectory([log_query]).open()
    for asynchronous in (False, True):
        made = runnable(session, asynchronous=asynchronous)
        assert [tool.to_dict() for tool in made] == session.tools()
        assert [tool.name for tool in made] == ["search_tools", "call_tool"]


def test_a_thousand_tools_over_a_hundred_turns() -> None:
    """Tools appear, change, go and fail all the while; every request begins with the same bytes."""
    tools = [plain_tool(f"svc{n % 40}_op{n}", f"Performs operation {n}.") for n in range(1_000)]
    with ToolDirectory(tools) as directory:
        session = directory.open()

        def fail(_: dict[str, Any]) -> None:
            raise ConnectionError("gone")

        def turn(number: int) -> Reply:
            if number % 2 == 0:
                return calls(use("search_tools", {"query": f"operation {number}"}, number))
            name = tools[number - 1].name
            return calls(use("call_tool", {"name": name, "arguments": {}}, number))

        script = Script(*[turn(number) for number in range(100)])
        sdk = attach(session, client(script))
        messages = list(PARAMS["messages"])
        for number in range(100):
            reply = sdk.messages.create(**{**PARAMS, "messages": messages}, tools=session.tools())
            answers = session.answer(reply)
            messages += [{"role": "assistant", "content": reply.to_dict()["content"]}, *answers]
            directory.add(plain_tool(f"late_{number}", "Came late."))
            directory.remove(tools[-1 - number].name)
            name = tools[number].name
            definition = directory.get(name).definition()  # type: ignore[union-attr]
            if number % 3 == 0:
                directory.add(definition, fail, replace=True)
        sent = bodies(script)
    assert len(sent) == 100
    assert len({json.dumps(body["tools"]) for body in sent}) == 1
    for before, after in itertools.pairwise(sent):
        assert after["messages"][: len(before["messages"])] == before["messages"]
    outcomes = [sent_results(body)[0].get("is_error", False) for body in sent[2::2]]
    assert outcomes.count(False) > 20
    assert outcomes.count(True) > 10


def test_beside_the_recorder_and_its_planner(tmp_path: Path) -> None:
    """Markers that a planner places are no drift, whichever of the two stands in front."""
    for order in (0, 1):
        script = Script(calls(SEARCH), calls(CALL))
        with ToolDirectory([log_query]) as directory, CacheAudit(tmp_path / f"{order}.db") as audit:
            session = directory.open()
            sdk = client(script)
            sdk = audit.wrap(attach(session, sdk)) if order else attach(session, audit.wrap(sdk))
            with audit.session("task") as recorded:
                assert loop(sdk, session).stop_reason == "end_turn"
            assert len(recorded.calls()) == 3
        for body in bodies(script):
            session.check(body["tools"])


def test_loops_on_other_apis() -> None:
    with ToolDirectory([log_query]) as directory:
        session = directory.open()
        chat: Any = session.tools("openai_chat")
        TypeAdapter(list[ChatCompletionToolParam]).validate_python(chat)
        responses: Any = session.tools("openai_responses")
        TypeAdapter(list[FunctionToolParam]).validate_python(responses)
        names = ["search_tools", "call_tool"]
        assert [tool["function"]["name"] for tool in chat] == names
        assert [tool["name"] for tool in responses] == names
        assert chat[1]["function"]["parameters"] == session.tools()[1]["input_schema"]
        # There, arguments arrive as text.
        session.call("search_tools", '{"query": "logs"}')
        session.next_batch()
        inner = json.dumps({"name": "log_query", "arguments": {"run_id": "r"}})
        assert session.call("call_tool", inner).content == "r: 20 lines"
        assert session.call("call_tool", "{").error == "invalid_arguments"

"""Tools that the provider itself loads later, where model and surface can."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types.anthropic_beta_param import AnthropicBetaParam
from anthropic.types.beta import (
    BetaRequestToolAdditionBlockParam,
    BetaToolParam,
    BetaToolReferenceBlockParam,
)
from anthropic.types.beta import beta_tool_result_block_param as sdk_result
from pydantic import TypeAdapter

from cacheaudit import ToolDirectory
from cacheaudit.agent.tools.tool import PLACEHOLDER
from tests.unit.agent.tools.sample import log_query, plain_tool, reply, use, weather

MODEL = "claude-opus-5"


@pytest.mark.parametrize(
    ("model", "surface", "native"),
    [
        ("claude-opus-5", "claude_api", True),
        ("claude-opus-5-5", "claude_api", True),
        ("claude-opus-4-8", "claude_api", True),
        ("claude-opus-4-8-20260601", "claude_api", True),
        ("anthropic/claude-fable-5-2", "claude_api", True),
        ("claude-mythos-5", "claude_api", True),
        ("claude-opus-4-7", "claude_api", False),
        ("claude-opus-4-20250514", "claude_api", False),
        ("claude-sonnet-5", "claude_api", False),
        ("claude-haiku-5-5", "claude_api", False),
        ("gpt-5.6", "claude_api", False),
        (None, "claude_api", False),
        ("claude-opus-5", "bedrock", False),
        ("claude-opus-5", None, False),
    ],
)
def test_it_falls_back_where_it_is_not_documented(
    model: str | None, surface: str | None, native: bool
) -> None:
    directory = ToolDirectory([log_query], exposure="deferred")
    session = directory.open(model=model, surface=surface)
    assert session.exposure == ("deferred" if native else "search")
    assert (session.fallback is None) == native
    assert bool(session.betas) == native
    fallback = directory.open(exposure="search")
    assert (session.fingerprint == fallback.fingerprint) == (not native)


def test_the_placeholder_is_there_from_the_first_request() -> None:
    session = ToolDirectory(exposure="deferred").open(model=MODEL)
    tools = session.tools()
    assert [tool["name"] for tool in tools] == ["search_tools", PLACEHOLDER]
    assert tools[-1]["defer_loading"] is True
    assert not any(tool.get("defer_loading") for tool in tools[:1]), "one has to be active"
    assert all("cache_control" not in tool for tool in tools)


def test_shapes_are_those_of_the_sdk() -> None:
    with ToolDirectory([log_query], exposure="deferred") as directory:
        session = directory.open(model=MODEL)
        directory.add(weather)
        for tool in session.tools():
            assert set(tool) <= set(BetaToolParam.__annotations__)
        messages = session.answer(reply(use("search_tools", {"query": "logs weather city"})))
        content = messages[0]["content"][0]["content"]
        reference = next(block for block in content if block["type"] == "tool_reference")
        assert set(reference) <= set(BetaToolReferenceBlockParam.__annotations__)
        assert sdk_result.BetaToolReferenceBlockParam is BetaToolReferenceBlockParam
        addition = messages[1]["content"][0]
        assert set(addition) <= set(BetaRequestToolAdditionBlockParam.__annotations__)
        betas = TypeAdapter(AnthropicBetaParam)
        for beta in session.betas:
            assert beta in str(AnthropicBetaParam), "a name that the SDK knows"
            betas.validate_python(beta)


def test_known_tools_are_loaded_by_reference() -> None:
    with ToolDirectory([log_query, weather], exposure="deferred") as directory:
        session = directory.open(model=MODEL)
        direct = use("log_query", {"run_id": "r"}, 2)
        early = session.answer(reply(use("search_tools", {"query": "test logs"}), direct))
        found, refused = early[0]["content"]
        assert found["content"][1:] == [{"type": "tool_reference", "tool_name": "log_query"}]
        assert len(early) == 1, "nothing travels by value"
        assert refused["is_error"]
        assert "schema_not_shown" in refused["content"]
        late = session.answer(reply(direct))
        assert late[0]["content"][0]["content"] == "r: 20 lines"
        assert session.call("weather", {"city": "Ulm"}).error == "schema_not_shown"


def test_late_tools_travel_by_value_once() -> None:
    with ToolDirectory([log_query], exposure="deferred") as directory:
        session = directory.open(model=MODEL)
        before = session.tools_bytes
        tool = directory.add(weather)
        search = reply(use("search_tools", {"query": "weather"}))
        results, brought = session.answer(search)
        assert results["role"] == "user"
        assert brought == {
            "role": "system",
            "content": [
                {
                    "type": "tool_addition",
                    "tool": {"type": "tool_definition", "definition": tool.definition()},
                }
            ],
        }
        assert session.answer(search)[1:] == [], "the model has it already"
        answer = session.answer(reply(use("weather", {"city": "Ulm"})))
        assert answer[0]["content"][0]["content"] == "sunny in Ulm"
        assert session.tools_bytes == before


def test_a_late_tool_that_changes_is_brought_again() -> None:
    with ToolDirectory(exposure="deferred") as directory:
        session = directory.open(model=MODEL)
        search = reply(use("search_tools", {"query": "thing"}))
        call = reply(use("thing", {}))
        directory.add(plain_tool("thing", "one"))
        assert len(session.answer(search)) == 2
        directory.add(plain_tool("thing", "two", x={"type": "string"}), replace=True)
        refused = session.answer(call)[0]["content"][0]
        assert "schema_changed" in refused["content"]
        again = session.answer(search)
        assert again[1]["content"][0]["tool"]["definition"]["description"] == "two"
        assert not session.answer(call)[0]["content"][0].get("is_error")


def test_a_history_tells_what_was_loaded() -> None:
    with ToolDirectory([log_query], exposure="deferred") as directory:
        session = directory.open(model=MODEL)
        directory.add(weather)
        history: list[dict[str, Any]] = session.answer(
            reply(use("search_tools", {"query": "logs weather"}))
        )
        # A restart later: the tool that came late is registered from the start.
        other = ToolDirectory([log_query], exposure="deferred")
        resumed = other.open(model=MODEL)
        other.add(weather)
        resumed.resume(history)
        assert resumed.call("weather", {"city": "Ulm"}).content == "sunny in Ulm"
        assert resumed.call("log_query", {"run_id": "r"}).content == "r: 20 lines"
        other.close()

"""What a session declares never changes; what it answers can be acted on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit import OutputFilter, OutputStore, ToolDirectory
from cacheaudit.agent.tools.exposure import EXPOSURES, Exposure
from cacheaudit.agent.tools.tool import Tool
from cacheaudit.errors import ConfigError, ToolDriftError, ToolError
from tests.unit.agent.tools.sample import (
    fetch_page,
    log_query,
    plain_tool,
    reply,
    use,
    weather,
)

MODEL = "claude-opus-5"


def results(messages: list[dict[str, Any]]) -> list[Any]:
    """Return the results of a message: JSON where it is some, and whether it is an error."""
    found = []
    for block in messages[0]["content"]:
        content = block["content"]
        body = json.loads(content) if isinstance(content, str) and content[0] == "{" else content
        found.append((body, block.get("is_error", False)))
    return found


def test_search_then_call_in_the_next_reply() -> None:
    directory = ToolDirectory([log_query, weather, fetch_page])
    session = directory.open()
    assert [tool["name"] for tool in session.tools()] == ["search_tools", "call_tool"]
    found = results(session.answer(reply(use("search_tools", {"query": "read test logs"}))))
    assert [tool["name"] for tool in found[0][0]["tools"]] == ["log_query"]
    assert found[0][0]["tools"][0]["input_schema"]["required"] == ["run_id"]
    call = use("call_tool", {"name": "log_query", "arguments": {"run_id": "run_42"}}, 2)
    messages = session.answer(reply({"type": "text", "text": "…"}, call))
    assert messages == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "run_42: 20 lines"}
            ],
        }
    ]
    directory.close()


def test_search_and_call_in_one_reply_is_refused() -> None:
    """The model cannot have read a schema that comes with the same batch of results."""
    directory = ToolDirectory([log_query])
    session = directory.open()
    call = use("call_tool", {"name": "log_query", "arguments": {"run_id": "r"}}, 2)
    both = reply(use("search_tools", {"query": "logs"}), call)
    _, (body, is_error) = results(session.answer(both))
    assert is_error
    assert body["error"] == "schema_not_shown"
    assert body["schema"]["name"] == "log_query"
    assert results(session.answer(reply(call))) == [("r: 20 lines", False)]
    directory.close()


def test_a_guess_is_refused_with_the_schema_and_works_then() -> None:
    directory = ToolDirectory([log_query])
    session = directory.open()
    call = use("call_tool", {"name": "log_query", "arguments": {"run_id": "r"}})
    assert results(session.answer(reply(call, call)))[1][0]["error"] == "schema_not_shown"
    assert results(session.answer(reply(call))) == [("r: 20 lines", False)]
    directory.close()


def test_a_schema_that_has_changed_since_is_shown_anew() -> None:
    directory = ToolDirectory([log_query])
    session = directory.open()
    session.answer(reply(use("search_tools", {"query": "logs"})))
    definition = {
        "name": "log_query",
        "description": "Logs.",
        "input_schema": {"type": "object", "properties": {"run": {"type": "string"}}},
    }
    directory.add(definition, lambda given: f"new {given['run']}", replace=True)
    old = use("call_tool", {"name": "log_query", "arguments": {"run_id": "r"}})
    body, _ = results(session.answer(reply(old)))[0]
    assert body["error"] == "schema_changed"
    assert body["schema"]["input_schema"] == definition["input_schema"]
    new = use("call_tool", {"name": "log_query", "arguments": {"run": "r"}})
    assert results(session.answer(reply(new))) == [("new r", False)]
    directory.close()


def test_a_history_tells_what_was_read() -> None:
    directory = ToolDirectory([log_query, weather])
    first = directory.open()
    answers = first.answer(reply(use("search_tools", {"query": "logs"})))
    second = directory.open()
    second.resume(answers)
    call = {"name": "log_query", "arguments": {"run_id": "r"}}
    assert second.call("call_tool", call).content == "r: 20 lines"
    other = second.call("call_tool", {"name": "weather", "arguments": {"city": "Ulm"}})
    assert other.error == "schema_not_shown"
    second.resume([{"role": "user", "content": "a summary"}])
    assert second.call("call_tool", call).error == "schema_not_shown"
    directory.close()


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("search_tools", {}, "invalid_arguments"),
        ("search_tools", {"query": "  "}, "invalid_arguments"),
        ("search_tools", {"query": "x", "limit": 99}, "invalid_arguments"),
        ("search_tools", "x", "invalid_arguments"),
        ("call_tool", {}, "invalid_arguments"),
        ("call_tool", {"name": 3, "arguments": {}}, "invalid_arguments"),
        ("call_tool", {"name": "log_query", "run_id": "r"}, "invalid_arguments"),
        ("call_tool", {"name": "log_qurey", "arguments": {}}, "unknown_tool"),
        ("log_query", {"run_id": "r"}, "unknown_tool"),
        ("run_code", {"script": "1"}, "unknown_tool"),
        ("", {}, "unknown_tool"),
    ],
)
def test_wrong_calls_are_answered(name: str, arguments: Any, error: str) -> None:
    with ToolDirectory([log_query]) as directory:
        outcome = directory.open().call(name, arguments)
        assert (outcome.error, outcome.is_error) == (error, True)
        assert json.loads(str(outcome.content))["do"]


def test_a_name_that_is_nearly_right_is_told() -> None:
    with ToolDirectory([log_query, weather]) as directory:
        outcome = directory.open().call("call_tool", {"name": "log_qurey", "arguments": {}})
        assert json.loads(str(outcome.content))["did_you_mean"] == ["log_query"]


def test_arguments_may_be_left_out_where_none_are_needed() -> None:
    def ping() -> str:
        """Ping."""
        return "pong"

    with ToolDirectory([ping]) as directory:
        session = directory.open()
        session.call("search_tools", {"query": "ping"})
        session.next_batch()
        assert session.call("call_tool", {"name": "ping"}).content == "pong"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "change", "search", "call", "fail"]),
        st.integers(0, 5),
    ),
    max_size=25,
)


@pytest.mark.parametrize("exposure", [e for e in EXPOSURES if e != "codemode"])
@given(steps=STEPS)
def test_declarations_never_change(exposure: Exposure, steps: list[tuple[str, int]]) -> None:
    directory = ToolDirectory([plain_tool(f"tool_{n}", f"does {n}") for n in range(3)])
    directory.add(weather, pinned=True)
    session = directory.open(model=MODEL, exposure=exposure)
    before, declared = session.tools_bytes, session.tools()
    for step, number in steps:
        name = f"tool_{number}"
        if step == "add" and name not in directory:
            directory.add(plain_tool(name, f"does {number}"))
        elif step == "remove":
            directory.remove(name)
        elif step == "change":
            directory.add(plain_tool(name, f"new {number}", x={"type": "string"}), replace=True)
        elif step == "search":
            session.call("search_tools", {"query": f"does {number}"})
            session.next_batch()
        else:
            session.call(name if step == "fail" else "call_tool", {"name": name, "arguments": {}})
        assert session.tools_bytes == before
        assert session.tools() == declared
        session.check(session.tools())
    for item in session.drift():
        now = directory.get(item.tool)
        assert (
            now is None or now.digest() != plain_tool(item.tool, f"does {item.tool[-1]}").digest()
        )
    again = directory.open(model=MODEL, exposure=exposure)
    assert again.fingerprint == directory.open(model=MODEL, exposure=exposure).fingerprint
    directory.close()


def test_declarations_do_not_depend_on_the_order_of_registration() -> None:
    tools = [log_query, weather, fetch_page]
    prints = {
        ToolDirectory(order, exposure="direct").open().fingerprint
        for order in (tools, tools[::-1], [*tools[1:], tools[0]])
    }
    assert len(prints) == 1


def test_a_list_that_was_handed_out_is_the_callers() -> None:
    session = ToolDirectory([log_query], exposure="direct").open()
    session.tools()[0]["description"] = "changed"
    session.check(session.tools())


def test_drift_is_refused_with_tool_and_field() -> None:
    session = ToolDirectory([log_query, weather], exposure="direct").open()
    tools = session.tools()
    tools[0]["input_schema"]["properties"]["run_id"]["type"] = "integer"
    with pytest.raises(
        ToolDriftError, match=r"'log_query': input_schema\.properties\.run_id\.type"
    ):
        session.check(tools)
    with pytest.raises(ToolDriftError, match="'weather': tools removed"):
        session.check(session.tools()[:1])
    marked = session.tools()
    marked[-1]["cache_control"] = {"type": "ephemeral"}
    session.check(marked)


def test_direct_tools_that_change_or_go_are_answered() -> None:
    with ToolDirectory([log_query, weather], exposure="direct") as directory:
        session = directory.open()
        assert session.call("log_query", {"run_id": "r"}).content == "r: 20 lines"
        directory.remove("weather")
        gone = session.call("weather", {"city": "Ulm"})
        assert gone.error == "unavailable"
        directory.add({"name": "log_query", "input_schema": {"type": "object"}}, len, replace=True)
        changed = session.call("log_query", {"run_id": "r"})
        assert changed.error == "schema_changed"
        assert "description" in json.loads(str(changed.content))["fields"]
        assert [item.tool for item in session.drift()][-1] == "weather"


def test_pinned_tools_are_declared_everywhere() -> None:
    with ToolDirectory([log_query]) as directory:
        directory.add(weather, pinned=True)
        session = directory.open()
        names = [tool["name"] for tool in session.tools()]
        assert names == ["weather", "search_tools", "call_tool"]
        assert session.call("weather", {"city": "Ulm"}).content == "sunny in Ulm"
        relayed = {"name": "weather", "arguments": {"city": "Ulm"}}
        assert session.call("call_tool", relayed).content == "sunny in Ulm"


def test_stored_outputs_can_be_read(tmp_path: Path) -> None:
    def shout() -> str:
        """Shout."""
        return "\n".join(f"line {n}" for n in range(1, 100_001))

    with ToolDirectory(
        [shout], exposure="direct", outputs=OutputFilter(store=OutputStore(tmp_path))
    ) as directory:
        session = directory.open()
        names = [tool["name"] for tool in session.tools()]
        assert names == ["shout", "read_output", "search_output"]
        outcome = session.call("shout")
        assert outcome.tokens_before > 300_000
        assert outcome.tokens_after <= 4_000
        handle = outcome.handle
        row = session.call("read_output", {"handle": handle, "offset": 50_000, "limit": 1})
        assert str(row.content).endswith("\nline 50000")
        match = session.call("search_output", {"handle": handle, "pattern": "^line 77777$"})
        assert str(match.content).endswith("\n77777: line 77777")
        for wrong in ({"handle": "../x"}, {"handle": handle, "offset": 0}, {"offset": 1}):
            assert session.call("read_output", wrong).is_error


def test_permission_is_asked_for_tools_only(tmp_path: Path) -> None:
    asked: list[str] = []

    def permit(tool: Tool, arguments: Any) -> bool:
        asked.append(tool.name)
        return False

    store = OutputStore(tmp_path)
    handle = store.put("kept").handle
    with ToolDirectory([log_query], permit=permit, outputs=OutputFilter(store=store)) as directory:
        session = directory.open()
        assert "kept" in str(session.call("read_output", {"handle": handle}).content)
        assert not session.call("search_tools", {"query": "logs"}).is_error
        session.next_batch()
        call = {"name": "log_query", "arguments": {"run_id": "r"}}
        assert session.call("call_tool", call).error == "not_permitted"
        assert asked == ["log_query"]


def test_long_results_of_a_search_are_cut_by_whole_tools() -> None:
    tools = [plain_tool(f"log_{n}", "log " + "word " * 1_000) for n in range(9)]
    with ToolDirectory(tools) as directory:
        session = directory.open()
        body = json.loads(str(session.call("search_tools", {"query": "log", "limit": 9}).content))
        shown = [tool["name"] for tool in body["tools"]]
        assert shown + body["also_found"] == [f"log_{n}" for n in range(9)]
        assert 1 <= len(shown) < 9
        session.next_batch()
        hidden = {"name": body["also_found"][0], "arguments": {}}
        assert session.call("call_tool", hidden).error == "schema_not_shown"


ODD_ARGUMENTS: list[Any] = [
    "[" * 100_000,
    "\ud800",
    float("nan"),
    b"x",
    {"run_id": "\ud800"},
    {"run_id": "r" * 100_000},
    {"run_id": "r", "lines": 10**40},
    {"name": "\udfff"},
    {"\ud800": 1},
    {"query": "\ud800"},
]
ODD_NAMES = ["log_query", "search_tools", "call_tool", "\ud800", "x" * 10_000]


@pytest.mark.parametrize("exposure", ["direct", "search"])
def test_whatever_a_model_writes_is_answered_in_what_can_be_sent(exposure: Exposure) -> None:
    with ToolDirectory([log_query]) as directory:
        session = directory.open(exposure=exposure)
        for name, arguments in itertools.product(ODD_NAMES, ODD_ARGUMENTS):
            outcome = session.call(name, arguments)
            assert json.dumps(outcome.content, ensure_ascii=False).encode()
            assert len(str(outcome.content)) < 50_000


def test_names_that_are_taken() -> None:
    directory = ToolDirectory([log_query, log_query])
    assert len(directory) == 1
    with pytest.raises(ToolError, match="one of the directory's own"):
        directory.add(plain_tool("search_tools"))
    with pytest.raises(ToolError, match="Another tool is called 'log_query'"):
        directory.add(plain_tool("log_query"))
    with pytest.raises(ConfigError, match="no exposure 'all'"):
        ToolDirectory(exposure="all")  # type: ignore[arg-type]


def test_a_decorator_registers() -> None:
    directory = ToolDirectory()
    assert directory.tool(weather) is weather
    assert "weather" in directory


def test_a_reply_without_calls_has_no_answer() -> None:
    assert ToolDirectory([log_query]).open().answer(reply({"type": "text", "text": "done"})) == []

"""A call is permitted, valid and in time, or the model is told what to do instead."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit._lazy import need
from cacheaudit.agent.outputs.filter import OutputBudget, OutputFilter
from cacheaudit.agent.outputs.store import OutputStore
from cacheaudit.agent.tools import validate
from cacheaudit.agent.tools.call_tool import Caller, Permit, as_output
from cacheaudit.agent.tools.schemas import make_tool
from cacheaudit.agent.tools.tool import Outcome, Tool, ToolOutput
from cacheaudit.agent.tools.validate import Validator
from cacheaudit.errors import MissingExtraError, ToolError
from tests.unit.agent.tools.sample import fetch_page, log_query, plain_tool


def call(item: Any, arguments: Any = None, permit: Permit | None = None, **how: Any) -> Outcome:
    tool = make_tool(item, **how)
    return asyncio.run(Caller(permit=permit, timeout=5.0).call(tool, arguments))


def told(outcome: Outcome) -> dict[str, Any]:
    assert outcome.is_error
    body: dict[str, Any] = json.loads(str(outcome.content))
    assert body["error"] == outcome.error
    assert body["do"].endswith(".")
    return body


@pytest.mark.parametrize(
    "arguments", [{"run_id": "r1", "lines": 3}, '{"run_id": "r1", "lines": 3}']
)
def test_a_call_gives_the_output(arguments: Any) -> None:
    assert call(log_query, arguments).content == "r1: 3 lines"


def test_coroutines_are_awaited() -> None:
    assert call(fetch_page, {"url": "u"}).content == "page at u"


@pytest.mark.parametrize(
    ("arguments", "at", "problem"),
    [
        ({}, "/", "'run_id' is a required property"),
        ({"run_id": 3}, "/run_id", "3 is not of type 'string'"),
        ({"run_id": "r", "lines": "many"}, "/lines", "'many' is not of type 'integer'"),
        ({"run_id": "r", "line": 3}, "/", "'line' was unexpected"),
        ("no json", "/", "not an object"),
        ([1], "/", "not an object"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(arguments: Any, at: str, problem: str) -> None:
    body = told(call(log_query, arguments))
    assert body["error"] == "invalid_arguments"
    assert body["tool"] == "log_query"
    assert [item["at"] for item in body["problems"]] == [at]
    assert problem in body["problems"][0]["problem"]


def test_what_only_the_function_knows_is_told_the_same_way() -> None:
    def positive(n: pydantic.PositiveInt, day: str) -> str:
        """Take a number."""
        pydantic.TypeAdapter(pydantic.FutureDate).validate_python(day)
        return str(n)

    body = told(call(positive, {"n": 1, "day": "2001-01-01"}))
    assert body["error"] == "invalid_arguments"
    assert body["problems"] == [{"at": "/", "problem": "Date should be in the future"}]


SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": ["string", "null"], "minLength": 1},
        "b": {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 2},
        "c": {"enum": ["x", 1]},
    },
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"n": {"type": "integer", "minimum": 0}},
}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "a": st.one_of(st.none(), st.text(max_size=2), st.integers()),
            "b": st.lists(st.one_of(st.integers(-1, 3), st.text(max_size=1)), max_size=3),
            "c": st.sampled_from(["x", 1, "y", 1.0, True]),
            "d": st.none(),
        },
    )
)
def test_validity_is_that_of_the_library(arguments: dict[str, Any]) -> None:
    tool = Tool(name="t", description="", input_schema=SCHEMA, run=lambda given: given)
    valid = jsonschema.Draft202012Validator(SCHEMA).is_valid(arguments)
    assert (not Validator(tool).problems(arguments)) == valid
    assert (call(tool, arguments).error is None) == valid


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(ToolError, match="not valid at /properties/a/type"):
        Validator(plain_tool("t", a={"type": "strung"}))


def test_nothing_is_fetched_for_a_schema() -> None:
    with pytest.raises(ToolError, match="another document"):
        Validator(plain_tool("t", a={"$ref": "http://127.0.0.1:9/schema.json"}))


def test_other_peoples_patterns_are_not_run() -> None:
    """One of a server may take forever; its own patterns are the server's to check."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}
    tool = Tool(name="t", description="", input_schema=schema, run=str, trusted=False)
    started = time.perf_counter()
    assert Validator(tool).problems({"a": "a" * 64 + "!"}) == []
    assert time.perf_counter() - started < 30, "it came back at all"
    assert Validator(tool).problems({"a": 3}) != []
    own = Tool(name="t", description="", input_schema=schema, run=str)
    assert Validator(own).problems({"a": "b"}) != []


def test_deep_arguments_are_refused() -> None:
    schema = {"type": "object", "additionalProperties": {"$ref": "#"}}
    deep: dict[str, Any] = {}
    for _ in range(3_000):
        deep = {"a": deep}
    tool = Tool(name="t", description="", input_schema=schema, run=str)
    assert Validator(tool).problems(deep) == [
        {"at": "/", "problem": "nested too deeply to be checked"}
    ]


def test_without_the_library_tools_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str, extra: str) -> Any:
        return need(f"{module}_is_not_here", extra)

    monkeypatch.setattr(validate, "need", missing)
    with pytest.raises(MissingExtraError, match=r"pip install 'cacheaudit\[tools\]'"):
        Caller().prepare(make_tool(log_query))


async def later(tool: Tool, arguments: Any) -> bool | str:
    return "only on weekdays"


def broken(tool: Tool, arguments: Any) -> bool:
    raise OSError("no policy file")


@pytest.mark.parametrize(
    ("permit", "problem"),
    [
        (lambda tool, arguments: False, "not allowed here"),
        (lambda tool, arguments: "not run_42", "not run_42"),
        (later, "only on weekdays"),
        (broken, "the permission check failed"),
        (lambda tool, arguments: None, "not allowed here"),
        (lambda tool, arguments: 1, "not allowed here"),
    ],
)
def test_what_is_not_permitted_is_not_run(permit: Permit, problem: str) -> None:
    ran: list[str] = []

    def act(x: str = "") -> None:
        """Act."""
        ran.append(x)

    body = told(call(act, {}, permit))
    assert (body["error"], body["problem"]) == ("not_permitted", problem)
    assert ran == []


def test_a_permission_sees_the_tool_and_the_arguments() -> None:
    asked: list[Any] = []

    def permit(tool: Tool, arguments: Any) -> bool:
        asked.append((tool.name, arguments))
        return True

    assert call(log_query, {"run_id": "r"}, permit).content == "r: 20 lines"
    assert asked == [("log_query", {"run_id": "r"})]


def sleeper() -> None:
    """Sleep."""
    time.sleep(2)


async def async_sleeper() -> None:
    """Sleep."""
    await asyncio.sleep(20)


@pytest.mark.parametrize("function", [sleeper, async_sleeper])
def test_a_call_is_given_up(function: Callable[[], Any]) -> None:
    body = told(call(function, timeout=0.05))
    assert (body["error"], body["problem"]) == ("timed_out", "no result within 0.05 s")


@pytest.mark.parametrize("error", [TimeoutError("socket"), RuntimeError("no"), SystemExit(2)])
def test_what_a_tool_raises_is_told(error: BaseException) -> None:
    def fail() -> None:
        """Fail."""
        raise error

    body = told(call(fail))
    assert body["error"] == "failed"
    assert type(error).__name__ in body["problem"]


def test_long_errors_are_cut() -> None:
    def fail() -> None:
        """Fail."""
        raise ValueError("x" * 100_000)

    assert len(told(call(fail))["problem"]) < 2_100


class Point(pydantic.BaseModel):
    x: int


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        (None, "(no output)"),
        (b"\xff!", "\ufffd!"),
        ({"a": [1, None, "é"]}, '{"a": [1, null, "é"]}'),
        (Point(x=1), '{"x": 1}'),
        ([Point(x=1), (2, 3)], '[{"x": 1}, [2, 3]]'),
        ({"b", "a"}, '["a", "b"]'),
        (3.5, "3.5"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([PICTURE], [PICTURE]),
        (
            [{"type": "text", "text": "a"}, PICTURE],
            [{"type": "text", "text": "a"}, PICTURE],
        ),
        (ToolOutput(text="done", exit_status=2), "exit status: 2\ndone"),
    ],
)
def test_what_tools_return_becomes_content(value: Any, content: Any) -> None:
    tool = Tool(name="t", description="", input_schema={"type": "object"}, run=lambda given: value)
    assert call(tool).content == content


def test_a_tool_can_say_that_it_failed() -> None:
    output = ToolOutput(text="boom", is_error=True)
    tool = Tool(name="t", description="", input_schema={"type": "object"}, run=lambda given: output)
    outcome = call(tool)
    assert (outcome.is_error, outcome.error, outcome.content) == (True, None, "boom")
    assert as_output(output) is output


def test_outputs_are_cut_and_kept(tmp_path: Path) -> None:
    store = OutputStore(tmp_path)
    caller = Caller(OutputFilter(OutputBudget(max_tokens=300), store))
    text = "a line\n" * 3_000_000

    def shout() -> ToolOutput:
        """Shout."""
        return ToolOutput(text=text, exit_status=1)

    outcome = asyncio.run(caller.call(make_tool(shout), {}))
    assert outcome.tokens_before == -(-len(text) * 5 // 18)
    assert outcome.tokens_after <= 300
    assert str(outcome.content).startswith("exit status: 1\n[output of 21000000 bytes")
    assert outcome.handle is not None
    assert store.text(outcome.handle) == text

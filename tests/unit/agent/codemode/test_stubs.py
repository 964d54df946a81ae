"""Types of tools as Python that the checker can read."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.codemode.sandbox import Sandbox
from cacheaudit.agent.codemode.settings import CodeLimits
from cacheaudit.agent.codemode.stubs import checked, function_name, functions_of, stub
from cacheaudit.agent.tools.tool import Tool
from tests.unit.agent.tools.sample import plain_tool

TYPES = st.recursive(
    st.one_of(
        st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"]).map(
            lambda kind: {"type": kind}
        ),
        st.just({}),
        st.just({"$ref": "#/$defs/self"}),
        st.just({"$ref": "#/nowhere"}),
        st.just({"enum": ["a", 1]}),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda options: {"anyOf": options}),
        inner.map(lambda item: {"type": "array", "items": item}),
    ),
    max_leaves=5,
)
NAMES = st.one_of(
    st.from_regex(r"[a-z_]{1,6}", fullmatch=True),
    st.sampled_from(["class", "a-b", "x y", "é", "self", "None"]),
)


@given(
    name=st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True),
    properties=st.dictionaries(NAMES, TYPES, max_size=5),
    required=st.lists(NAMES, max_size=3),
)
def test_stubs_are_python(name: str, properties: dict[str, Any], required: list[str]) -> None:
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "$defs": {"self": {"anyOf": [{"$ref": "#/$defs/self"}, {"type": "string"}]}},
    }
    tool = Tool(name=name, description="", input_schema=schema, run=print)
    functions = functions_of([tool])
    (made,) = functions
    assert made.isidentifier()
    assert not keyword.iskeyword(made)
    (definition,) = ast.parse(stub(made, tool)).body
    assert isinstance(definition, ast.AsyncFunctionDef)
    names = [argument.arg for argument in definition.args.args]
    assert names == [] or set(names) == set(properties)
    ast.parse(checked(f"await {made}()", functions, stored=True))


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    made = Sandbox(CodeLimits())
    yield made
    made.close()


@settings(max_examples=60)
@given(
    name=st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True),
    properties=st.dictionaries(NAMES, TYPES, max_size=5),
    required=st.lists(NAMES, max_size=3),
)
def test_the_checker_takes_every_stub(
    box: Sandbox, name: str, properties: dict[str, Any], required: list[str]
) -> None:
    """One that it does not take would refuse every script that names the tool."""
    schema = {"type": "object", "properties": properties, "required": required}
    functions = functions_of([Tool(name=name, description="", input_schema=schema, run=print)])
    (made,) = functions
    code = f"found = {made}\n1"
    stubs = checked(code, functions, stored=True)
    assert box.run(code, {made: lambda args, kwargs: None}, stubs, print).value == 1


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string", "enum": ["a"]}, "str"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "int | None"),
        ({"type": "array", "items": {"type": "string"}}, "list[Any]"),
        ({"$ref": "#/$defs/p"}, "dict[str, Any]"),
        ({"const": 3}, "Any"),
        ({"anyOf": [{"type": "integer"}, {}]}, "Any"),
    ],
)
def test_types_are_wide(schema: dict[str, Any], kind: str) -> None:
    tool = Tool(
        name="t",
        description="",
        input_schema={
            "type": "object",
            "properties": {"a": schema, "b": {"type": "number"}},
            "required": ["b"],
            "$defs": {"p": {"type": "object"}},
        },
        run=print,
    )
    assert stub("t", tool) == f"async def t(b: float, a: {kind} = ...) -> Any: ..."


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("read", "read"),
        ("git-log", "git_log"),
        ("2fa", "tool_2fa"),
        ("_private", "tool_private"),
        ("class", "class_"),
        ("print", "print_"),
        ("text", "text_"),
        ("load", "load_"),
    ],
)
def test_names_shadow_nothing(tool: str, name: str) -> None:
    assert function_name(tool) == name


def test_two_tools_never_share_a_function() -> None:
    made = functions_of([plain_tool("a-b"), plain_tool("a_b")])
    assert len(made) == 2
    assert made["a_b"].name == "a-b"


def test_only_what_a_script_names_is_declared() -> None:
    functions = functions_of([plain_tool(f"t{n}") for n in range(1_000)])
    text = checked("await t7()", functions, stored=False)
    assert text.count("async def") == 1
    assert "save_output" not in text

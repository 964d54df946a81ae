"""Tools made of functions, models and definitions say what their authors wrote."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any, Literal

import anthropic
import pydantic
import pytest
from anthropic.lib.tools import beta_tool
from jsonschema import Draft202012Validator

from cacheaudit.agent.tools.docstrings import describe
from cacheaudit.agent.tools.schemas import in_fixed_order, make_tool
from cacheaudit.agent.tools.tool import Tool, digest_of
from cacheaudit.errors import ToolError
from tests.unit.agent.tools.sample import fetch_page, log_query, weather


class Address(pydantic.BaseModel):
    street: str
    number: int = 1


def everything(
    name: str,
    address: Address,
    when: dt.date | None = None,
    tags: list[str] = [],  # noqa: B006
    level: Literal["low", "high"] = "low",
    *,
    share: float = 0.5,
) -> str:
    """Do it all.

    In more than one line:
    with a colon in it.

    Args:
        name (str): A name: any one.
        address: Where it is,
            told over two lines.
        tags: Some words.

    Returns:
        Nothing of use.

    Raises:
        ValueError: Never.
    """
    return f"{name} {address.street} {when} {tags} {level} {share}"


def in_one_line(schema: Any) -> Any:
    """Write descriptions in one line; the SDK leaves the line breaks of the source in them."""
    if isinstance(schema, dict):
        return {
            key: " ".join(value.split()) if key == "description" else in_one_line(value)
            for key, value in schema.items()
        }
    return schema


@pytest.mark.parametrize("function", [log_query, weather, fetch_page, everything])
def test_schemas_are_those_of_the_sdk(function: Callable[..., Any]) -> None:
    """The Anthropic SDK makes the same of the same function."""
    theirs = (anthropic.beta_async_tool if function is fetch_page else beta_tool)(function)
    ours = make_tool(function)
    assert ours.name == theirs.name
    assert ours.input_schema == in_one_line(theirs.to_dict()["input_schema"])
    assert ours.description.split("\n")[0] == theirs.description.split("\n")[0]
    Draft202012Validator.check_schema(ours.input_schema)


def test_the_description_leaves_out_what_is_returned() -> None:
    text, arguments = describe(everything)
    assert text == "Do it all.\n\nIn more than one line:\nwith a colon in it."
    assert arguments == {
        "name": "A name: any one.",
        "address": "Where it is, told over two lines.",
        "tags": "Some words.",
    }


def test_restructured_text_is_read_too() -> None:
    def f(a: int, b: str) -> None:
        """Do.

        :param a: The first
            of two.
        :param str b: The second.
        :returns: Nothing.
        """

    assert describe(f) == ("Do.", {"a": "The first of two.", "b": "The second."})


def test_a_function_gets_what_its_types_say() -> None:
    given = {"name": "n", "address": {"street": "s"}, "when": "2026-11-30", "share": 1}
    made = make_tool(everything).run(given)
    assert made == "n s 2026-11-30 [] low 1.0"


def test_a_model_is_made_before_it_is_run() -> None:
    tool = make_tool(Address, lambda address: f"{address.number} {address.street}", name="go")
    assert tool.run({"street": "High Street"}) == "1 High Street"
    assert tool.input_schema["required"] == ["street"]


def test_a_definition_gets_its_arguments_as_one() -> None:
    definition = {"name": "echo", "input_schema": {"type": "object"}}
    assert make_tool(definition, lambda given: given).run({"a": 1}) == {"a": 1}


def any_number(*numbers: int) -> None:
    """Take any number."""


def any_name(**names: int) -> None:
    """Take any name."""


def no_names(number: int, /) -> None:
    """Take no name."""


class NoModel:
    """A class of its own."""


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (any_number, "'numbers' in a way that cannot be named"),
        (any_name, "'names' in a way that cannot be named"),
        (no_names, "'number' in a way that cannot be named"),
        (NoModel, "no pydantic model"),
        (Address, "does not say what to run"),
        ({"name": "x", "input_schema": {"type": "object"}}, "does not say what to run"),
        ({"name": "x"}, "lacks its name or its input_schema"),
        (3, "int is no tool"),
        (functools.partial(log_query, lines=2), "No schema can be made of 'partial'"),
    ],
)
def test_what_is_no_tool_is_refused(item: Any, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        make_tool(item)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 129, "a\n"])
def test_names_are_those_that_a_provider_takes(name: str) -> None:
    with pytest.raises(ToolError, match="no name for a tool"):
        Tool(name=name, description="", input_schema={"type": "object"}, run=print)


def test_arguments_are_an_object() -> None:
    with pytest.raises(ToolError, match="not one of an object"):
        Tool(name="a", description="", input_schema={"type": "array"}, run=print)


def test_order_of_a_servers_schema_does_not_matter() -> None:
    one = {"type": "object", "required": ["b", "a"], "properties": {"b": {}, "a": {"enum": [2, 1]}}}
    two = {"properties": {"a": {"enum": [2, 1]}, "b": {}}, "required": ["a", "b"], "type": "object"}
    assert list(in_fixed_order(one)) == list(in_fixed_order(two))
    assert in_fixed_order(one) == in_fixed_order(two)
    assert in_fixed_order(one)["properties"]["a"] == {"enum": [2, 1]}
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1}) != digest_of({"a": 1})

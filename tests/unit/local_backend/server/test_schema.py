"""JSON in a schema, whatever stands at the leaves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_backend.server.errors import InvalidRequestError
from local_backend.server.schema import Leaf, outline


def filled(schema: dict[str, Any], tokens: list[int], text: str) -> Any:
    parts = outline(schema)
    return json.loads("".join(p.fill(tokens, text) if isinstance(p, Leaf) else p for p in parts))


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """A naive validator of the keywords that are drawn below."""
    if "const" in schema:
        return bool(value == schema["const"])
    if "enum" in schema:
        return value in schema["enum"]
    kind = schema.get("type")
    if kind == "object":
        inner = schema.get("properties", {})
        return (
            isinstance(value, dict)
            and all(name in value for name in schema.get("required", []))
            and all(fits(value[name], inner[name]) for name in value if name in inner)
        )
    if kind == "array":
        least, most = schema.get("minItems", 0), schema.get("maxItems", 1000)
        return (
            isinstance(value, list)
            and least <= len(value) <= most
            and all(fits(item, schema["items"]) for item in value)
        )
    if kind == "string":
        least, most = schema.get("minLength", 0), schema.get("maxLength", 10_000)
        return isinstance(value, str) and least <= len(value) <= most
    if kind in ("integer", "number"):
        is_right = isinstance(value, int) or (kind == "number" and isinstance(value, float))
        return (
            is_right
            and not isinstance(value, bool)
            and schema.get("minimum", value) <= value <= schema.get("maximum", value)
            and schema.get("exclusiveMinimum", value - 1) < value
        )
    return isinstance(value, {"boolean": bool, "null": type(None)}[str(kind)])


_bounds = st.tuples(st.integers(-50, 50), st.integers(0, 30)).map(lambda b: (b[0], b[0] + b[1]))
_numbers = st.builds(
    lambda kind, b: {"type": kind, "minimum": b[0], "maximum": b[1]},
    st.sampled_from(["integer", "number"]),
    _bounds,
)
_strings = st.builds(
    lambda b: {"type": "string", "minLength": b[0], "maxLength": b[0] + b[1]},
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
_leaves = st.one_of(
    _numbers,
    _strings,
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "integer"}, {"type": "string"},
                     {"type": "integer", "exclusiveMinimum": 3}, {"const": [1, {"a": None}]}]),
    st.lists(st.sampled_from(["x", 1, None]), min_size=1).map(lambda v: {"enum": v}),
)  # fmt: skip
_schemas = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.builds(
            lambda fields, cut: {
                "type": "object",
                "properties": fields,
                "required": sorted(fields)[:cut],
            },
            st.dictionaries(st.text('ab"é', max_size=3), inner, max_size=3),
            st.integers(0, 3),
        ),
        st.builds(
            lambda items, b: {"type": "array", "items": items, "minItems": b, "maxItems": b + 1},
            inner,
            st.integers(0, 2),
        ),
    ),
    max_leaves=6,
)


@given(_schemas, st.lists(st.integers(0, 300), max_size=5), st.text(max_size=20))
def test_it_always_fits(schema: dict[str, Any], tokens: list[int], text: str) -> None:
    assert fits(filled(schema, tokens, text), schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, "abc"),
        ({"type": ["null", "string"]}, "abc"),
        ({"type": "string", "maxLength": 2}, "ab"),
        ({"type": "string", "minLength": 5}, "abcxx"),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"type": "string", "pattern": "^b"}, "b"),
        ({"type": "string", "pattern": "^(?=c)"}, "abc"),
        ({"type": "string", "pattern": "("}, "abc"),
        ({"type": "number", "minimum": 1e308, "multipleOf": 1e-300}, 0),
        ({"type": "number", "minimum": 1.5e308, "multipleOf": 1e308}, 0),
        ({"type": "integer", "minimum": 10**400, "multipleOf": 0.5}, 0),
        ({"required": 5, "properties": 5, "type": "object"}, {}),
        ({"allOf": [{"required": 5, "properties": 5}, {"required": ["a"]}], "type": "object"},
         {"a": "abc"}),
        ({"properties": {"a": {"const": 1}}}, {"a": 1}),
        ({"type": "object", "required": ["z"]}, {"z": "abc"}),
        ({"anyOf": [{"const": 1}, {"const": 2}]}, 1),
        ({"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}]},
         {"a": 1, "b": 2}),
        ({"$defs": {"n": {"const": 7}}, "properties": {"x": {"$ref": "#/$defs/n"}}}, {"x": 7}),
        ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}]}, [1, 2]),
        ({"type": "integer", "minimum": 4, "maximum": 4, "multipleOf": 2}, 4),
        ({"type": "array", "items": {"const": 0}, "minItems": 3}, [0, 0, 0]),
    ],
    ids=lambda value: re.sub(r"\W+", " ", json.dumps(value))[:30],
)  # fmt: skip
def test_what_the_leaves_become(schema: dict[str, Any], value: Any) -> None:
    assert filled(schema, [1], "abc") == value


@pytest.mark.parametrize(
    ("pattern", "least"),
    [
        ("^[0-9]{3}-[A-F]+$", 0),
        (r"^\\d{4}-\\d\\d-\\d\\d(T[^Z]*Z)?$".replace("\\\\", "\\"), 0),
        ("^(red|green|blue)$", 0),
        ("^[a-z][a-z0-9_]*$", 30),
        ("^(a+)+b$", 40),
        ("(x*)*y", 0),
        (r"^(\w)\1\1$", 0),
        ("^[^@]+@[^@.]+[.]com$", 20),
        ("(?i)^[^a-z]$", 0),
        ("^.{5,9}?$", 7),
        ("^(?:a{0}|b)*$", 0),
        (r"^\S\s\W\D[\d\s]$", 0),
        ("", 0),
    ],
)
def test_texts_are_made_from_patterns(pattern: str, least: int) -> None:
    """The expressions are simple to match, so that they can be checked by matching."""
    schema = {"type": "string", "pattern": pattern, "minLength": least}
    for token in range(20):
        text = filled(schema, [token], "q")
        assert re.search(pattern, text), text
        assert len(text) >= least


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 10**9},
        {"type": "array", "items": {"type": "null"}, "minItems": 10**9, "maxItems": 10**9},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 60},
        {"type": "object", "properties": {n: {"$ref": "#"} for n in "abcdefghij"},
         "required": list("abcdefghij")},
        {"allOf": [{"$ref": "#"}] * 30, "required": [str(n) for n in range(5_000)],
         "type": "object"},
        {"$defs": {str(n): {} for n in range(90)}, "type": "array", "minItems": 64,
         "items": {"type": "array", "items": {"$ref": "#"}, "minItems": 64}},
    ],
    ids=["text", "list", "lists in lists", "objects in objects", "merged", "copied"],
)  # fmt: skip
def test_schemas_that_ask_for_too_much(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="more than this server fills in"):
        outline(schema)


def test_an_expression_that_asks_for_too_long_a_text() -> None:
    assert filled({"type": "string", "pattern": "^(a{9999}){9999}$"}, [1], "q") == "q"
    assert filled({"type": "string", "pattern": "^(){999999999}b$"}, [1], "q") == "b"


def test_a_schema_that_contains_itself_ends() -> None:
    tree: dict[str, Any] = {
        "$defs": {"t": {"type": "object", "properties": {"left": {"$ref": "#/$defs/t"}}}},
        "$ref": "#/$defs/t",
    }
    assert isinstance(filled(tree, [1], "x"), dict)
    assert isinstance(filled({"$ref": "#"}, [1], "x"), str)


def test_the_leaves_say_what_the_model_wrote() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "string"}}}
    one, two = (filled(schema, tokens, text) for tokens, text in (([1], "a\n"), ([2], '"\u0000b')))
    assert (one["t"], two["t"]) == ("a\n", '"b')
    assert one["n"] != two["n"]

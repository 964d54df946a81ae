"""Differences are named by tool and field, all of them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.agent.tools.drift import compare

TOOLS: list[dict[str, Any]] = [
    {
        "name": "a",
        "description": "first",
        "input_schema": {"type": "object", "properties": {"x": {"type": "string"}}},
    },
    {"name": "b", "description": "second", "input_schema": {"type": "object"}},
    {"type": "web_search_20260209", "max_uses": 3},
]


def changed(**fields: Any) -> list[dict[str, Any]]:
    tools = copy.deepcopy(TOOLS)
    for path, value in fields.items():
        place: Any = tools
        *way, last = path.split("__")
        for step in way:
            place = place[int(step)] if step.isdigit() else place[step]
        place[int(last) if last.isdigit() else last] = value
    return tools


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (TOOLS, []),
        (changed(**{"0__cache_control": {"type": "ephemeral"}}), []),
        (changed(**{"1__description": "2nd"}), ["'b': description changed"]),
        (
            changed(**{"0__input_schema__properties__x__type": "integer"}),
            ["'a': input_schema.properties.x.type changed"],
        ),
        (
            changed(**{"0__input_schema__required": ["x"]}),
            ["'a': input_schema.required changed"],
        ),
        (changed(**{"2__max_uses": 3.0}), ["'web_search_20260209': max_uses changed"]),
        (TOOLS[:2], ["'web_search_20260209': tools removed"]),
        ([*TOOLS, {"name": "c"}], ["'c': tools added"]),
        ([*TOOLS, TOOLS[0]], ["'a': tools added"]),
        ([TOOLS[0], *TOOLS], ["'a': tools added"]),
        (
            [*TOOLS[:2], {**TOOLS[0], "description": "other"}, TOOLS[2]],
            ["'a': tools added"],
        ),
        ([TOOLS[1], TOOLS[0], TOOLS[2]], ["'a': tools moved", "'b': tools moved"]),
        (
            [dict(reversed(TOOLS[0].items())), *TOOLS[1:]],
            ["'a': tool (order of keys) changed"],
        ),
        ([], ["'a': tools removed", "'b': tools removed", "'web_search_20260209': tools removed"]),
    ],
)
def test_each_difference_is_named(after: list[Any], told: list[str]) -> None:
    assert [str(item) for item in compare(TOOLS, after)] == told


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["a", "b"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("pqr"), inner, max_size=3)
    ),
    max_leaves=6,
)
LISTS: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(dict, name=st.sampled_from("uvw"), input_schema=JSON),
    max_size=3,
)


@given(before=LISTS, after=LISTS)
def test_there_is_a_difference_exactly_where_bytes_differ(
    before: list[Any], after: list[Any]
) -> None:
    assert bool(compare(before, after)) == (json.dumps(before) != json.dumps(after))

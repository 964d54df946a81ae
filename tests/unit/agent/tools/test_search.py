"""The ranking is BM25, whatever came and went before."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.agent.tools.search import NAME_WEIGHT, ToolIndex, words
from cacheaudit.agent.tools.tool import Tool
from tests.unit.agent.tools.sample import plain_tool

VOCABULARY = ["read", "write", "log", "file", "test", "run", "user", "mail", "send", "list"]


def document(tool: Tool) -> list[str]:
    """Write a tool as one text, its name three times."""
    text = words(tool.name) * NAME_WEIGHT + words(tool.description)
    for name, schema in tool.input_schema["properties"].items():
        text += words(name) + words(schema.get("description", ""))
    return text


def naive(tools: list[Tool], query: str) -> dict[str, float]:
    """Score by the formula of BM25, k1 = 1.2 and b = 0.75, document by document."""
    documents = {tool.name: Counter(document(tool)) for tool in tools}
    average = sum(d.total() for d in documents.values()) / max(1, len(documents))
    scores: dict[str, float] = {}
    for name, terms in documents.items():
        score = 0.0
        for term in set(words(query)):
            holding = sum(1 for d in documents.values() if term in d)
            idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            times = terms[term]
            score += idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * terms.total() / average))
        if any(terms[term] for term in words(query)):
            scores[name] = score
    return scores


TEXTS = st.lists(st.sampled_from(VOCABULARY), max_size=6)
TOOLS = st.dictionaries(
    st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=3).map("_".join),
    st.tuples(TEXTS, TEXTS),
    min_size=1,
    max_size=15,
)


@given(tools=TOOLS, query=st.lists(st.sampled_from(VOCABULARY), max_size=4), gone=st.data())
def test_scores_are_those_of_the_formula(
    tools: dict[str, tuple[list[str], list[str]]], query: list[str], gone: st.DataObject
) -> None:
    made = [
        plain_tool(name, " ".join(text), **{f"{word}_x": {"description": word} for word in inner})
        for name, (text, inner) in tools.items()
    ]
    index = ToolIndex()
    for tool in made:
        index.add(plain_tool(tool.name, "something else first"))
        index.add(tool)
    for tool in gone.draw(st.sets(st.sampled_from(range(len(made))))):
        index.remove(made[tool].name)
        made[tool] = None  # type: ignore[call-overload]
    left = [tool for tool in made if tool is not None]
    text = " ".join(query)
    expected = naive(left, text)
    found = dict(index.search(text, 100))
    assert found.keys() == expected.keys()
    for name, score in found.items():
        if name != text:  # a name that is asked for comes first in any case
            assert score == pytest.approx(expected[name])
    ranked = list(found)
    assert ranked == sorted(ranked, key=lambda name: (-found[name], name))


def test_an_empty_directory_finds_nothing() -> None:
    assert ToolIndex().search("anything", 5) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("readTestLogs", ["read", "test", "log"]),
        ("read_test_logs", ["read", "test", "log"]),
        ("HTTPServer2 queries", ["http", "server", "2", "query"]),
        ("this class is a status", ["this", "class", "is", "a", "status"]),
        ("日本語", ["日本語"]),
        ("Grüße", ["gr", "üß", "e"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_a_name_comes_first() -> None:
    index = ToolIndex()
    index.add(plain_tool("run", "run run run"))
    index.add(plain_tool("run_test_log", "other"))
    assert index.search("run_test_log", 1)[0][0] == "run_test_log"


def test_a_query_of_any_length_takes_little_memory() -> None:
    index = ToolIndex()
    index.add(plain_tool("mail_send"))
    index.add(plain_tool("log_read"))
    query = "mail " + "ab " * 1_000_000 + "log"
    tracemalloc.start()
    try:
        found = index.search(query, 5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [name for name, _ in found] == ["mail_send"]
    assert peak < 2 * len(query)


def test_words_that_begin_alike_are_found_where_a_word_is_unknown() -> None:
    index = ToolIndex()
    index.add(plain_tool("authentication_check"))
    index.add(plain_tool("mail_send"))
    assert [name for name, _ in index.search("authenticate user", 5)] == ["authentication_check"]
    assert index.search("zebra", 5) == []

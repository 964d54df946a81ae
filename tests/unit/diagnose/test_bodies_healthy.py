"""Append-only conversations with moving markers yield nothing, however they are written."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.diagnose.scenes import Scene, image, request, result, text, thinking, use

WORDS = st.sampled_from(
    (
        "task",
        "It is 10:15:02.",
        "request id: 7f3a91",
        "Context left: 87 %",
        "On branch main\n M app.py",
        "line\r\nline",
        "x" * 300,
    )
)


@st.composite
def turns(draw: Any) -> list[Any]:
    """A conversation: user and assistant in turn, at most eight content blocks a message."""
    talk: list[Any] = [draw(WORDS)]
    number = 0
    for _ in range(draw(st.integers(1, 8))):
        if draw(st.booleans()):
            count = draw(st.integers(1, 6))
            calls = [use(number + n, path=f"f{n}") for n in range(count)]
            thought = [thinking(draw(WORDS))] if draw(st.booleans()) else []
            talk += [[*thought, *calls], [result(number + n, draw(WORDS)) for n in range(count)]]
            number += count
        else:
            more = [image()] if draw(st.booleans()) else []
            talk += [draw(WORDS), [*more, draw(WORDS)]]
    return talk


def as_text(body: dict[str, Any]) -> dict[str, Any]:
    """Write messages of one unmarked text as plain text."""
    messages = [
        {**m, "content": m["content"][0]["text"]}
        if len(m["content"]) == 1 and m["content"][0].keys() == text("").keys()
        else m
        for m in body["messages"]
    ]
    return {**body, "messages": messages}


MARKS = st.sampled_from((("tools", "system", "last"), ("system", "last"), ("last",)))


@given(turns(), MARKS, st.lists(st.booleans(), min_size=10, max_size=10), st.floats(1, 250))
def test_append_only_with_moving_markers(
    talk: list[Any], mark: tuple[str, ...], plain: list[bool], gap: float
) -> None:
    scene = Scene()
    for turn, end in enumerate(range(1, len(talk) + 1, 2)):
        body = request(*talk[:end], mark=mark)
        scene.send(as_text(body) if plain[turn % 10] else body, after=gap)
    session = scene.session()
    ctx = Context(session)
    assert ctx.changes == {}
    diagnosis = diagnose(session)
    assert [f.name for f in diagnosis.findings if f.kind == "loss"] == []
    assert [f.name for f in diagnosis.findings if f.kind == "error"] == []
    assert diagnosis.tokens_lost == 0


@given(turns(), st.floats(1, 250))
def test_append_only_in_an_automatic_cache(talk: list[Any], gap: float) -> None:
    scene = Scene(provider="local", model="qwen", surface="local")
    for end in range(1, len(talk) + 1, 2):
        scene.send(request(*talk[:end], mark=()), after=gap)
    diagnosis = diagnose(scene.session())
    assert [f.name for f in diagnosis.findings if f.kind != "note"] == []


@given(turns(), st.integers(0, 40_000))
def test_whatever_is_read_no_rule_fails_and_parts_add_up(talk: list[Any], read: int) -> None:
    scene = Scene()
    for end in range(1, len(talk) + 1, 2):
        body = request(*talk[:end])
        scene.send(body, read=min(read, 5_000 + 2_500 * end) if end > 1 else None)
    diagnosis = diagnose(scene.session())
    assert [f for f in diagnosis.findings if f.kind == "error"] == []
    parts = sum(f.tokens_lost for f in diagnosis.findings if f.kind == "loss")
    assert parts == diagnosis.tokens_lost


@given(turns(), turns(), st.integers(0, 30_000))
def test_two_unlike_conversations_in_one_lane_break_no_rule(
    one: list[Any], two: list[Any], read: int
) -> None:
    scene = Scene().send(request(*one))
    scene.send(request(*two), read=min(read, 7_000))
    scene.send(request(*one))
    diagnosis = diagnose(scene.session())
    assert [f for f in diagnosis.findings if f.kind == "error"] == []
    lost = sum(f.tokens_lost for f in diagnosis.findings if f.kind == "loss")
    assert lost == diagnosis.tokens_lost

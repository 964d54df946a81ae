"""Generated requests and sessions, as odd as programs send them."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from tests.unit.agent.planner.play import MODEL, START, Played

WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf")
MODELS = (MODEL, "claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-5-5", "claude-opus-4-6")
MARKER = {"type": "ephemeral"}


def text(size: int, seed: int = 0) -> str:
    """Return words of about so many bytes."""
    return " ".join(WORDS[(seed + i * (seed % 5 + 1)) % len(WORDS)] for i in range(size // 6 + 1))


@st.composite
def texts(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.sampled_from([0, 1, 30, 400, 4_000]))
    if size == 0:
        return {"type": "text", "text": draw(st.sampled_from(["", "  ", "\n"]))}
    return {"type": "text", "text": text(size, draw(st.integers(0, 40)))}


def results(number: int, size: int) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": f"toolu_{number}",
        "content": [{"type": "text", "text": text(size, number)}],
    }


def uses(number: int) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": f"toolu_{number}",
        "name": "Read",
        "input": {"path": f"/src/{number}.py", "cache_control": number},
    }


THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="},
}
SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}

blocks = st.one_of(
    texts(),
    st.integers(0, 30).map(uses),
    st.builds(results, st.integers(0, 30), st.sampled_from([10, 500, 5_000])),
    st.just(THINKING),
    st.just({"type": "redacted_thinking", "data": "x"}),
    st.just(IMAGE),
    st.just(SEARCHED),
    st.just({"type": "something_new", "data": 1}),
).map(copy.deepcopy)


@st.composite
def messages(draw: st.DrawFn) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 8))):
        role = draw(st.sampled_from(["user", "assistant", "user", "assistant", "system"]))
        content: Any = draw(
            st.one_of(
                st.lists(blocks, min_size=0, max_size=5),
                texts().map(lambda block: block["text"]),
                st.lists(st.integers(0, 99).map(uses), min_size=20, max_size=25),
            )
        )
        message = {"role": role, "content": content}
        if role == "system" and draw(st.booleans()):
            message["clear_at"] = "next_user_message"
        made.append(message)
    return made


@st.composite
def tools(draw: st.DrawFn) -> list[dict[str, Any]]:
    made = []
    for number in range(draw(st.integers(0, 5))):
        schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
        tool = {"name": f"tool_{number}", "description": text(900, number), "input_schema": schema}
        if draw(st.sampled_from([False, False, True])):
            tool["defer_loading"] = True
        made.append(tool)
    return made


@st.composite
def bodies(draw: st.DrawFn, *, marked: bool = False) -> dict[str, Any]:
    """Draw a request, with the caller's own markers if wanted."""
    body: dict[str, Any] = {
        "model": draw(st.sampled_from(MODELS)),
        "max_tokens": draw(st.sampled_from([0, 16, 1_000])),
        "messages": draw(messages()),
    }
    if listed := draw(tools()):
        body["tools"] = listed
    system = draw(
        st.one_of(
            st.none(),
            texts().map(lambda block: block["text"]),
            st.lists(texts(), min_size=0, max_size=4),
        )
    )
    if system is not None:
        body["system"] = system
    if listed and draw(st.booleans()):
        body["tool_choice"] = draw(st.sampled_from([{"type": "auto"}, {"type": "any"}]))
    if draw(st.booleans()):
        body["thinking"] = {"type": "enabled", "budget_tokens": 2_000}
    return with_own_markers(draw, body) if marked else body


def with_own_markers(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    """Mark as callers do, rightly and wrongly."""
    places: list[dict[str, Any]] = [*body.get("tools", ())]
    if isinstance(body.get("system"), list):
        places += body["system"]
    for message in body["messages"]:
        if isinstance(message["content"], list):
            places += message["content"]
            for block in message["content"]:
                if block["type"] == "tool_result":
                    places += block["content"]
    count = draw(st.integers(1, 5))
    ttl = draw(st.sampled_from([None, "5m", "1h", "mixed", "2h"]))
    for number in range(min(count, len(places))):
        place = places[draw(st.integers(0, len(places) - 1))]
        wanted = draw(st.sampled_from(["5m", "1h"])) if ttl == "mixed" else ttl
        place["cache_control"] = MARKER if wanted is None else {**MARKER, "ttl": wanted}
        if number == count - 1 and draw(st.booleans()):
            body["cache_control"] = dict(place["cache_control"])
    if not places:
        body["cache_control"] = dict(MARKER)
    return copy.deepcopy(body)


GAPS = (1.0, 30.0, 200.0, 299.0, 301.0, 900.0, 3_500.0, 3_700.0)
QUICK = (1.0, 10.0, 60.0, 250.0)


@st.composite
def sessions(draw: st.DrawFn, *, steady_start: bool = False, longest: int = 9) -> list[Played]:
    """Draw a session: an agent's loop with all that goes wrong in one.

    With ``steady_start`` the second request goes on with the first in time and adds no more than
    twice its size.
    """
    front = draw(st.sampled_from([0, 2_500, 12_000]))
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 100, "messages": []}
    if front:
        body["system"] = [{"type": "text", "text": text(front, 3)}]
        body["tools"] = [
            {"name": f"t{n}", "description": text(700, n), "input_schema": {"type": "object"}}
            for n in range(3)
        ]
    opening = draw(st.sampled_from([2_500, 9_000] if steady_start else [20, 2_500, 9_000]))
    body["messages"] = [{"role": "user", "content": text(opening, 5)}]
    at = START
    items = [Played(copy.deepcopy(body), at)]
    for number in range(1, draw(st.integers(1, longest)) + 1):
        first = steady_start and number == 1
        at += draw(st.sampled_from(QUICK if first else GAPS))
        kind = "grow" if first else draw(st.sampled_from(KINDS))
        _change(draw, body, kind, number, small=first)
        items.append(Played(copy.deepcopy(body), at))
    return items


KINDS = (
    "grow",
    "grow",
    "grow",
    "grow",
    "wide",
    "system",
    "tools",
    "choice",
    "rewind",
    "edit",
    "new",
)


def _change(draw: st.DrawFn, body: dict[str, Any], kind: str, number: int, *, small: bool) -> None:
    said = body["messages"]
    if kind in ("grow", "wide"):
        count = draw(st.integers(11, 26)) if kind == "wide" else draw(st.integers(1, 3))
        sizes = [100, 2_000] if small else [100, 2_000, 40_000]
        ids = [number * 100 + n for n in range(count)]
        size = draw(st.sampled_from(sizes)) // count + 1
        said.append({"role": "assistant", "content": [{"type": "text", "text": text(90, number)}]})
        said[-1]["content"] += [uses(n) for n in ids]
        said.append({"role": "user", "content": [results(n, size) for n in ids]})
    elif kind == "system" and "system" in body:
        body["system"][0]["text"] = text(3_000, number) + f" at 10:{number:02}"
    elif kind == "tools":
        tool = {"name": f"new{number}", "description": "x", "input_schema": {"type": "object"}}
        body["tools"] = [tool, *body.get("tools", ())]
    elif kind == "choice" and body.get("tools"):
        body["tool_choice"] = {"type": draw(st.sampled_from(["any", "auto"]))}
    elif kind == "rewind" and len(said) > 2:
        del said[-2:]
    elif kind == "edit":
        said[0]["content"] = text(4_000, number)
    elif kind == "new":
        said[:] = [{"role": "user", "content": text(3_000, number)}]

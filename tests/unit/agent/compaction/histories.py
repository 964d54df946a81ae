"""Conversations for tests: drawn ones, and one of a given size."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=40
).filter(lambda text: bool(text.strip()))
MODEL = "claude-opus-5"


@st.composite
def histories(draw: st.DrawFn, least: int = 1, most: int = 8) -> list[dict[str, Any]]:
    """Draw a conversation that a Messages API takes, ending with the user's turn."""
    messages: list[dict[str, Any]] = []
    serial = 0
    for _ in range(draw(st.integers(least, most))):
        messages.append({"role": "user", "content": _said(draw)})
        for _ in range(draw(st.integers(0, 2))):
            calls = [
                {"type": "tool_use", "id": f"t{serial + n}", "name": "run", "input": {"n": n}}
                for n in range(draw(st.integers(1, 3)))
            ]
            serial += len(calls)
            spoken = [{"type": "text", "text": draw(TEXT)}] if draw(st.booleans()) else []
            messages.append({"role": "assistant", "content": [*spoken, *calls]})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call["id"],
                    "content": draw(TEXT) * draw(st.sampled_from([1, 60])),
                }
                for call in calls
            ]
            also = [{"type": "text", "text": draw(TEXT)}] if draw(st.booleans()) else []
            messages.append({"role": "user", "content": [*results, *also]})
        messages.append({"role": "assistant", "content": draw(TEXT)})
    messages.append({"role": "user", "content": _said(draw)})
    return messages


def _said(draw: st.DrawFn) -> Any:
    text = draw(TEXT)
    return text if draw(st.booleans()) else [{"type": "text", "text": text}]


def body(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A request with tools and system."""
    return {
        "model": MODEL,
        "max_tokens": 512,
        "tools": [{"name": "run", "description": "runs", "input_schema": {"type": "object"}}],
        "system": [{"type": "text", "text": "Work. " * 40, "cache_control": {"type": "ephemeral"}}],
        "messages": messages,
        **more,
    }


def rounds(count: int, size: int, first: str = "fix the parser") -> list[dict[str, Any]]:
    """A task with so many tool rounds, each result of so many characters."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": first}]
    for number in range(count):
        call = {"type": "tool_use", "id": f"c{number}", "name": "run", "input": {"n": number}}
        result = {
            "type": "tool_result",
            "tool_use_id": f"c{number}",
            "content": f"row {number} " * (size // 6),
        }
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [result]})
    return messages


def said(messages: Any) -> list[str]:
    """Every text of the user, in order."""
    found = []
    for message in messages:
        if message["role"] != "user":
            continue
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found.extend(block["text"] for block in blocks if block["type"] == "text")
    return found

"""Content blocks of Responses API bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cacheaudit.errors import PromptError
from cacheaudit.model.prompt import Level
from cacheaudit.providers.blocks import Draft, encode, object_at, own_fields, text_draft
from cacheaudit.providers.openai_parts import (
    MARKERS,
    content_drafts,
    marker_of,
    media_fields,
    result_content,
    tool_drafts,
)

_INSTRUCTIONS: Final = frozenset({"system", "developer"})
# What the server gave to an item that the client sends back.
_SERVER_FIELDS: Final = frozenset({*MARKERS, "id", "status"})
_KINDS: Final = {
    "function_call": "tool_use",
    "custom_tool_call": "tool_use",
    "function_call_output": "tool_result",
    "custom_tool_call_output": "tool_result",
    "reasoning": "thinking",
}


def responses_drafts(body: Mapping[str, Any]) -> list[Draft]:
    """Draft the content blocks of a body: tools, instructions, input."""
    drafts = list(tool_drafts(body))
    instructions = body.get("instructions")
    if isinstance(instructions, str) and instructions:
        drafts.append(text_draft("system", "instructions", instructions, "developer", None, -1))
    items = body.get("input")
    if isinstance(items, str):
        if items:
            path = "input[0].content[0]"
            drafts.append(text_draft("messages", path, items, "user", None, 0))
        return drafts
    if items is not None and not isinstance(items, list):
        raise PromptError(f"'input' is {type(items).__name__}, not a list.")
    leading = True
    for index, item in enumerate(items or []):
        item = object_at(item, f"input[{index}]")
        role = item.get("role")
        leading = leading and isinstance(role, str) and role in _INSTRUCTIONS
        level: Level = "system" if leading else "messages"
        drafts.extend(_item(item, level, index, body))
    return drafts


def _item(
    item: dict[str, Any], level: Level, index: int, body: Mapping[str, Any]
) -> Iterator[Draft]:
    path = f"input[{index}]"
    kind = item.get("type", "message")
    role = item.get("role")
    role = role if isinstance(role, str) else None
    if kind == "message":
        yield from content_drafts(item.get("content"), level, f"{path}.content", role, index, body)
        return
    fields, media = media_fields(own_fields(item, _SERVER_FIELDS))
    if "output" in fields:
        fields["output"], inner = result_content(fields["output"])
        media += inner
    name = item.get("call_id") or item.get("name")
    kind = kind if isinstance(kind, str) else "unknown"
    yield Draft(
        level,
        path,
        _KINDS.get(kind, kind),
        encode(fields),
        marker_of(item, body),
        role=role,
        name=name if isinstance(name, str) else None,
        message=index,
        media=media,
    )

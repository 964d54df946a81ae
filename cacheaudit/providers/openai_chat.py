"""Content blocks of Chat Completions bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from cacheaudit.model.prompt import Level
from cacheaudit.providers.blocks import Draft, encode, list_of, object_at, own_fields, text_draft
from cacheaudit.providers.openai_parts import (
    MARKERS,
    content_drafts,
    marker_of,
    result_content,
    tool_drafts,
)

# Tuples, since a role may be anything, hashable or not.
_INSTRUCTIONS: Final = ("system", "developer")
_RESULTS: Final = ("tool", "function")


def chat_drafts(body: Mapping[str, Any]) -> list[Draft]:
    """Draft the content blocks of a body: tools, leading instructions, messages."""
    drafts = list(tool_drafts(body))
    leading = True
    for index, message in enumerate(list_of(body, "messages")):
        message = object_at(message, f"messages[{index}]")
        role = message.get("role")
        role = role if isinstance(role, str) else None
        leading = leading and role in _INSTRUCTIONS
        level: Level = "system" if leading else "messages"
        drafts.extend(_message(message, role, level, index, body))
    return drafts


def _message(
    message: dict[str, Any], role: str | None, level: Level, index: int, body: Mapping[str, Any]
) -> Iterator[Draft]:
    path = f"messages[{index}]"
    if role in _RESULTS:
        yield _result(message, role, level, path, index, body)
        return
    thought = message.get("reasoning_content")
    if isinstance(thought, str) and thought:
        draft = text_draft(level, f"{path}.reasoning_content", thought, role, None, index)
        draft.kind = "thinking"
        draft.canonical = encode({"role": role, "thinking": thought})
        yield draft
    drafts = list(
        content_drafts(message.get("content"), level, f"{path}.content", role, index, body)
    )
    if drafts and drafts[-1].marker is None:
        # A marker on the message itself counts for its last part.
        drafts[-1].marker = marker_of(message, body)
    speaker = message.get("name")
    if isinstance(speaker, str) and drafts:
        fields = msgspec.json.decode(drafts[0].canonical)
        drafts[0].canonical = encode({**fields, "name": speaker})
    yield from drafts
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        yield text_draft(level, f"{path}.refusal", refusal, role, None, index)
    for position, call in enumerate(list_of(message, "tool_calls")):
        yield _call(call, role, level, f"{path}.tool_calls[{position}]", index)
    if isinstance(message.get("function_call"), dict):
        yield _call(message["function_call"], role, level, f"{path}.function_call", index)


def _call(call: Any, role: str | None, level: Level, path: str, index: int) -> Draft:
    fields = own_fields(object_at(call, path), MARKERS | {"index"})
    inner = fields.get("function")
    if isinstance(inner, dict):
        fields["function"] = own_fields(inner, MARKERS)
    fields["role"] = role
    name = call.get("id") or fields.get("name")
    return Draft(
        level,
        path,
        "tool_use",
        encode(fields),
        None,
        role=role,
        name=name if isinstance(name, str) else None,
        message=index,
    )


def _result(
    message: dict[str, Any],
    role: str | None,
    level: Level,
    path: str,
    index: int,
    body: Mapping[str, Any],
) -> Draft:
    content, media = result_content(message.get("content"))
    fields = own_fields(message, MARKERS)
    fields["content"] = content
    parts = message.get("content")
    last = parts[-1] if isinstance(parts, list) and parts else None
    marker = marker_of(message, body)
    if marker is None and isinstance(last, dict):
        marker = marker_of(last, body)
    name = message.get("tool_call_id") or message.get("name")
    return Draft(
        level,
        f"{path}.content",
        "tool_result",
        encode(fields),
        marker,
        role=role,
        name=name if isinstance(name, str) else None,
        message=index,
        media=media,
    )

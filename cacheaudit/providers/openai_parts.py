"""What Chat Completions and the Responses API write alike: tools, content parts, markers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cacheaudit.errors import PromptError
from cacheaudit.model.prompt import Level, Marker
from cacheaudit.providers.blocks import (
    Draft,
    data_url,
    decoded_media,
    encode,
    list_of,
    object_at,
    own_fields,
    text_draft,
)

# Qwen, OpenRouter and others take the marker of the Messages API in the same place.
MARKERS: Final = frozenset({"cache_control", "prompt_cache_breakpoint"})
# A tuple, since a type may be anything, hashable or not.
_TEXT_KINDS: Final = ("text", "input_text", "output_text")
_PLAIN: Final = frozenset({"type", "text", *MARKERS})
_ECHOED: Final = frozenset({*MARKERS, "annotations", "logprobs"})
_KINDS: Final = {
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "file": "document",
    "input_file": "document",
}


def marker_of(part: Mapping[str, Any], body: Mapping[str, Any]) -> Marker | None:
    """Read the marker on a part; the lifetime may stand in the request's options."""
    for name in ("cache_control", "prompt_cache_breakpoint"):
        value = part.get(name)
        if isinstance(value, dict):
            ttl = value.get("ttl")
            options = body.get("prompt_cache_options")
            if ttl is None and isinstance(options, dict):
                ttl = options.get("ttl")
            return Marker(ttl if isinstance(ttl, str) else None)
    return None


def tool_drafts(body: Mapping[str, Any]) -> Iterator[Draft]:
    """Draft the tool definitions."""
    for index, tool in enumerate(list_of(body, "tools")):
        path = f"tools[{index}]"
        fields = own_fields(object_at(tool, path), MARKERS)
        inner = fields.get("function")
        if isinstance(inner, dict):
            fields["function"] = own_fields(inner, MARKERS)
            name = inner.get("name")
        else:
            name = tool.get("name") or tool.get("server_label") or tool.get("type")
        yield Draft(
            "tools",
            path,
            "tool",
            encode(fields),
            marker_of(tool, body),
            name=name if isinstance(name, str) else None,
        )


def content_drafts(
    content: Any,
    level: Level,
    path: str,
    role: str | None,
    index: int,
    body: Mapping[str, Any],
) -> Iterator[Draft]:
    """Draft the content of a message, given as text or as parts."""
    if isinstance(content, str):
        if content:
            yield text_draft(level, f"{path}[0]", content, role, None, index)
        return
    if content is None:
        return
    if not isinstance(content, list):
        raise PromptError(f"{path} is {type(content).__name__}, not a list.")
    for position, part in enumerate(content):
        place = f"{path}[{position}]"
        if isinstance(part, str):
            yield text_draft(level, place, part, role, None, index)
        else:
            yield _part(object_at(part, place), level, place, role, index, body)


def _part(
    part: dict[str, Any],
    level: Level,
    path: str,
    role: str | None,
    index: int,
    body: Mapping[str, Any],
) -> Draft:
    marker = marker_of(part, body)
    kind = part.get("type")
    text = part.get("text")
    if kind in _TEXT_KINDS and isinstance(text, str):
        rest = own_fields(part, _ECHOED) if part.keys() - _PLAIN else {}
        if rest.keys() <= _PLAIN:
            return text_draft(level, path, text, role, marker, index)
    fields, media = media_fields(own_fields(part, MARKERS))
    if role is not None:
        fields["role"] = role
    kind = kind if isinstance(kind, str) else "unknown"
    return Draft(
        level,
        path,
        _KINDS.get(kind, kind),
        encode(fields),
        marker,
        role=role,
        message=index,
        media=media,
    )


def media_fields(fields: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Replace the data of pictures, sounds and files by their digests."""
    size = 0
    for name, value in fields.items():
        if isinstance(value, dict):
            fields[name], inner = media_fields(dict(value))
            size += inner
        elif isinstance(value, str) and name in ("url", "image_url", "file_data", "data"):
            if value.startswith("data:"):
                fields[name], inner = data_url(value)
                size += inner
            elif name == "data":
                fields[name], inner = decoded_media(value)
                size += inner
    return fields, size


def result_content(content: Any) -> tuple[Any, int]:
    """Normalise what a tool returned: text and a list of one text part are the same."""
    if isinstance(content, str):
        return [{"text": content, "type": "text"}], 0
    if not isinstance(content, list):
        return content, 0
    inner: list[Any] = []
    size = 0
    for part in content:
        if not isinstance(part, dict):
            inner.append(part)
            continue
        fields, media = media_fields(own_fields(part, _ECHOED))
        size += media
        if fields.get("type") in _TEXT_KINDS:
            fields["type"] = "text"
        inner.append(fields)
    return inner, size

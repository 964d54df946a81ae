"""Messages API bodies: tools, then system, then messages.

Normalised away, because the provider does not hash it: ``cache_control`` wherever it stands,
text given as a string instead of a list of one text block, the order of a block's own fields,
fields that are null. Kept, because it is rendered: key order inside tool schemas, tool inputs.
Source of the invalidation levels: the provider's prompt-caching page, September 2026.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from cacheaudit.errors import PromptError
from cacheaudit.model.prompt import (
    ContentBlock,
    Level,
    Marker,
    Parameter,
    Prompt,
    chain,
    digest,
)

LEVEL_ORDER: Final[tuple[Level, ...]] = ("tools", "system", "messages")

# Field of the body, first level that a change of it invalidates for certain.
_PARAMETERS: Final[tuple[tuple[str, Level], ...]] = (
    ("model", "tools"),
    ("speed", "system"),
    ("output_config.format", "system"),
    ("thinking", "messages"),
    ("output_config.effort", "messages"),
    ("tool_choice", "messages"),
    ("context_management", "messages"),
)
_TOOL_CHOICE_DEFAULT: Final = {"type": "auto"}
_DROPPED: Final = frozenset({"cache_control"})
_encode = msgspec.json.Encoder().encode


class AnthropicProvider:
    """Expands Messages API bodies."""

    name = "anthropic"

    def accepts(self, body: Mapping[str, Any]) -> bool:
        """Whether a body looks like a Messages API request."""
        messages = body.get("messages")
        if not isinstance(messages, list) or "input" in body or "contents" in body:
            return False
        if "system" in body or "cache_control" in body or "thinking" in body:
            return True
        tools = body.get("tools")
        if isinstance(tools, list) and tools and isinstance(tools[0], dict):
            return "function" not in tools[0] and tools[0].get("type") != "function"
        return not any(
            isinstance(m, dict)
            and (m.get("role") in ("developer", "tool", "function") or "tool_calls" in m)
            for m in messages
        )

    def expand(self, body: Mapping[str, Any], previous: Prompt | None = None) -> Prompt:
        """Turn a body into content blocks; see :class:`cacheaudit.model.ports.Provider`."""
        reuse = previous.blocks if previous is not None else ()
        blocks: list[ContentBlock] = []
        for draft in _drafts(body):
            index = len(blocks)
            blocks.append(draft.finish(reuse[index] if index < len(reuse) else None))
        parameters = _parameters(body)
        finished = tuple(blocks)
        top = body.get("cache_control")
        return Prompt(
            provider=self.name,
            model=body.get("model"),
            level_order=LEVEL_ORDER,
            parameters=parameters,
            blocks=finished,
            prefix_digests=chain(LEVEL_ORDER, parameters, finished, previous),
            automatic_marker=_marker(top),
        )


class _Draft:
    """A content block before its digest is known."""

    __slots__ = ("canonical", "kind", "level", "marker", "media", "message", "name", "path", "role")

    def __init__(  # one slot a field, built once per content block
        self,
        level: Level,
        path: str,
        kind: str,
        canonical: bytes,
        marker: Marker | None,
        *,
        role: str | None = None,
        name: str | None = None,
        message: int = -1,
        media: int = 0,
    ) -> None:
        self.level: Level = level
        self.path = path
        self.kind = kind
        self.canonical = canonical
        self.marker = marker
        self.role = role
        self.name = name
        self.message = message
        self.media = media

    def finish(self, old: ContentBlock | None) -> ContentBlock:
        """Make the block, taking over ``old`` or its digest where the content is the same."""
        if old is not None and old.canonical == self.canonical and old.level == self.level:
            if (
                old.path == self.path
                and old.marker == self.marker
                and old.message == self.message
                and old.tokens is None
            ):
                return old
            identity, canonical = old.digest, old.canonical
        else:
            identity, canonical = digest(self.canonical), self.canonical
        return ContentBlock(
            level=self.level,
            path=self.path,
            kind=self.kind,
            role=self.role,
            name=self.name,
            message=self.message,
            canonical=canonical,
            digest=identity,
            marker=self.marker,
            media_bytes=self.media,
        )


def _drafts(body: Mapping[str, Any]) -> Iterator[_Draft]:
    for index, tool in enumerate(_list(body, "tools")):
        yield _tool(tool, index)
    system = body.get("system")
    if isinstance(system, str):
        if system:
            yield _text_draft("system", "system[0]", system, None, None, -1)
    elif system is not None:
        for index, block in enumerate(_list(body, "system")):
            yield _block(block, "system", f"system[{index}]", None, -1)
    for index, message in enumerate(_list(body, "messages")):
        yield from _message(message, index)


def _list(body: Mapping[str, Any], field: str) -> list[Any]:
    value = body.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise PromptError(f"{field!r} is {type(value).__name__}, not a list.")
    return value


def _tool(tool: Any, index: int) -> _Draft:
    path = f"tools[{index}]"
    if not isinstance(tool, dict):
        raise PromptError(f"{path} is {type(tool).__name__}, not an object.")
    name = tool.get("name") or tool.get("mcp_server_name") or tool.get("type")
    return _Draft(
        "tools",
        path,
        "tool",
        _encode(_own_fields(tool)),
        _marker(tool.get("cache_control")),
        name=name if isinstance(name, str) else None,
    )


def _message(message: Any, index: int) -> Iterator[_Draft]:
    if not isinstance(message, dict):
        raise PromptError(f"messages[{index}] is {type(message).__name__}, not an object.")
    role = message.get("role")
    role = role if isinstance(role, str) else None
    content = message.get("content")
    if isinstance(content, str):
        if content:
            path = f"messages[{index}].content[0]"
            yield _text_draft("messages", path, content, role, None, index)
        return
    if content is None:
        return
    if not isinstance(content, list):
        raise PromptError(f"messages[{index}].content is {type(content).__name__}, not a list.")
    for position, block in enumerate(content):
        yield _block(block, "messages", f"messages[{index}].content[{position}]", role, index)


def _block(block: Any, level: Level, path: str, role: str | None, message: int) -> _Draft:
    if isinstance(block, str):
        return _text_draft(level, path, block, role, None, message)
    if not isinstance(block, dict):
        raise PromptError(f"{path} is {type(block).__name__}, not an object.")
    marker = _marker(block.get("cache_control"))
    kind = block.get("type")
    text = block.get("text")
    if kind == "text" and isinstance(text, str) and block.keys() <= _PLAIN_TEXT:
        return _text_draft(level, path, text, role, marker, message)
    fields = _own_fields(block)
    media = 0
    inner = fields.get("content")
    if kind == "tool_result":
        fields["content"], inner_marker, media = _tool_result(inner)
        marker = marker or inner_marker
        if fields.get("is_error") is False:
            del fields["is_error"]
    elif isinstance(fields.get("source"), dict):
        fields["source"], media = _media(fields["source"])
    if role is not None:
        fields["role"] = role
    name = block.get("id") or block.get("tool_use_id") or block.get("name")
    return _Draft(
        level,
        path,
        kind if isinstance(kind, str) else "unknown",
        _encode(fields),
        marker,
        role=role,
        name=name if isinstance(name, str) else None,
        message=message,
        media=media,
    )


_PLAIN_TEXT: Final = frozenset({"type", "text", "cache_control"})


def _text_draft(
    level: Level, path: str, text: str, role: str | None, marker: Marker | None, message: int
) -> _Draft:
    body = b'{"text":' + _encode(text) + b',"type":"text"'
    canonical = body + b"}" if role is None else body + b',"role":' + _encode(role) + b"}"
    return _Draft(level, path, "text", canonical, marker, role=role, message=message)


def _own_fields(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block's fields in one fixed order, without markers and nulls."""
    return {
        key: block[key] for key in sorted(block) if key not in _DROPPED and block[key] is not None
    }


def _tool_result(content: Any) -> tuple[Any, Marker | None, int]:
    """Normalise what a tool returned; a marker on its last inner block counts for the whole."""
    if isinstance(content, str):
        return [{"text": content, "type": "text"}], None, 0
    if not isinstance(content, list):
        return [], None, 0
    inner: list[Any] = []
    media = 0
    marker = None
    for block in content:
        if isinstance(block, dict):
            marker = _marker(block.get("cache_control"))
            fields = _own_fields(block)
            if isinstance(fields.get("source"), dict):
                fields["source"], size = _media(fields["source"])
                media += size
            inner.append(fields)
        else:
            marker = None
            inner.append(block)
    return inner, marker, media


def _media(source: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Replace base64 data by its digest, so that pictures cost no memory."""
    data = source.get("data")
    if source.get("type") != "base64" or not isinstance(data, str):
        return source, 0
    try:
        raw = base64.b64decode(data)
    except (binascii.Error, ValueError):
        raw = data.encode()
    return {**source, "data": f"blake2b:{digest(raw).hex()}"}, len(raw)


def _marker(value: Any) -> Marker | None:
    if not isinstance(value, dict):
        return None
    ttl = value.get("ttl")
    return Marker(ttl if isinstance(ttl, str) else None)


def _parameters(body: Mapping[str, Any]) -> tuple[Parameter, ...]:
    found: list[Parameter] = []
    for path, level in _PARAMETERS:
        value: Any = body
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            continue
        if path == "tool_choice":
            value = _tool_choice(value)
        if value is not None:
            found.append(Parameter(path, level, msgspec.json.encode(value, order="sorted")))
    if isinstance(choice := body.get("tool_choice"), dict) and choice.get(
        "disable_parallel_tool_use"
    ):
        found.append(Parameter("tool_choice.disable_parallel_tool_use", "messages", b"true"))
    return tuple(found)


def _tool_choice(value: Any) -> Any:
    """Drop what equals the default, since saying it changes nothing."""
    if not isinstance(value, Mapping):
        return value
    kept = {k: v for k, v in value.items() if k != "disable_parallel_tool_use" and v is not None}
    return None if kept == _TOOL_CHOICE_DEFAULT else kept

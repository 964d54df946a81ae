"""Messages API bodies: tools, then system, then messages.

Normalised away, because the provider does not hash it: ``cache_control`` wherever it stands,
text given as a string instead of a list of one text block, the order of a block's own fields,
fields that are null. Kept, because it is rendered: key order inside tool schemas, tool inputs.
Source of the invalidation levels: the provider's prompt-caching page, September 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from cacheaudit.errors import PromptError
from cacheaudit.model.prompt import Level, Marker, Parameter, Prompt
from cacheaudit.providers.blocks import (
    Draft,
    build,
    decoded_media,
    encode,
    expanding,
    hidden_value,
    list_of,
    object_at,
    own_fields,
    parameters_of,
    text_draft,
)
from cacheaudit.providers.shape import is_messages, may_be_messages

LEVEL_ORDER: Final[tuple[Level, ...]] = ("tools", "system", "messages")

# Field of the body, first level that a change of it invalidates for certain.
_PARAMETERS: Final[tuple[tuple[str, Level], ...]] = (
    ("model", "tools"),
    ("speed", "system"),
    ("output_config.format", "system"),
    ("thinking", "messages"),
    ("output_config.effort", "messages"),
    ("context_management", "messages"),
)
# Saying a default changes nothing.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "speed": "standard",
    "thinking": {"type": "disabled"},
    "output_config.effort": "high",
}
_TOOL_CHOICE_DEFAULT: Final = {"type": "auto"}
_DROPPED: Final = frozenset({"cache_control"})
# Effort and lifetime of a system message inside the conversation are rendered with it.
_MESSAGE_SETTINGS: Final = ("clear_at", "output_config")


class AnthropicProvider:
    """Expands Messages API bodies."""

    name = "anthropic"
    rank = 40

    def accepts(self, body: Mapping[str, Any]) -> bool:
        """Whether a body looks like a Messages API request."""
        return is_messages(body)

    def speaks(self, body: Mapping[str, Any]) -> bool:
        """Whether nothing in a body speaks against the Messages API."""
        return may_be_messages(body)

    def expand(self, body: Mapping[str, Any], previous: Prompt | None = None) -> Prompt:
        """Turn a body into content blocks; see :class:`cacheaudit.model.ports.Provider`."""
        with expanding():
            return build(
                self.name,
                body.get("model"),
                LEVEL_ORDER,
                _parameters(body),
                _drafts(body),
                previous,
                _marker(body.get("cache_control")),
            )


def _drafts(body: Mapping[str, Any]) -> Iterator[Draft]:
    for index, tool in enumerate(list_of(body, "tools")):
        yield _tool(tool, index)
    system = body.get("system")
    if isinstance(system, str):
        if system:
            yield text_draft("system", "system[0]", system, None, None, -1)
    elif system is not None:
        for index, block in enumerate(list_of(body, "system")):
            yield _block(block, "system", f"system[{index}]", None, -1)
    for index, message in enumerate(list_of(body, "messages")):
        yield from _message(message, index)


def _tool(tool: Any, index: int) -> Draft:
    path = f"tools[{index}]"
    tool = object_at(tool, path)
    name = tool.get("name") or tool.get("mcp_server_name") or tool.get("type")
    return Draft(
        "tools",
        path,
        "tool",
        encode(own_fields(tool, _DROPPED)),
        _marker(tool.get("cache_control")),
        name=name if isinstance(name, str) else None,
    )


def _message(message: Any, index: int) -> Iterator[Draft]:
    message = object_at(message, f"messages[{index}]")
    role = message.get("role")
    role = role if isinstance(role, str) else None
    content = message.get("content")
    settings = {k: message[k] for k in _MESSAGE_SETTINGS if message.get(k) is not None}
    if settings:
        canonical = encode({"settings": settings, "role": role})
        path = f"messages[{index}]"
        yield Draft("messages", path, "settings", canonical, None, role=role, message=index)
    if isinstance(content, str):
        if content:
            path = f"messages[{index}].content[0]"
            yield text_draft("messages", path, content, role, None, index)
        return
    if content is None:
        return
    if not isinstance(content, list):
        raise PromptError(f"messages[{index}].content is {type(content).__name__}, not a list.")
    for position, block in enumerate(content):
        yield _block(block, "messages", f"messages[{index}].content[{position}]", role, index)


def _block(block: Any, level: Level, path: str, role: str | None, message: int) -> Draft:
    if isinstance(block, str):
        return text_draft(level, path, block, role, None, message)
    block = object_at(block, path)
    marker = _marker(block.get("cache_control"))
    kind = block.get("type")
    text = block.get("text")
    if kind == "text" and isinstance(text, str) and block.keys() <= _PLAIN_TEXT:
        return text_draft(level, path, text, role, marker, message)
    fields = own_fields(block, _DROPPED)
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
    return Draft(
        level,
        path,
        kind if isinstance(kind, str) else "unknown",
        encode(fields),
        marker,
        role=role,
        name=name if isinstance(name, str) else None,
        message=message,
        media=media,
    )


_PLAIN_TEXT: Final = frozenset({"type", "text", "cache_control"})


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
            fields = own_fields(block, _DROPPED)
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
    identity, size = decoded_media(data)
    return {**source, "data": identity}, size


def _marker(value: Any) -> Marker | None:
    if not isinstance(value, dict):
        return None
    ttl = value.get("ttl")
    return Marker(ttl if isinstance(ttl, str) else None)


def _parameters(body: Mapping[str, Any]) -> tuple[Parameter, ...]:
    found = parameters_of(body, _PARAMETERS, _DEFAULTS)
    servers = body.get("mcp_servers")
    if servers:
        # Their tools are rendered with the others; the value may hold a token.
        found.append(Parameter("mcp_servers", "tools", hidden_value(servers)))
    choice = _tool_choice(body.get("tool_choice"))
    if choice is not None:
        value = msgspec.json.encode(choice, order="sorted")
        found.append(Parameter("tool_choice", "messages", value))
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


PROVIDER = AnthropicProvider()

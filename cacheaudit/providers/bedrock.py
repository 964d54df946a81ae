"""Bedrock Converse bodies: ``cachePoint`` entries are markers on what stands before them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cacheaudit.errors import PromptError
from cacheaudit.model.prompt import Level, Marker, Prompt
from cacheaudit.providers.blocks import (
    Draft,
    build,
    decoded_media,
    encode,
    expanding,
    list_of,
    object_at,
    own_fields,
    parameters_of,
    text_draft,
)
from cacheaudit.providers.shape import is_converse

LEVEL_ORDER: Final[tuple[Level, ...]] = ("tools", "system", "messages")
_PARAMETERS: Final[tuple[tuple[str, Level], ...]] = (
    ("modelId", "tools"),
    ("performanceConfig", "system"),
    ("outputConfig", "system"),
    ("additionalModelRequestFields", "messages"),
    ("toolConfig.toolChoice", "messages"),
)
_DEFAULTS: Final[Mapping[str, Any]] = {"toolConfig.toolChoice": {"auto": {}}}
_NOTHING: Final[frozenset[str]] = frozenset()
_KINDS: Final = {
    "toolUse": "tool_use",
    "toolResult": "tool_result",
    "reasoningContent": "thinking",
    "toolSpec": "tool",
    "systemTool": "tool",
}


class BedrockProvider:
    """Expands Converse bodies."""

    name = "bedrock"
    rank = 20

    def accepts(self, body: Mapping[str, Any]) -> bool:
        """Whether a body looks like a Converse request."""
        return is_converse(body)

    def expand(self, body: Mapping[str, Any], previous: Prompt | None = None) -> Prompt:
        """Turn a body into content blocks; see :class:`cacheaudit.model.ports.Provider`."""
        with expanding():
            return build(
                self.name,
                body.get("modelId") or body.get("model"),
                LEVEL_ORDER,
                tuple(parameters_of(body, _PARAMETERS, _DEFAULTS)),
                _drafts(body),
                previous,
            )


def _drafts(body: Mapping[str, Any]) -> list[Draft]:
    config = body.get("toolConfig")
    drafts: list[Draft] = []
    tools = list_of(config, "tools") if isinstance(config, dict) else []
    _add(drafts, tools, "tools", "toolConfig.tools", None, -1)
    _add(drafts, list_of(body, "system"), "system", "system", None, -1)
    for index, message in enumerate(list_of(body, "messages")):
        message = object_at(message, f"messages[{index}]")
        role = message.get("role")
        path = f"messages[{index}].content"
        content = message.get("content")
        if content is not None and not isinstance(content, list):
            raise PromptError(f"{path} is {type(content).__name__}, not a list.")
        role = role if isinstance(role, str) else None
        _add(drafts, content or [], "messages", path, role, index)
    return drafts


def _add(
    drafts: list[Draft], entries: list[Any], level: Level, path: str, role: str | None, index: int
) -> None:
    """Draft the entries of one list; a cache point marks the block before it."""
    for position, entry in enumerate(entries):
        place = f"{path}[{position}]"
        entry = object_at(entry, place)
        point = entry.get("cachePoint")
        if isinstance(point, dict):
            ttl = point.get("ttl")
            if drafts:
                drafts[-1].marker = Marker(ttl if isinstance(ttl, str) else None)
            continue
        drafts.append(_draft(entry, level, place, role, index))


def _draft(entry: dict[str, Any], level: Level, path: str, role: str | None, index: int) -> Draft:
    text = entry.get("text")
    if isinstance(text, str) and len(entry) == 1:
        return text_draft(level, path, text, role, None, index)
    kind = next(iter(entry), "unknown")
    inner = entry.get(kind)
    fields: dict[str, Any]
    if level == "tools" and isinstance(inner, dict):
        fields = own_fields(inner, _NOTHING)
    else:
        fields = own_fields(entry, _NOTHING)
    media = sum(_replace_media(fields))
    if role is not None:
        fields["role"] = role
    name = None
    if isinstance(inner, dict):
        name = inner.get("name") if level == "tools" else inner.get("toolUseId")
    return Draft(
        level,
        path,
        "tool" if level == "tools" else _KINDS.get(kind, kind),
        encode(fields),
        None,
        role=role,
        name=name if isinstance(name, str) else None,
        message=index,
        media=media,
    )


def _replace_media(fields: dict[str, Any]) -> Iterator[int]:
    """Replace the bytes of pictures and documents by digests, wherever they are nested."""
    for name, value in fields.items():
        if isinstance(value, dict):
            fields[name] = copy = dict(value)
            yield from _replace_media(copy)
        elif isinstance(value, list):
            fields[name] = [dict(item) if isinstance(item, dict) else item for item in value]
            for item in fields[name]:
                if isinstance(item, dict):
                    yield from _replace_media(item)
        elif name == "bytes" and isinstance(value, str):
            fields[name], size = decoded_media(value)
            yield size


PROVIDER = BedrockProvider()

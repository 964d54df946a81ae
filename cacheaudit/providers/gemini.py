"""Gemini generateContent bodies: tools, system instruction, contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cacheaudit.errors import PromptError
from cacheaudit.model.prompt import Level, Prompt
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
from cacheaudit.providers.shape import is_gemini

LEVEL_ORDER: Final[tuple[Level, ...]] = ("tools", "system", "messages")
_PARAMETERS: Final[tuple[tuple[str, Level], ...]] = (
    ("model", "tools"),
    ("cachedContent", "tools"),
    ("cached_content", "tools"),
)
_NOTHING: Final[frozenset[str]] = frozenset()
_KINDS: Final = {
    "functionCall": "tool_use",
    "function_call": "tool_use",
    "functionResponse": "tool_result",
    "function_response": "tool_result",
    "inlineData": "image",
    "inline_data": "image",
    "fileData": "document",
    "file_data": "document",
}


class GeminiProvider:
    """Expands generateContent bodies, in camel case or snake case."""

    name = "gemini"
    rank = 10

    def accepts(self, body: Mapping[str, Any]) -> bool:
        """Whether a body looks like a generateContent request."""
        return is_gemini(body)

    def expand(self, body: Mapping[str, Any], previous: Prompt | None = None) -> Prompt:
        """Turn a body into content blocks; see :class:`cacheaudit.model.ports.Provider`."""
        with expanding():
            return build(
                self.name,
                body.get("model"),
                LEVEL_ORDER,
                tuple(parameters_of(body, _PARAMETERS, {})),
                _drafts(body),
                previous,
            )


def _drafts(body: Mapping[str, Any]) -> Iterator[Draft]:
    for index, tool in enumerate(list_of(body, "tools")):
        yield from _tools(object_at(tool, f"tools[{index}]"), f"tools[{index}]")
    for field in ("systemInstruction", "system_instruction"):
        if body.get(field) is not None:
            yield from _parts(body[field], "system", field, None, -1)
    contents = body.get("contents")
    if isinstance(contents, str):
        contents = [{"role": "user", "parts": [{"text": contents}]}]
    for index, content in enumerate(contents or []):
        yield from _parts(content, "messages", f"contents[{index}]", "user", index)


def _tools(tool: dict[str, Any], path: str) -> Iterator[Draft]:
    rest = dict(tool)
    for field in ("functionDeclarations", "function_declarations"):
        for index, entry in enumerate(list_of(rest, field)):
            place = f"{path}.{field}[{index}]"
            fields = own_fields(object_at(entry, place), _NOTHING)
            name = entry.get("name")
            name = name if isinstance(name, str) else None
            yield Draft("tools", place, "tool", encode(fields), None, name=name)
        rest.pop(field, None)
    if rest:
        fields = own_fields(rest, _NOTHING)
        yield Draft("tools", path, "tool", encode(fields), None, name=next(iter(fields), None))


def _parts(content: Any, level: Level, path: str, role: str | None, index: int) -> Iterator[Draft]:
    if isinstance(content, str):
        yield text_draft(level, f"{path}.parts[0]", content, role, None, index)
        return
    content = object_at(content, path)
    if level == "messages" and isinstance(content.get("role"), str):
        role = content["role"]
    parts = content.get("parts")
    if isinstance(parts, dict):
        parts = [parts]
    if parts is not None and not isinstance(parts, list):
        raise PromptError(f"{path}.parts is {type(parts).__name__}, not a list.")
    for position, part in enumerate(parts or []):
        yield _part(part, level, f"{path}.parts[{position}]", role, index)


def _part(part: Any, level: Level, path: str, role: str | None, index: int) -> Draft:
    if isinstance(part, str):
        return text_draft(level, path, part, role, None, index)
    part = object_at(part, path)
    if part.keys() == {"text"} and isinstance(part["text"], str):
        return text_draft(level, path, part["text"], role, None, index)
    fields = own_fields(part, _NOTHING)
    kind = next((key for key in part if key in _KINDS), None)
    inner = part.get(kind) if kind is not None else None
    media = 0
    if kind in ("inlineData", "inline_data") and isinstance(inner, dict):
        data = inner.get("data")
        if isinstance(data, str):
            identity, media = decoded_media(data)
            fields[kind] = {**inner, "data": identity}
    if role is not None:
        fields["role"] = role
    name = inner.get("id") or inner.get("name") if isinstance(inner, dict) else None
    shown = "thinking" if part.get("thought") is True else _KINDS.get(kind or "", "text")
    return Draft(
        level,
        path,
        shown,
        encode(fields),
        None,
        role=role,
        name=name if isinstance(name, str) else None,
        message=index,
        media=media,
    )


PROVIDER = GeminiProvider()

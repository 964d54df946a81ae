"""Finds the caller's markers, and leaves them out of what is compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict

import msgspec

_FIELD: Final = "cache_control"


class OwnMark(msgspec.Struct, frozen=True, gc=False):
    """A marker that the caller placed on a content block.

    Attributes:
        level: Part of the prompt.
        outer: Index of the tool, system block or message.
        inner: Index inside the message; -1 elsewhere.
        ttl: Lifetime as written; ``None``: the default.
    """

    level: str
    outer: int
    inner: int
    ttl: str | None


class Found(TypedDict):
    """Markers as :class:`~layout.Layout` holds them."""

    marks: tuple[OwnMark, ...]
    automatic: str | None
    markers: int


def bare(item: Any) -> Any:
    """Return a tool, content block or message without markers; never changes it.

    Only places where content stands are looked at: a field of that name inside a tool's schema or
    arguments is no marker.
    """
    if not isinstance(item, dict):
        return item
    kept = {name: value for name, value in item.items() if name != _FIELD}
    content = kept.get("content")
    if isinstance(content, list):
        kept["content"] = [bare(block) for block in content]
    return kept


def own_marks(
    body: Mapping[str, Any],
    tools: Iterable[tuple[int, Any]],
    system: Iterable[tuple[int, Any]],
    messages: Iterable[tuple[int, Any]],
) -> Found:
    """List the markers of a request.

    Args:
        body: The request.
        tools: Its tools in which the field occurs, with their indices.
        system: Its system blocks likewise.
        messages: Its messages likewise.
    """
    found: list[OwnMark] = []
    count = 0
    for level, items in (("tools", tools), ("system", system)):
        for index, item in items:
            count += _take(found, item, level, index, -1, inside=level != "tools")
    for index, message in messages:
        count += _has(message)
        content = message.get("content") if isinstance(message, dict) else None
        for position, block in enumerate(content if isinstance(content, list) else ()):
            count += _take(found, block, "messages", index, position, inside=True)
    automatic = None
    if _has(body):
        count += 1
        automatic = _ttl(body[_FIELD]) or ""
    return Found(marks=tuple(found), automatic=automatic, markers=count)


def _take(
    found: list[OwnMark], item: Any, level: str, outer: int, inner: int, *, inside: bool
) -> int:
    """Note the marker of one block and count all that are in it."""
    count = 0
    parts = item.get("content") if inside and isinstance(item, dict) else None
    lifted = None
    for part in parts if isinstance(parts, list) else ():
        count += _has(part)
        lifted = part[_FIELD] if _has(part) else None
    for part in _list(item, "citations") if inside else ():
        count += _has(part)
    value = item.get(_FIELD) if _has(item) else lifted
    count += _has(item)
    if value is not None:
        found.append(OwnMark(level, outer, inner, _ttl(value)))
    return count


def _list(item: Any, name: str) -> list[Any]:
    value = item.get(name) if isinstance(item, dict) else None
    return value if isinstance(value, list) else []


def _has(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get(_FIELD) is not None


def _ttl(value: Any) -> str | None:
    ttl = value.get("ttl") if isinstance(value, Mapping) else None
    return ttl if isinstance(ttl, str) else None

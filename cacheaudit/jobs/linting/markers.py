"""Finds every cache marker of a body as it was written, also where none may stand.

Only places where content stands are looked at: a property of that name inside a tool's schema or
arguments is no marker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cacheaudit.model.prompt import Prompt

Spot = Literal["block", "tool", "inner", "last_inner", "citation", "loose", "automatic"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A marker.

    Attributes:
        path: What it stands on.
        value: What was written as the marker.
        owner: The object that carries it.
        spot: Kind of place: a content block, a tool, an inner block of a tool result, a citation,
            something that is no content block, or the body itself.
        block: Path of the content block that ends the marked prefix; ``None`` where there is none.
        is_cleared: It stands in a message with ``clear_at``.
    """

    path: str
    value: Any
    owner: Mapping[str, Any]
    spot: Spot
    block: str | None = None
    is_cleared: bool = False

    @property
    def ttl(self) -> Any:
        """The lifetime as written; ``None`` where none is."""
        return self.value.get("ttl") if isinstance(self.value, Mapping) else None


def messages_markers(body: Mapping[str, Any]) -> list[Place]:
    """Find the markers of a Messages API body in render order, the automatic one last."""
    found = [
        place
        for index, tool in _objects(body.get("tools"))
        for place in _own(tool, f"tools[{index}]", "tool")
    ]
    for index, block in _objects(body.get("system")):
        found.extend(_block(block, f"system[{index}]", is_cleared=False))
    for index, message in _objects(body.get("messages")):
        path = f"messages[{index}]"
        is_cleared = message.get("clear_at") is not None
        found.extend(_own(message, path, "loose"))
        for position, block in _objects(message.get("content")):
            found.extend(_block(block, f"{path}.content[{position}]", is_cleared=is_cleared))
    found.extend(_own(body, "", "automatic"))
    return found


def converse_markers(body: Mapping[str, Any]) -> list[Place]:
    """Find the cache points of a Converse body; each marks the entry before it."""
    config = body.get("toolConfig")
    lists = [
        ("toolConfig.tools", config.get("tools") if isinstance(config, Mapping) else None),
        ("system", body.get("system")),
    ]
    lists += [
        (f"messages[{index}].content", message.get("content"))
        for index, message in _objects(body.get("messages"))
    ]
    found: list[Place] = []
    for path, entries in lists:
        before: str | None = None
        for index, entry in _objects(entries):
            place = f"{path}[{index}]"
            point = entry.get("cachePoint")
            if not isinstance(point, Mapping):
                before = place
                continue
            spot: Spot = "block" if before is not None else "loose"
            path_of_point = f"{place}.cachePoint"
            found.append(
                Place(path=path_of_point, value=point, owner=entry, spot=spot, block=before)
            )
    return found


def prompt_markers(prompt: Prompt) -> list[Place]:
    """Take the markers of any other body as its expansion found them."""
    return [
        Place(
            path=block.path,
            value={"ttl": block.marker.ttl} if block.marker.ttl is not None else {},
            owner={},
            spot="tool" if block.kind == "tool" else "block",
            block=block.path,
        )
        for block in prompt.blocks
        if block.marker is not None
    ]


def is_blank_text(block: Mapping[str, Any]) -> bool:
    """Whether a content block is text without any."""
    text = block.get("text")
    return block.get("type") == "text" and (not isinstance(text, str) or not text.strip())


def _block(block: Mapping[str, Any], path: str, *, is_cleared: bool) -> Iterator[Place]:
    inner = block.get("content")
    if block.get("type") == "tool_result" and isinstance(inner, list):
        for index, part in _objects(inner):
            spot: Spot = "last_inner" if index == len(inner) - 1 else "inner"
            yield from _own(part, f"{path}.content[{index}]", spot, path, is_cleared)
            yield from _citations(part, f"{path}.content[{index}]")
    yield from _citations(block, path)
    yield from _own(block, path, "block", path, is_cleared)


def _citations(block: Mapping[str, Any], path: str) -> Iterator[Place]:
    for index, citation in _objects(block.get("citations")):
        yield from _own(citation, f"{path}.citations[{index}]", "citation")


def _own(
    owner: Mapping[str, Any],
    path: str,
    spot: Spot,
    block: str | None = None,
    is_cleared: bool = False,
) -> Iterator[Place]:
    value = owner.get("cache_control")
    if value is None:
        return
    ends = path if spot == "tool" else block
    yield Place(
        path=f"{path}.cache_control" if path else "cache_control",
        value=value,
        owner=owner,
        spot=spot,
        block=ends,
        is_cleared=is_cleared,
    )


def _objects(values: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        for index, value in enumerate(values):
            if isinstance(value, Mapping):
                yield index, value

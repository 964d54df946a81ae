"""Puts cache markers at the places where requests part, within what a provider accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cacheaudit.model.prompt import Prompt
from cacheaudit.providers.shape import is_messages, may_be_messages
from cacheaudit.simulate.edits._rewrite import tail_marker

_MOST: Final = 4
_API: Final = "anthropic"
_PATH: Final = re.compile(r"(tools|system|messages)\[(\d+)\](?:\.content\[(\d+)\])?$")


def marked(body: Mapping[str, Any], prompt: Prompt, ends: Sequence[int]) -> Mapping[str, Any]:
    """Return a body with markers at content blocks, the deepest first while there is room.

    Where all four places are taken, the deepest end takes that of the nearest marker in front of
    it, which it serves as well. Where the content blocks cannot be marked, nothing changes.

    Args:
        body: A body of the Messages API; it is not changed.
        prompt: The same, expanded.
        ends: Positions of content blocks.
    """
    if not is_messages(body) and not (prompt.provider == _API and may_be_messages(body)):
        return body
    there = set(prompt.marked)
    if prompt.automatic_marker is not None:
        there.add(len(prompt.blocks) - 1)
    wanted = [end for end in sorted(set(ends), reverse=True) if end not in there]
    if not wanted or _PATH.match(prompt.blocks[wanted[0]].path) is None:
        return body
    room = _MOST - len(prompt.marked) - (prompt.automatic_marker is not None)
    given_up = -1
    if room <= 0:
        in_front = [index for index in prompt.marked if index < wanted[0]]
        if not in_front:
            return body
        given_up, room = in_front[-1], 1
    ttl = tail_marker(prompt).ttl
    marker = {"type": "ephemeral"} | ({} if ttl is None else {"ttl": ttl})
    made = dict(body)
    if given_up >= 0:
        made = _changed(made, prompt.blocks[given_up].path, None)
    for end in wanted[:room]:
        made = _changed(made, prompt.blocks[end].path, marker)
    return made


def _changed(body: dict[str, Any], path: str, marker: dict[str, str] | None) -> dict[str, Any]:
    """Copy what leads to a content block, and set or remove its marker."""
    found = _PATH.match(path)
    if found is None:
        return body
    level, outer, inner = found[1], int(found[2]), found[3]
    if inner is None:
        items = _listed(body[level])
        items[outer] = _with(items[outer], marker)
        return {**body, level: items}
    messages = list(body["messages"])
    message = dict(messages[outer])
    content = _listed(message["content"])
    content[int(inner)] = _with(content[int(inner)], marker)
    messages[outer] = {**message, "content": content}
    return {**body, "messages": messages}


def _listed(value: Any) -> list[Any]:
    """Return content as a list; a plain text is a list of one text block to the provider."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else list(value)


def _with(block: Any, marker: dict[str, str] | None) -> Any:
    plain = {"type": "text", "text": block} if isinstance(block, str) else dict(block)
    plain.pop("cache_control", None)
    return plain if marker is None else {**plain, "cache_control": marker}

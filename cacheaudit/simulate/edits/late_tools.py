"""Keep the tools array as it was first sent and declare later tools inside the conversation.

What a later tool costs is its own definition, once, at the place in the conversation where it was
first needed; everything in front of it keeps its identity. Where the API has no such block, a fixed
pair of tools that searches and calls the others does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Prompt
from cacheaudit.simulate.edit import CONTENT, Settings
from cacheaudit.simulate.edits._rewrite import (
    need_change,
    need_prompts,
    rebuilt,
    remade,
    replace,
    with_prompt,
)

_OPENING = b'{"type":"tool_addition","tool_definition":'


class LateTools(Settings, frozen=True, kw_only=True):
    """Keep tools as first declared; add new or changed definitions where they first appear."""

    name: ClassVar[str] = "late-tools"
    title: ClassVar[str] = "Declare later tools inside the conversation, keep the tools array"
    stage: ClassVar[int] = CONTENT + 2

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Rewrite every request whose tools differ from its family's first ones."""
        need_prompts(calls, self.name)
        families: list[_Family] = []
        changed: list[Call] = []
        for call in calls:
            prompt = call.prompt
            if prompt is None or not prompt.at_level("tools"):
                changed.append(call)
                continue
            family = next((f for f in families if f.fits(prompt)), None)
            if family is None:
                family = _Family(prompt)
                families.append(family)
            wanted = self.concerns(call)
            changed.append(with_prompt(call, family.rewritten(prompt)) if wanted else call)
        return need_change(calls, changed, "late-tools: no request changes its tools.")


class _Family:
    """Requests that began with the same tools and the same conversation."""

    def __init__(self, prompt: Prompt) -> None:
        self._base = prompt.at_level("tools")
        self._digests = {block.digest for block in self._base}
        self._names = {block.name for block in self._base}
        self._opening = _opening(prompt)
        # Added tool → the conversation in front of it, by the digests of its content blocks.
        self._added: dict[bytes, tuple[bytes, ...]] = {}

    def fits(self, prompt: Prompt) -> bool:
        """Whether a request continues this family's conversation."""
        names = {block.name for block in prompt.at_level("tools")}
        return _opening(prompt) == self._opening and bool(names & self._names)

    def rewritten(self, prompt: Prompt) -> Prompt:
        """Put the first tools back and declare the others behind the messages known then."""
        tools = prompt.at_level("tools")
        if [b.digest for b in tools] == [b.digest for b in self._base]:
            return prompt
        marker = tools[-1].marker
        base = [replace(block, marker=None) for block in self._base]
        base[-1] = replace(base[-1], marker=marker)
        messages = list(prompt.at_level("messages"))
        seen = tuple(block.digest for block in messages)
        inserted: dict[int, list[ContentBlock]] = {}
        for tool in tools:
            if tool.digest in self._digests:
                continue
            before = self._added.setdefault(tool.digest, seen)
            # A rewritten conversation no longer holds the place: the tool goes to its end.
            place = len(before) if seen[: len(before)] == before else len(seen)
            inserted.setdefault(place, []).append(tool)
        woven = _woven(messages, inserted)
        kept = [block for block in prompt.blocks if block.level == "system"]
        levels = {"tools": base, "system": kept, "messages": woven}
        return rebuilt(prompt, [b for level in prompt.level_order for b in levels[level]])


def _opening(prompt: Prompt) -> bytes | None:
    messages = prompt.at_level("messages")
    return messages[0].digest if messages else None


def _woven(
    messages: list[ContentBlock], inserted: dict[int, list[ContentBlock]]
) -> list[ContentBlock]:
    """Insert tool definitions as content; a marker on the very end moves to the new end."""
    woven: list[ContentBlock] = []
    for place in range(len(messages) + 1):
        for tool in inserted.get(place, ()):
            added = remade(
                tool,
                _OPENING + (tool.canonical or tool.digest.hex().encode()) + b"}",
                level="messages",
                kind="tool_addition",
                role="system",
                message=messages[place - 1].message if place else 0,
                marker=None,
            )
            if place == len(messages) and woven:
                added = replace(added, marker=woven[-1].marker)
                woven[-1] = replace(woven[-1], marker=None)
            woven.append(added)
        if place < len(messages):
            woven.append(messages[place])
    return woven


EDIT = LateTools

"""Move what changes behind everything that is cached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Marker, Prompt
from cacheaudit.simulate.edit import CONTENT, Settings
from cacheaudit.simulate.edits._rewrite import (
    need_change,
    need_prompts,
    rebuilt,
    remade,
    replace,
    with_prompt,
)


class MoveText(Settings, frozen=True, kw_only=True):
    """Send system text that changes as the last content of the request, behind the last marker.

    It is then sent uncached every time and nothing else is lost; no later request repeats it.
    """

    name: ClassVar[str] = "move-text"
    title: ClassVar[str] = "Move volatile system text behind the last marker"
    stage: ClassVar[int] = CONTENT + 4

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Move every system block that has more than one value in its lane."""
        need_prompts(calls, self.name)
        values: dict[tuple[str, int], set[bytes]] = {}
        for call in calls:
            if call.prompt is not None:
                for place, block in enumerate(call.prompt.at_level("system")):
                    values.setdefault((call.lane, place), set()).add(block.digest)
        changed = [self._one(call, values) for call in calls]
        return need_change(calls, changed, "move-text: no system text changes.")

    def _one(self, call: Call, values: dict[tuple[str, int], set[bytes]]) -> Call:
        prompt = call.prompt
        if prompt is None or not self.concerns(call):
            return call
        system = prompt.at_level("system")
        gone = {n for n in range(len(system)) if len(values[call.lane, n]) > 1}
        return with_prompt(call, _moved(prompt, system, gone)) if gone else call


def _moved(prompt: Prompt, system: Sequence[ContentBlock], gone: set[int]) -> Prompt:
    kept: list[ContentBlock] = []
    orphan: Marker | None = None
    for place, block in enumerate(system):
        if place not in gone:
            kept.append(block)
        elif block.marker is not None:
            if kept:
                kept[-1] = replace(kept[-1], marker=kept[-1].marker or block.marker)
            else:
                orphan = block.marker
    tools = list(prompt.at_level("tools"))
    if orphan is not None and tools:
        tools[-1] = replace(tools[-1], marker=tools[-1].marker or orphan)
    messages = list(prompt.at_level("messages"))
    message = messages[-1].message if messages else 0
    for place in sorted(gone):
        block = system[place]
        canonical = block.canonical or block.digest.hex().encode()
        messages.append(
            remade(
                block,
                b'{"role":"user","moved":' + canonical + b"}",
                level="messages",
                message=message,
                role="user",
                marker=None,
            )
        )
    levels = {"tools": tools, "system": kept, "messages": messages}
    moved = rebuilt(prompt, [b for level in prompt.level_order for b in levels[level]])
    if moved.automatic_marker is None:
        return moved
    # An automatic marker would follow the volatile text to the end: it must be set by hand.
    return _marked_before(moved, len(gone))


def _marked_before(prompt: Prompt, behind: int) -> Prompt:
    end = len(prompt.blocks) - behind - 1
    blocks = list(prompt.blocks)
    blocks[end] = replace(blocks[end], marker=blocks[end].marker or prompt.automatic_marker)
    return replace(prompt, blocks=tuple(blocks), automatic_marker=None)


EDIT = MoveText

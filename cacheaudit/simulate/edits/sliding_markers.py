"""Let the markers of the conversation move with its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Marker, Prompt
from cacheaudit.simulate.edit import MARKERS, EditRefused, Settings
from cacheaudit.simulate.edits._rewrite import (
    common_blocks,
    markable,
    marked_at,
    need_prompts,
    remarked,
    room,
    tail_marker,
    with_previous,
    with_prompt,
)


class SlidingMarkers(Settings, frozen=True, kw_only=True):
    """Replace the conversation's markers by one on its last block and one where it ended before.

    Attributes:
        over: Mark the previous end only where more blocks than this were appended: a lookup visits
            20 positions, so a few can be spared.
    """

    name: ClassVar[str] = "sliding-markers"
    title: ClassVar[str] = "Mark the last block of every request, and the previous end"
    stage: ClassVar[int] = MARKERS

    over: int = 15

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Move the markers."""
        need_prompts(calls, self.name)
        changed: list[Call] = []
        for _, call, before in with_previous(calls):
            if call.prompt is None or not self.concerns(call):
                changed.append(call)
                continue
            theirs = before.prompt if before is not None else None
            changed.append(with_prompt(call, self._slid(call.prompt, theirs)))
        return changed

    def _slid(self, prompt: Prompt, before: Prompt | None) -> Prompt:
        marker = tail_marker(prompt)
        old = [i for i in marked_at(prompt) if prompt.blocks[i].level == "messages"]
        bare = remarked(prompt, dict.fromkeys(old))
        tail = markable(bare, len(bare.blocks) - 1)
        if tail < 0 or bare.blocks[tail].level != "messages":
            return prompt
        wanted: dict[int, Marker | None] = {}
        free = room(bare)
        if bare.automatic_marker is None:
            if free < 1:
                raise EditRefused(
                    "sliding-markers: tools and system use all four markers.", "Use `unmark` first."
                )
            wanted[tail] = marker
            free -= 1
        if before is not None and free > 0:
            end = min(common_blocks(bare, before), len(before.blocks)) - 1
            end = markable(bare, end)
            is_inside = end >= 0 and bare.blocks[end].level == "messages"
            if is_inside and tail - end > self.over:
                wanted[end] = marker
        return remarked(bare, wanted)


EDIT = SlidingMarkers

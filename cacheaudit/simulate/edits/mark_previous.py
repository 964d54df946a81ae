"""Mark where the previous request ended, so that a lookup finds its entry however much is new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Marker, Prompt
from cacheaudit.simulate.edit import MARKERS, Settings
from cacheaudit.simulate.edits._rewrite import (
    common_blocks,
    last_marked,
    marked_at,
    need_change,
    need_prompts,
    remarked,
    room,
    tail_marker,
    with_previous,
    with_prompt,
)

# A lookup visits 20 positions; a few can be spared.
_FAR = 15


class MarkPrevious(Settings, frozen=True, kw_only=True):
    """Add a marker on the block that the previous request marked last.

    Where no marker is free and the end lies far back, an older marker of the conversation moves
    there.

    Attributes:
        over: Only where more content blocks than this were appended.
    """

    name: ClassVar[str] = "mark-previous"
    title: ClassVar[str] = "Mark the previous request's last block too"
    stage: ClassVar[int] = MARKERS

    over: int = 0

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Add the markers."""
        need_prompts(calls, self.name)
        changed = list(calls)
        for index, call, before in with_previous(calls):
            if call.prompt is None or before is None or before.prompt is None:
                continue
            if self.concerns(call):
                changed[index] = with_prompt(call, self._marked(call.prompt, before.prompt))
        return need_change(
            calls, changed, "mark-previous: no request extends another, or none has a marker free."
        )

    def _marked(self, prompt: Prompt, before: Prompt) -> Prompt:
        end = last_marked(before)
        is_shared = 0 <= end < common_blocks(prompt, before)
        added = len(prompt.blocks) - 1 - end
        if not is_shared or added <= self.over or prompt.blocks[end].marker is not None:
            return prompt
        wanted: dict[int, Marker | None] = {end: tail_marker(prompt)}
        if room(prompt) < 1:
            older = _older(prompt, end)
            if older is None or added <= _FAR:
                return prompt
            wanted[older] = None
        return remarked(prompt, wanted)


def _older(prompt: Prompt, end: int) -> int | None:
    """Return the conversation's nearest marker in front of a content block."""
    in_front = [i for i in marked_at(prompt) if i < end and prompt.blocks[i].level == "messages"]
    return in_front[-1] if in_front else None


EDIT = MarkPrevious

"""Move a marker off a block that is different in every request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Marker, Prompt
from cacheaudit.simulate.edit import MARKERS, Settings
from cacheaudit.simulate.edits._rewrite import (
    common_blocks,
    markable,
    marked_at,
    need_change,
    need_prompts,
    remarked,
    replace,
    tail_marker,
    with_prompt,
)


class StableMarkers(Settings, frozen=True, kw_only=True):
    """Put the last marker where the prompt ends that the lane's next request repeats."""

    name: ClassVar[str] = "stable-markers"
    title: ClassVar[str] = "Mark the last block that stays the same, not one that changes"
    stage: ClassVar[int] = MARKERS

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Move markers that the next request cannot find."""
        need_prompts(calls, self.name)
        following: dict[str, Prompt] = {}
        changed: list[Call] = []
        for call in reversed(calls):
            prompt, later = call.prompt, following.get(call.lane)
            if prompt is None:
                changed.append(call)
                continue
            following[call.lane] = prompt
            movable = later is not None and self.concerns(call)
            changed.append(with_prompt(call, _moved(prompt, later)) if movable else call)
        changed.reverse()
        return need_change(calls, changed, "stable-markers: every marker stands on stable content.")


def _moved(prompt: Prompt, later: Prompt | None) -> Prompt:
    if later is None:
        return prompt
    end = markable(prompt, common_blocks(prompt, later) - 1)
    lost = [index for index in marked_at(prompt) if index > end]
    is_automatic = prompt.automatic_marker is not None and end < len(prompt.blocks) - 1
    if end < 0 or not (lost or is_automatic):
        return prompt
    markers: dict[int, Marker | None] = dict.fromkeys(lost)
    if prompt.blocks[end].marker is None:
        markers[end] = tail_marker(prompt)
    moved = remarked(prompt, markers)
    return replace(moved, automatic_marker=None) if is_automatic else moved


EDIT = StableMarkers

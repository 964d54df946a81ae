"""Mark where the previous request ended, so that a lookup finds its entry however much is new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt
from cacheaudit.simulate.edit import MARKERS, Settings
from cacheaudit.simulate.edits._rewrite import (
    common_blocks,
    last_marked,
    need_change,
    need_prompts,
    remarked,
    room,
    tail_marker,
    with_previous,
    with_prompt,
)


class MarkPrevious(Settings, frozen=True, kw_only=True):
    """Add a marker on the block that the previous request marked last.

    Attributes:
        over: Only where more content blocks than this were appended.
    """

    name: ClassVar[str] = "mark-previous"
    title: ClassVar[str] = "Mark the previous request's last block too"
    stage: ClassVar[int] = MARKERS

    over: int = 0

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Add the markers where there is room for one."""
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
        if not is_shared or len(prompt.blocks) - 1 - end <= self.over:
            return prompt
        if prompt.blocks[end].marker is not None or room(prompt) < 1:
            return prompt
        return remarked(prompt, {end: tail_marker(prompt)})


EDIT = MarkPrevious

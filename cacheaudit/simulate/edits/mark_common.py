"""Mark the place from which a lane goes another way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt
from cacheaudit.simulate.edit import MARKERS, Settings
from cacheaudit.simulate.edits._rewrite import (
    common_blocks,
    last_marked,
    markable,
    need_change,
    need_prompts,
    remarked,
    room,
    tail_marker,
    with_previous,
    with_prompt,
)


class MarkCommon(Settings, frozen=True, kw_only=True):
    """Let requests mark how far the next one of their lane agrees with them.

    With hindsight: a client cannot know where a user will go back to, but a marker on every turn
    costs nothing and stands there in time.
    """

    name: ClassVar[str] = "mark-common"
    title: ClassVar[str] = "Mark the turn that the conversation later goes back to"
    stage: ClassVar[int] = MARKERS

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Add the markers where there is room for one."""
        need_prompts(calls, self.name)
        changed = {call.id: call for call in calls}
        for _, call, before in with_previous(calls):
            if before is None or before.prompt is None or call.prompt is None:
                continue
            if self.concerns(call):
                last = changed[before.id]
                changed[before.id] = with_prompt(last, _marked(before.prompt, call.prompt))
        return need_change(
            calls,
            [changed[call.id] for call in calls],
            "mark-common: no conversation goes back, or no marker is free.",
        )


def _marked(before: Prompt, after: Prompt) -> Prompt:
    end = markable(before, common_blocks(before, after) - 1)
    if not 0 <= end < last_marked(before) or room(before) < 1:
        return before
    if before.blocks[end].level != "messages" or before.blocks[end].marker is not None:
        return before
    return remarked(before, {end: tail_marker(before)})


EDIT = MarkCommon

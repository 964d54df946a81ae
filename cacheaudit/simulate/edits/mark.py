"""Put a marker where a level ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Marker
from cacheaudit.simulate.edit import MARKERS, Settings
from cacheaudit.simulate.edits._rewrite import (
    markable,
    need_change,
    need_prompts,
    remarked,
    room,
    tail_marker,
    with_prompt,
)


class Mark(Settings, frozen=True, kw_only=True):
    """Add a marker on the last block of a level.

    Attributes:
        level: ``tools``, ``system`` or ``messages``.
        ttl: Its lifetime; absent: as the last marker of the request.
    """

    name: ClassVar[str] = "mark"
    title: ClassVar[str] = "Mark the end of a level"
    stage: ClassVar[int] = MARKERS

    level: Literal["tools", "system", "messages"] = "messages"
    ttl: Literal["5m", "1h"] | None = None

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Add the marker where there is room for one."""
        need_prompts(calls, self.name, sizes=True)
        changed = [self._one(call) for call in calls]
        return need_change(
            calls, changed, f"mark: {self.level} is marked already, absent, or no marker is free."
        )

    def _one(self, call: Call) -> Call:
        prompt = call.prompt
        if prompt is None or not self.concerns(call) or room(prompt) < 1:
            return call
        ends = [i for i, block in enumerate(prompt.blocks) if block.level == self.level]
        end = markable(prompt, ends[-1]) if ends else -1
        if end < 0 or prompt.blocks[end].level != self.level:
            return call
        if prompt.blocks[end].marker is not None:
            return call
        marker = tail_marker(prompt) if self.ttl is None else Marker(self.ttl)
        return with_prompt(call, remarked(prompt, {end: marker}))


EDIT = Mark

"""Take markers away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from cacheaudit.model.call import Call
from cacheaudit.simulate.edit import MARKERS, Settings
from cacheaudit.simulate.edits._rewrite import (
    marked_at,
    need_change,
    need_prompts,
    remarked,
    replace,
    with_prompt,
)


class Unmark(Settings, frozen=True, kw_only=True):
    """Remove the markers of a level; ``all`` switches caching off.

    Attributes:
        level: ``tools``, ``system``, ``messages`` or ``all``.
    """

    name: ClassVar[str] = "unmark"
    title: ClassVar[str] = "Remove markers"
    # Before those that add markers: removing makes room.
    stage: ClassVar[int] = MARKERS - 1

    level: Literal["tools", "system", "messages", "all"] = "all"

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Remove the markers."""
        need_prompts(calls, self.name, sizes=True)
        changed = [self._one(call) for call in calls]
        return need_change(calls, changed, f"unmark: no request marks {self.level}.")

    def _one(self, call: Call) -> Call:
        prompt = call.prompt
        if prompt is None or not self.concerns(call):
            return call
        every = self.level == "all"
        gone = [i for i in marked_at(prompt) if every or prompt.blocks[i].level == self.level]
        bare = remarked(prompt, dict.fromkeys(gone))
        if bare.automatic_marker is not None and self.level in ("all", "messages"):
            bare = replace(bare, automatic_marker=None)
        return with_prompt(call, bare)


EDIT = Unmark

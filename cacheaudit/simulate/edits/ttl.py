"""Keep what is written for another time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Marker, Prompt
from cacheaudit.simulate.edit import LIFETIMES, EditRefused, Settings
from cacheaudit.simulate.edits._rewrite import (
    DEFAULT_TTL,
    TTL_SECONDS,
    need_prompts,
    remarked,
    replace,
    with_prompt,
)


class Ttl(Settings, frozen=True, kw_only=True):
    """Give the markers of one level, or of all, another lifetime.

    Attributes:
        ttl: ``5m`` or ``1h``.
        level: ``tools``, ``system``, ``messages`` or ``all``.
        lanes: ``main``, ``subagents`` or ``all``.
    """

    name: ClassVar[str] = "ttl"
    title: ClassVar[str] = "Keep what is written for another lifetime"
    stage: ClassVar[int] = LIFETIMES

    ttl: Literal["5m", "1h"] = "1h"
    level: Literal["tools", "system", "messages", "all"] = "all"
    lanes: Literal["main", "subagents", "all"] = "all"

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Change the lifetime of existing markers."""
        need_prompts(calls, self.name, sizes=True)
        return [self._one(call) for call in calls]

    def _one(self, call: Call) -> Call:
        is_main = call.lane == "main"
        wanted = self.lanes == "all" or is_main == (self.lanes == "main")
        if call.prompt is None or not wanted or not self.concerns(call):
            return call
        return with_prompt(call, self._set(call.prompt))

    def _set(self, prompt: Prompt) -> Prompt:
        markers: dict[int, Marker | None] = {
            index: Marker(self.ttl)
            for index, block in enumerate(prompt.blocks)
            if block.marker is not None and self.level in ("all", block.level)
        }
        changed = remarked(prompt, markers)
        if changed.automatic_marker is not None and self.level in ("all", "messages"):
            changed = replace(changed, automatic_marker=Marker(self.ttl))
        _check_order(changed)
        return changed


def _check_order(prompt: Prompt) -> None:
    """Refuse what the provider would: a longer lifetime behind a shorter one."""
    shortest = float("inf")
    marks = [(block.path, block.marker) for block in prompt.blocks if block.marker is not None]
    if prompt.automatic_marker is not None:
        marks.append(("the automatic marker", prompt.automatic_marker))
    for path, marker in marks:
        seconds = TTL_SECONDS.get(marker.ttl or DEFAULT_TTL, 0.0)
        if seconds > shortest:
            raise EditRefused(
                f"ttl: {path} would outlive a marker in front of it, which the provider refuses.",
                "Lengthen the levels in front of it too, or use level=all.",
            )
        shortest = seconds


EDIT = Ttl

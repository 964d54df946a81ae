"""Leave thinking, effort and the like as they were in the first request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Parameter
from cacheaudit.simulate.edit import PARAMETERS, Settings
from cacheaudit.simulate.edits._rewrite import (
    need_change,
    need_prompts,
    rebuilt,
    with_prompt,
)

_THINKING = ("thinking", "output_config.effort", "reasoning_effort", "reasoning.effort")


class SteadySettings(Settings, frozen=True, kw_only=True):
    """Keep settings of the cache key at the lane's first value.

    Attributes:
        names: Settings to keep; thinking and effort unless given.
    """

    name: ClassVar[str] = "steady-settings"
    title: ClassVar[str] = "Do not toggle thinking or effort inside a session"
    stage: ClassVar[int] = PARAMETERS + 1

    names: tuple[str, ...] = _THINKING

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Replace later values by the first."""
        need_prompts(calls, self.name)
        first: dict[str, tuple[Parameter, ...]] = {}
        changed: list[Call] = []
        for call in calls:
            prompt = call.prompt
            if prompt is None:
                changed.append(call)
                continue
            mine = tuple(p for p in prompt.parameters if p.name in self.names)
            kept = first.setdefault(call.lane, mine)
            if mine == kept or not self.concerns(call):
                changed.append(call)
                continue
            others = tuple(p for p in prompt.parameters if p.name not in self.names)
            changed.append(with_prompt(call, rebuilt(prompt, prompt.blocks, others + kept)))
        return need_change(
            calls, changed, f"steady-settings: none of {', '.join(self.names)} ever changes."
        )


EDIT = SteadySettings

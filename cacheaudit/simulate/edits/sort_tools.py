"""Send tools in one fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock
from cacheaudit.simulate.edit import CONTENT, Settings
from cacheaudit.simulate.edits._rewrite import (
    need_change,
    need_prompts,
    rebuilt,
    replace,
    with_prompt,
)


class SortTools(Settings, frozen=True, kw_only=True):
    """Sort tool definitions by name; markers stay at their place in the list."""

    name: ClassVar[str] = "sort-tools"
    title: ClassVar[str] = "Send tools sorted by name"
    stage: ClassVar[int] = CONTENT + 1

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Sort the tools of every request."""
        need_prompts(calls, self.name)
        changed = [self._one(call) for call in calls]
        return need_change(calls, changed, "sort-tools: tools are sorted already.")

    def _one(self, call: Call) -> Call:
        prompt = call.prompt
        if prompt is None or not self.concerns(call):
            return call
        tools = [block for block in prompt.blocks if block.level == "tools"]
        ordered = sorted(tools, key=_key)
        if ordered == tools:
            return call
        placed = iter(
            replace(block, marker=place.marker) for block, place in zip(ordered, tools, strict=True)
        )
        blocks = [next(placed) if block.level == "tools" else block for block in prompt.blocks]
        return with_prompt(call, rebuilt(prompt, blocks))


def _key(block: ContentBlock) -> tuple[str, bytes]:
    return (block.name or "", block.canonical or block.digest)


EDIT = SortTools

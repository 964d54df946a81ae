"""Let side calls begin like the conversation that they are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Prompt
from cacheaudit.simulate.edit import CONTENT, Settings
from cacheaudit.simulate.edits._rewrite import (
    need_change,
    need_prompts,
    rebuilt,
    replace,
    with_prompt,
)


class KeepFront(Settings, frozen=True, kw_only=True):
    """Give requests that carry the conversation without its tools the tools and system back.

    Such requests summarise, keep alive or title a conversation. The tools are then declared without
    being used; settings of the key go with them.

    Attributes:
        others: Also requests of other conversations, with the front of the last full request.
    """

    name: ClassVar[str] = "keep-front"
    title: ClassVar[str] = "Send side calls with the tools and system of the conversation"
    stage: ClassVar[int] = CONTENT

    others: bool = False

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Put the front of the last full request in front of every side call behind it."""
        need_prompts(calls, self.name)
        full: dict[tuple[str, bytes], Prompt] = {}
        changed: list[Call] = []
        for call in calls:
            prompt = call.prompt
            opening = None if prompt is None else self._family(prompt)
            if prompt is None or opening is None:
                changed.append(call)
                continue
            known = full.get((call.session, opening))
            if prompt.at_level("tools"):
                full[call.session, opening] = prompt
            if known is None or prompt.at_level("tools") or not self.concerns(call):
                changed.append(call)
                continue
            changed.append(with_prompt(call, _fronted(prompt, known)))
        return need_change(calls, changed, "keep-front: no request leaves out the tools.")

    def _family(self, prompt: Prompt) -> bytes | None:
        return b"" if self.others else _opening(prompt)


def _opening(prompt: Prompt) -> bytes | None:
    messages = prompt.at_level("messages")
    return messages[0].digest if messages else None


def _fronted(prompt: Prompt, known: Prompt) -> Prompt:
    blocks: list[ContentBlock] = []
    for level in prompt.level_order:
        blocks.extend((prompt if level == "messages" else known).at_level(level))
    return replace(rebuilt(prompt, blocks, known.parameters), level_order=known.level_order)


EDIT = KeepFront

"""Write tools and tool inputs in one fixed order of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock
from cacheaudit.simulate.edit import CONTENT, EditRefused, Settings
from cacheaudit.simulate.edits._rewrite import (
    need_change,
    need_prompts,
    rebuilt,
    remade,
    with_prompt,
)

_KINDS = frozenset({"tool", "tool_use", "server_tool_use", "tool_result"})
_sorted = msgspec.json.Encoder(order="sorted").encode


class Normalise(Settings, frozen=True, kw_only=True):
    """Sort the keys of tool schemas, tool inputs and tool results."""

    name: ClassVar[str] = "normalise"
    title: ClassVar[str] = "Serialise tools and tool inputs with sorted keys"
    stage: ClassVar[int] = CONTENT

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Rewrite the content blocks whose keys are not in order."""
        need_prompts(calls, self.name)
        known: dict[bytes, bytes] = {}
        changed = [self._one(call, known) for call in calls]
        return need_change(calls, changed, "normalise: every key is in order already.")

    def _one(self, call: Call, known: dict[bytes, bytes]) -> Call:
        prompt = call.prompt
        if prompt is None or not self.concerns(call):
            return call
        blocks = [_ordered(block, known) for block in prompt.blocks]
        if all(a is b for a, b in zip(blocks, prompt.blocks, strict=True)):
            return call
        return with_prompt(call, rebuilt(prompt, blocks))


def _ordered(block: ContentBlock, known: dict[bytes, bytes]) -> ContentBlock:
    if block.kind not in _KINDS:
        return block
    if not block.canonical:
        raise EditRefused(
            "normalise: the record kept digests of the content, not the content.",
            "Record with bodies to test another serialisation.",
        )
    canonical = known.get(block.digest)
    if canonical is None:
        canonical = known[block.digest] = _sorted(msgspec.json.decode(block.canonical))
    return block if canonical == block.canonical else remade(block, canonical)


EDIT = Normalise

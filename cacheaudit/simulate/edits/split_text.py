"""Split a system text into the part that stays the same and the part that changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Marker
from cacheaudit.simulate.edit import CONTENT, Settings
from cacheaudit.simulate.edits._rewrite import (
    need_change,
    need_prompts,
    rebuilt,
    remade,
    room,
    tail_marker,
    with_prompt,
)


class SplitText(Settings, frozen=True, kw_only=True):
    """Split changing system text where it first differs, and mark the head.

    Sizes of the halves follow their bytes, so they are estimates.

    Attributes:
        least: Bytes that the common head must have to be worth a content block.
    """

    name: ClassVar[str] = "split-text"
    title: ClassVar[str] = "Split volatile system text behind its stable head, and mark the head"
    stage: ClassVar[int] = CONTENT + 5

    least: int = 1024

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Split every changing system text of each lane at the same place."""
        need_prompts(calls, self.name)
        heads = _heads(calls)
        changed = [self._one(call, heads) for call in calls]
        return need_change(
            calls,
            changed,
            "split-text: no kept system text with a stable head changes.",
        )

    def _one(self, call: Call, heads: dict[tuple[str, int], bytes | None]) -> Call:
        prompt = call.prompt
        if prompt is None or not self.concerns(call):
            return call
        marker = tail_marker(prompt) if room(prompt) > 0 else None
        blocks: list[ContentBlock] = []
        place = 0
        for block in prompt.blocks:
            if block.level != "system":
                blocks.append(block)
                continue
            head = heads.get((call.lane, place))
            place += 1
            if head is None or not self.least <= len(head) < len(block.canonical):
                blocks.append(block)
                continue
            blocks.extend(_split(block, len(head), marker))
            marker = None
        if len(blocks) == len(prompt.blocks):
            return call
        return with_prompt(call, rebuilt(prompt, blocks))


def _heads(calls: Sequence[Call]) -> dict[tuple[str, int], bytes | None]:
    """Find the common head of every system text that changes; ``None`` where none does."""
    values: dict[tuple[str, int], set[bytes]] = {}
    for call in calls:
        if call.prompt is not None:
            for place, block in enumerate(call.prompt.at_level("system")):
                values.setdefault((call.lane, place), set()).add(block.canonical)
    return {key: _common_head(texts) if len(texts) > 1 else None for key, texts in values.items()}


def _common_head(texts: set[bytes]) -> bytes:
    first, last = min(texts), max(texts)
    same = 0
    for mine, theirs in zip(first, last, strict=False):
        if mine != theirs:
            break
        same += 1
    return first[:same]


def _split(block: ContentBlock, at: int, marker: Marker | None) -> list[ContentBlock]:
    head, tail = block.canonical[:at], block.canonical[at:]
    tokens = block.tokens
    first = None if tokens is None else tokens * at // len(block.canonical)
    rest = None if tokens is None or first is None else tokens - first
    origin = None if tokens is None else "estimated"
    return [
        remade(block, head, tokens=first, tokens_origin=origin, marker=marker),
        remade(block, tail, tokens=rest, tokens_origin=origin),
    ]


EDIT = SplitText

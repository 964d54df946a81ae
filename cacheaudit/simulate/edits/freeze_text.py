"""Send what changes from request to request with its first value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

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


class FreezeText(Settings, frozen=True, kw_only=True):
    """Replace changed content by its first value.

    A content block counts as changed in place where it stands at the same place of its level (a
    tool: under the same name), is of the same kind, and what stands behind it is the same or ends
    too.

    Attributes:
        level: ``tools``, ``system``, ``messages`` or ``all``.
    """

    name: ClassVar[str] = "freeze-text"
    title: ClassVar[str] = "Send volatile text with one fixed value"
    stage: ClassVar[int] = CONTENT + 3

    level: Literal["tools", "system", "messages", "all"] = "all"

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Freeze each lane by what its first request said."""
        need_prompts(calls, self.name)
        before: dict[str, tuple[Prompt, Prompt]] = {}
        changed: list[Call] = []
        for call in calls:
            prompt = call.prompt
            if prompt is None:
                changed.append(call)
                continue
            frozen, known = prompt, before.get(call.lane)
            if known is not None and self.concerns(call):
                frozen = self._frozen(prompt, *known)
            before[call.lane] = (prompt, frozen)
            changed.append(with_prompt(call, frozen))
        return need_change(calls, changed, "freeze-text: nothing changes in place.")

    def _frozen(self, prompt: Prompt, sent: Prompt, kept: Prompt) -> Prompt:
        """Put into ``prompt`` what ``kept`` says wherever it differs from ``sent`` in place."""
        blocks: list[ContentBlock] = []
        for level in prompt.level_order:
            mine = prompt.at_level(level)
            if self.level not in ("all", level):
                blocks.extend(mine)
            elif level == "tools":
                blocks.extend(_same_names(mine, kept.at_level(level)))
            else:
                blocks.extend(_in_place(mine, sent.at_level(level), kept.at_level(level)))
        same = all(a is b for a, b in zip(blocks, prompt.blocks, strict=True))
        return prompt if same else rebuilt(prompt, blocks)


def _same_names(mine: Sequence[ContentBlock], kept: Sequence[ContentBlock]) -> list[ContentBlock]:
    first: Mapping[str | None, ContentBlock] = {block.name: block for block in kept}
    return [
        _with_value(block, first[block.name]) if block.name and block.name in first else block
        for block in mine
    ]


def _in_place(
    mine: Sequence[ContentBlock], sent: Sequence[ContentBlock], kept: Sequence[ContentBlock]
) -> list[ContentBlock]:
    found: list[ContentBlock] = []
    for index, block in enumerate(mine):
        if index >= len(sent):
            found.append(block)
            continue
        before = sent[index]
        is_same = before.digest == block.digest
        if is_same or (before.kind == block.kind and _goes_on_alike(mine, sent, index)):
            found.append(_with_value(block, kept[index]))
        else:
            found.append(block)
    return found


def _goes_on_alike(mine: Sequence[ContentBlock], sent: Sequence[ContentBlock], index: int) -> bool:
    """Whether the same stands behind a place in both, so that it was changed, not moved."""
    if index + 1 < len(mine) and index + 1 < len(sent):
        return mine[index + 1].digest == sent[index + 1].digest
    if mine[index].level == "system":
        return len(mine) == len(sent)
    # The last message of the earlier request: nothing behind it tells an edit from a new turn, but
    # an edit leaves the place in the conversation alone.
    return mine[index].message == sent[index].message and mine[index].role == sent[index].role


def _with_value(block: ContentBlock, value: ContentBlock) -> ContentBlock:
    if block.digest == value.digest and block.tokens == value.tokens:
        return block
    return replace(
        block,
        canonical=value.canonical,
        digest=value.digest,
        tokens=value.tokens,
        tokens_origin=value.tokens_origin,
        canonical_bytes=value.canonical_bytes,
    )


EDIT = FreezeText

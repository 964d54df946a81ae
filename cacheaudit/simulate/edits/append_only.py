"""Send the conversation as it was sent before, and only append what is new."""

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


class AppendOnly(Settings, frozen=True, kw_only=True):
    """Undo every change of earlier messages; what was inserted goes to the end.

    A conversation that goes on from a summary or from an earlier point is another one and stays as
    it is, unless asked otherwise.

    Attributes:
        summaries: Also go on where a summary took the place of the conversation; the summary itself
            is then sent behind it like anything new.
    """

    name: ClassVar[str] = "append-only"
    title: ClassVar[str] = "Send earlier messages back unchanged and append what is new"
    stage: ClassVar[int] = CONTENT

    summaries: bool = False

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Rebuild each lane's conversation from what it sent first."""
        need_prompts(calls, self.name)
        lanes: dict[str, tuple[Sequence[ContentBlock], list[ContentBlock]]] = {}
        changed: list[Call] = []
        for call in calls:
            prompt = call.prompt
            if prompt is None:
                changed.append(call)
                continue
            mine = prompt.at_level("messages")
            kept = list(mine)
            known = lanes.get(call.lane)
            if known is not None and self.concerns(call):
                kept = _appended(mine, *known, summaries=self.summaries)
            lanes[call.lane] = (mine, kept)
            changed.append(with_prompt(call, _with_messages(prompt, mine, kept)))
        return need_change(calls, changed, "append-only: no earlier message is ever changed.")


def _with_messages(
    prompt: Prompt, mine: Sequence[ContentBlock], kept: Sequence[ContentBlock]
) -> Prompt:
    if len(kept) == len(mine) and all(a is b for a, b in zip(kept, mine, strict=True)):
        return prompt
    blocks: list[ContentBlock] = []
    for level in prompt.level_order:
        blocks.extend(kept if level == "messages" else prompt.at_level(level))
    return rebuilt(prompt, blocks)


def _appended(
    mine: Sequence[ContentBlock],
    sent: Sequence[ContentBlock],
    kept: Sequence[ContentBlock],
    *,
    summaries: bool,
) -> list[ContentBlock]:
    """Continue ``kept``, which stands for ``sent``, by what ``mine`` has and ``sent`` had not."""
    head = 0
    while head < min(len(mine), len(sent)) and mine[head].digest == sent[head].digest:
        head += 1
    if head == len(sent) and len(kept) == len(sent) and _are_equal(kept, sent):
        return list(mine)
    old = [block.digest for block in sent[head:]]
    new = [block.digest for block in mine[head:]]
    from difflib import SequenceMatcher

    parts = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    if len(old) > 1 and not any(tag == "equal" for tag, *_ in parts):
        if not summaries:
            return list(mine)
        return _marked([*(_unmarked(block) for block in kept), *mine[head:]], mine)
    added: list[ContentBlock] = []
    for tag, start, end, first, last in parts:
        if tag == "insert" or tag == "replace":
            is_tail = end == len(old)
            # In the middle a replacement is an edit; at the end what exceeds it is new.
            skip = 0 if tag == "insert" else (end - start if is_tail else last - first)
            added.extend(mine[head + first + skip : head + last])
    gone = set(old)
    added = [block for block in added if block.digest not in gone]
    return _marked([*(_unmarked(block) for block in kept), *added], mine)


def _are_equal(kept: Sequence[ContentBlock], sent: Sequence[ContentBlock]) -> bool:
    return all(a.digest == b.digest for a, b in zip(kept, sent, strict=True))


def _unmarked(block: ContentBlock) -> ContentBlock:
    return block if block.marker is None else replace(block, marker=None)


def _marked(blocks: list[ContentBlock], mine: Sequence[ContentBlock]) -> list[ContentBlock]:
    """Set the request's markers where their content blocks stand now, the last one at the end."""
    wanted = [block for block in mine if block.marker is not None]
    places = {block.digest: index for index, block in enumerate(blocks)}
    for block in wanted[:-1]:
        index = places.get(block.digest)
        if index is not None:
            blocks[index] = replace(blocks[index], marker=block.marker)
    if wanted:
        last = wanted[-1]
        index = len(blocks) - 1 if last is mine[-1] else places.get(last.digest, len(blocks) - 1)
        blocks[index] = replace(blocks[index], marker=last.marker)
    return blocks


EDIT = AppendOnly

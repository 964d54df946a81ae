"""Have requests find what the one before them left in the cache.

For records of usage alone, where it is known how much was not read and not what differed: the
prompt goes on from the one before it, nothing taken out, and what exceeds it is new. Whatever stood
in the way - a changed text or setting, another account, a marker that was missing - is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Prompt, digest
from cacheaudit.simulate.edit import CONTENT, EditRefused, Settings
from cacheaudit.simulate.edits._rewrite import (
    MOST_MARKERS,
    last_marked,
    need_change,
    need_prompts,
    rebuilt,
    replace,
    with_previous,
    with_prompt,
)
from cacheaudit.simulate.request import SKETCH, is_sketch


class KeepPrefix(Settings, frozen=True, kw_only=True):
    """Let each prompt go on from the one before it in its lane.

    A prompt that had become smaller is sent as large as the one before it: what was taken out stays
    in, and so it does in the calls that follow.
    """

    name: ClassVar[str] = "keep-prefix"
    title: ClassVar[str] = "Have each request find what the one before it left in the cache"
    stage: ClassVar[int] = CONTENT

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Join every concerned call to the one before it, and what went on from it."""
        need_prompts(calls, self.name, sizes=True)
        if not any(is_sketch(call.prompt) for call in calls):
            raise EditRefused(
                "keep-prefix: it is for records of usage alone.",
                "Where requests were recorded, take the edit for what differs: append-only, "
                "freeze-text, late-tools.",
            )
        changed = list(calls)
        sent: dict[str, Prompt] = {}
        for index, call, before in with_previous(calls):
            prompt = call.prompt
            if prompt is None or not is_sketch(prompt):
                continue
            old = None if before is None else before.prompt
            new = None if before is None else sent.get(before.id)
            if old is not None and new is not None:
                prompt = self._joined(call, prompt, old, new)
                changed[index] = with_prompt(call, prompt)
            sent[call.id] = prompt
        return need_change(calls, changed, "keep-prefix: every request went on from its parent.")

    def _joined(self, call: Call, prompt: Prompt, old: Prompt, new: Prompt) -> Prompt:
        kept = _cached(old)
        goes_on = _begins_with(prompt, kept)
        if goes_on and new is old:
            return prompt
        if not goes_on and not self.concerns(call):
            return prompt
        head = _cached(new)
        if goes_on:
            return _marked(rebuilt(prompt, [*head, *prompt.blocks[len(kept) :]]), len(head))
        held = sum(block.tokens or 0 for block in head)
        return _marked(rebuilt(prompt, [*head, *_rest(call, prompt, held)]), len(head))


def _cached(prompt: Prompt) -> tuple[ContentBlock, ...]:
    """Content blocks up to the last marker; all of them where the cache needs none."""
    last = last_marked(prompt)
    return prompt.blocks[: last + 1] if last >= 0 else prompt.blocks


def _begins_with(prompt: Prompt, blocks: tuple[ContentBlock, ...]) -> bool:
    mine = prompt.blocks[: len(blocks)]
    return len(mine) == len(blocks) and all(
        a.digest == b.digest for a, b in zip(mine, blocks, strict=True)
    )


def _rest(call: Call, prompt: Prompt, held: int) -> Iterator[ContentBlock]:
    """Yield what a prompt has beyond the one before: up to its last marker, and behind it."""
    last = last_marked(prompt)
    stored = sum(block.tokens or 0 for block in prompt.blocks[: last + 1])
    total = prompt.tokens or 0
    start = held
    for name, end in (("new", stored), ("tail", total)):
        if end <= start:
            continue
        canonical = f"{call.id}/{name}".encode()
        yield ContentBlock(
            level="messages",
            path="",
            kind=SKETCH,
            role="user",
            message=len(prompt.blocks) + (name == "tail"),
            canonical=canonical,
            digest=digest(canonical),
            tokens=end - start,
            tokens_origin="counted",
            marker=prompt.blocks[last].marker if name == "new" else None,
        )
        start = end


def _marked(prompt: Prompt, head: int) -> Prompt:
    """Keep the markers of the front, of the parent's end and of the new end."""
    places = list(prompt.marked)
    spare = len(places) - MOST_MARKERS
    if spare <= 0:
        return prompt
    ends = {head - 1, places[-1]}
    gone = set([place for place in reversed(places) if place not in ends][:spare])
    blocks = tuple(
        replace(block, marker=None) if index in gone else block
        for index, block in enumerate(prompt.blocks)
    )
    return replace(prompt, blocks=blocks)


EDIT = KeepPrefix

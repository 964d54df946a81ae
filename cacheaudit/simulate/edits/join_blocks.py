"""Send many small texts as one content block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, TokenOrigin
from cacheaudit.simulate.edit import CONTENT, Settings
from cacheaudit.simulate.edits._rewrite import (
    need_change,
    need_prompts,
    rebuilt,
    remade,
    with_prompt,
)

_WEAKEST: dict[TokenOrigin | None, int] = {None: 0, "estimated": 1, "counted": 2, "recorded": 3}


class JoinBlocks(Settings, frozen=True, kw_only=True):
    """Join runs of text in one message, so that they take one position of the lookup.

    Attributes:
        over: Only runs of more content blocks than this.
    """

    name: ClassVar[str] = "join-blocks"
    title: ClassVar[str] = "Join many texts of one message into one content block"
    stage: ClassVar[int] = CONTENT + 6

    over: int = 4

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Join the runs, in every request that holds them."""
        need_prompts(calls, self.name)
        changed = [self._one(call) for call in calls]
        why = f"join-blocks: no message holds more than {self.over} texts in a row."
        return need_change(calls, changed, why)

    def _one(self, call: Call) -> Call:
        prompt = call.prompt
        if prompt is None or not self.concerns(call):
            return call
        runs = list(_runs(prompt.blocks))
        if all(len(run) <= self.over for run in runs):
            return call
        blocks: list[ContentBlock] = []
        for run in runs:
            blocks.extend([_joined(run)] if len(run) > self.over else run)
        return with_prompt(call, rebuilt(prompt, blocks))


def _runs(blocks: Sequence[ContentBlock]) -> list[list[ContentBlock]]:
    """Split into runs of text of one message; anything else, and a marker, ends a run."""
    runs: list[list[ContentBlock]] = []
    for block in blocks:
        last = runs[-1][-1] if runs else None
        joins = (
            last is not None
            and block.level == "messages"
            and block.kind == last.kind == "text"
            and block.message == last.message
            and block.role == last.role
            and last.marker is None
        )
        if joins:
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs


def _joined(run: Sequence[ContentBlock]) -> ContentBlock:
    parts = [block.canonical or block.digest for block in run]
    sizes = [block.tokens for block in run]
    known = None if None in sizes else sum(size or 0 for size in sizes)
    origin = min((block.tokens_origin for block in run), key=lambda o: _WEAKEST[o])
    return remade(
        run[0],
        b'{"joined":[' + b",".join(parts) + b"]}",
        marker=run[-1].marker,
        tokens=known,
        tokens_origin=None if known is None else origin,
    )


EDIT = JoinBlocks

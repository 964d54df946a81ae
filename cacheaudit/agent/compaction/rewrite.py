"""Puts the new history together: a summary, what is kept beside it, and the latest messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from cacheaudit.agent.compaction.history import Block, Message, bare, blocks_of, cut, tokens_of
from cacheaudit.agent.compaction.kept import (
    Kept,
    OpenFile,
    Pin,
    carried,
    summary_block,
    tool_changes_in,
    tools_in,
    words_in,
)


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """A history before it is compacted.

    Attributes:
        older: What the summary will stand for, the head of an earlier compaction included.
        recent: What stays.
        before: What an earlier compaction kept.
        dropped: Messages of ``older`` that no compaction has seen yet.
    """

    older: tuple[Message, ...]
    recent: tuple[Message, ...]
    before: Kept
    dropped: tuple[Message, ...]

    @property
    def is_done(self) -> bool:
        """Whether there is nothing that an earlier compaction has not replaced already."""
        return not self.dropped


NOTHING: Final = Parts(older=(), recent=(), before=Kept(), dropped=())


def parts(messages: Sequence[Message], keep_recent: int) -> Parts:
    """Part a history into what is replaced and what stays."""
    found = carried(messages)
    at = cut(found.rest, keep_recent)
    return Parts(
        older=(*found.head, *found.rest[:at]),
        recent=found.rest[at:],
        before=found.kept,
        dropped=found.rest[:at],
    )


def kept_beside(
    found: Parts, pins: Sequence[Pin], files: Sequence[OpenFile], longest: int, original: str
) -> Kept:
    """Collect what stays word for word; pins and files of now replace those of earlier."""
    pinned = {pin.name: pin for pin in (*found.before.pins, *pins)}
    return Kept(
        words=(*found.before.words, *words_in(found.dropped, longest, original)),
        pins=tuple(pinned.values()),
        files=tuple(files),
        tools=tuple(dict.fromkeys((*found.before.tools, *tools_in(found.dropped)))),
    )


def rewritten(
    found: Parts, summary: str, kept: Kept, original: str, compaction: Block | None = None
) -> list[Message]:
    """Return the compacted history; cache markers of what stays are left where they are.

    Args:
        found: The history in parts.
        summary: Text in the place of the older part.
        kept: What stays beside it.
        original: Handle of the original.
        compaction: The provider's own content block, where it made the summary.
    """
    beside = kept.blocks()
    head = [summary_block(summary, original, len(found.older), len(beside)), *beside]
    recent = list(found.recent)
    if recent and recent[0].get("role") == "user":
        first, rest = recent[0], recent[1:]
        opening = {**first, "content": [*head, *blocks_of(first)]}
    else:
        opening, rest = {"role": "user", "content": head}, recent
    changes = [bare(message) for message in tool_changes_in(found.dropped)]
    start: list[Message] = []
    if compaction is not None:
        start.append({"role": "assistant", "content": [compaction]})
    return [*start, opening, *changes, *rest]


def gain(before: Sequence[Message], after: Sequence[Message]) -> int:
    """Return the estimated tokens by which a history has become shorter."""
    return tokens_of(before) - tokens_of(after)

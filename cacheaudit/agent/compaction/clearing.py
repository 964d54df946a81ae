"""Empties old tool results, many at once: each batch makes the provider write what follows anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cacheaudit.agent.compaction.history import Block, Message, blocks_of, tokens_of_block
from cacheaudit.agent.compaction.settings import Clearing

_MARK: Final = "[cleared: "


class Batch(msgspec.Struct, frozen=True):
    """What one clearing would do.

    Attributes:
        ids: Tool calls whose results go.
        first: Index of the first message that changes.
        freed: Tokens that go, placeholders taken off.
    """

    ids: frozenset[str]
    first: int
    freed: int


def batch(
    messages: Sequence[Message], settings: Clearing, pinned: Collection[str] = ()
) -> Batch | None:
    """Choose the results to clear; ``None`` where they would free too little.

    Args:
        messages: The conversation.
        settings: What may go.
        pinned: Ids of tool calls whose results must stay.
    """
    names = {
        str(block.get("id")): str(block.get("name"))
        for message in messages
        for block in blocks_of(message)
        if block.get("type") == "tool_use"
    }
    found = list(_results(messages))
    old = found[: len(found) - settings.keep] if settings.keep else found
    chosen = [
        (index, name, size)
        for index, name, size, cleared in old
        if not cleared
        and size >= settings.smallest
        and name not in pinned
        and names.get(name) not in settings.exclude
    ]
    freed = sum(size - _PLACEHOLDER_TOKENS for _, _, size in chosen)
    if not chosen or freed < settings.at_least:
        return None
    return Batch(frozenset(name for _, name, _ in chosen), chosen[0][0], freed)


_PLACEHOLDER_TOKENS: Final = 40


def _results(messages: Sequence[Message]) -> Iterator[tuple[int, str, int, bool]]:
    for index, message in enumerate(messages):
        for block in blocks_of(message):
            if block.get("type") == "tool_result":
                size = tokens_of_block(block)
                yield index, str(block.get("tool_use_id")), size, _is_cleared(block)


def _is_cleared(block: Block) -> bool:
    inner = blocks_of(block)
    return len(inner) == 1 and str(inner[0].get("text", "")).startswith(_MARK)


def clear(
    messages: Sequence[Message], chosen: Batch, keep: Callable[[Block], str]
) -> list[Message]:
    """Empty the chosen results; calls and results stay in pairs, nothing given is changed.

    Args:
        messages: The conversation.
        chosen: What goes.
        keep: Keeps a result and returns its handle.
    """
    return [
        _without(message, chosen.ids, keep) if index >= chosen.first else message
        for index, message in enumerate(messages)
    ]


def _without(message: Message, ids: frozenset[str], keep: Callable[[Block], str]) -> Message:
    content = message.get("content")
    if not isinstance(content, Sequence) or isinstance(content, str):
        return message
    changed: list[Any] = []
    for block in content:
        is_chosen = (
            isinstance(block, Mapping)
            and block.get("type") == "tool_result"
            and str(block.get("tool_use_id")) in ids
        )
        changed.append(_emptied(block, keep(block)) if is_chosen else block)
    return {**message, "content": changed}


def _emptied(block: Block, handle: str) -> dict[str, Any]:
    size = tokens_of_block(block)
    return {**block, "content": f"{_MARK}about {size:,} tokens, kept as {handle}]"}

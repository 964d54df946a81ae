"""Messages of a conversation: their size, where they may be cut, and what makes them valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cacheaudit.model.tokens import BYTES_PER_TOKEN, IMAGE_TOKENS

Message = Mapping[str, Any]
Block = Mapping[str, Any]
_MEDIA: Final = frozenset({"image", "document"})
_MESSAGE_OVERHEAD: Final = 4


def blocks_of(message: Message) -> list[Block]:
    """Return a message's content blocks; text given as a string is one."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, Sequence):
        return []
    return [
        {"type": "text", "text": block} if isinstance(block, str) else block
        for block in content
        if isinstance(block, str | Mapping)
    ]


def calls_in(message: Message) -> list[str]:
    """Return the ids of the tool calls in a message that the caller has to answer."""
    return [str(b.get("id")) for b in blocks_of(message) if b.get("type") == "tool_use"]


def results_in(message: Message) -> list[str]:
    """Return the ids of the tool calls that a message answers."""
    return [str(b.get("tool_use_id")) for b in blocks_of(message) if b.get("type") == "tool_result"]


def tokens_of_block(block: Block) -> int:
    """Estimate a content block's size in tokens."""
    if block.get("type") in _MEDIA:
        return IMAGE_TOKENS
    bare = {name: value for name, value in block.items() if name != "cache_control"}
    return max(1, round(len(msgspec.json.encode(bare)) / BYTES_PER_TOKEN))


def tokens_of(messages: Sequence[Message]) -> int:
    """Estimate the size of messages in tokens."""
    return sum(
        _MESSAGE_OVERHEAD + sum(tokens_of_block(block) for block in blocks_of(message))
        for message in messages
    )


def places(messages: Sequence[Message]) -> list[int]:
    """Return the indices at which a conversation may be cut.

    What follows a cut begins with a message of the user or of the model, and no tool call is parted
    from its result.
    """
    closed: set[int] = set()
    asked: dict[str, int] = {}
    for index, message in enumerate(messages):
        for name in results_in(message):
            closed.update(range(asked.get(name, -1) + 1, index + 1))
        for name in calls_in(message):
            asked[name] = index
    return [
        index
        for index, message in enumerate(messages)
        if index == 0 or (index not in closed and message.get("role") in ("user", "assistant"))
    ]


def cut(messages: Sequence[Message], keep: int) -> int:
    """Return the index of the first message that stays.

    Args:
        messages: The conversation.
        keep: Tokens that may stay; the last piece that cannot be cut stays in any case.
    """
    found = places(messages)
    sizes = [tokens_of([message]) for message in messages]
    best = found[-1] if found else 0
    for index in reversed(found):
        if sum(sizes[index:]) > keep and index != found[-1]:
            break
        best = index
    return best


def faults(messages: Sequence[Message]) -> list[str]:
    """Say what a Messages API would refuse in a conversation; empty where nothing."""
    return list(_faults(messages))


def _faults(messages: Sequence[Message]) -> Iterator[str]:
    if not messages:
        yield "there are no messages"
        return
    first = blocks_of(messages[0])
    if messages[0].get("role") != "user" and not (first and first[0].get("type") == "compaction"):
        yield "messages[0] is not the user's"
    asked: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        last = index == len(messages) - 1
        if not blocks and not (last and message.get("role") == "assistant"):
            yield f"messages[{index}] is empty"
        if any(block.get("type") == "text" and not block.get("text") for block in blocks):
            yield f"messages[{index}] has an empty text"
        answered = results_in(message)
        if sorted(answered) != sorted(asked):
            yield f"messages[{index}] answers {answered}, asked was {asked}"
        kinds = [block.get("type") == "tool_result" for block in blocks]
        if kinds != sorted(kinds, reverse=True):
            yield f"messages[{index}] has content before a tool result"
        asked = calls_in(message)
        if seen.intersection(asked) or len(set(asked)) < len(asked):
            yield f"messages[{index}] repeats the id of a tool call"
        seen.update(asked)
    if asked and messages[-1].get("role") == "assistant":
        yield "the last tool call has no result"


def bare(message: Message) -> dict[str, Any]:
    """Return a message without cache markers; what has none is shared, not copied."""
    content = message.get("content")
    if isinstance(content, str) or not isinstance(content, Sequence):
        return dict(message)
    return {**message, "content": [_bare_block(block) for block in content]}


def _bare_block(block: Any) -> Any:
    if not isinstance(block, Mapping):
        return block
    inner = block.get("content")
    changed = dict(block) if "cache_control" in block else block
    if isinstance(changed, dict):
        changed.pop("cache_control", None)
    if isinstance(inner, list) and any(
        isinstance(b, Mapping) and "cache_control" in b for b in inner
    ):
        changed = {**changed, "content": [_bare_block(item) for item in inner]}
    return changed

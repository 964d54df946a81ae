"""What stays word for word beside a summary: the user's words, pinned evidence, open files.

They stand as content blocks of the first message, each a tag around JSON, so that a later
compaction can read them back exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cacheaudit.agent.compaction.history import Block, Message, blocks_of
from cacheaudit.model.tokens import BYTES_PER_TOKEN

_HEAD: Final = re.compile(
    r'<conversation_summary original="([^"]*)" messages="\d{1,9}" parts="(\d)">\n'
)
_TAGS: Final = ("user_words", "pinned", "open_files", "tools_loaded")


class Pin(msgspec.Struct, frozen=True):
    """A piece of evidence that must not be lost."""

    name: str
    text: str


class OpenFile(msgspec.Struct, frozen=True):
    """A file that is being worked on, as it is now."""

    path: str
    text: str


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What stays beside a summary.

    Attributes:
        words: What the user said, in order.
        pins: Evidence.
        files: Open files.
        tools: Names of deferred tools that were loaded.
    """

    words: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    files: tuple[OpenFile, ...] = ()
    tools: tuple[str, ...] = ()

    def blocks(self) -> list[Block]:
        """Write them as content blocks; what is empty is left out."""
        parts: tuple[Any, ...] = (self.words, self.pins, self.files, self.tools)
        return [
            {"type": "text", "text": f"<{tag}>\n{msgspec.json.encode(part).decode()}\n</{tag}>"}
            for tag, part in zip(_TAGS, parts, strict=True)
            if part
        ]


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """A history in two parts: what an earlier compaction put at its head, and the rest.

    Attributes:
        head: Messages and content blocks of the earlier compaction, as messages.
        kept: What it kept; empty where there was none.
        original: Handle of what it replaced; ``None`` where there was no compaction.
        rest: The conversation since.
    """

    head: tuple[Message, ...]
    kept: Kept
    original: str | None
    rest: tuple[Message, ...]


def summary_block(summary: str, original: str, messages: int, parts: int) -> Block:
    """Write a summary as a content block that says where the original is.

    Args:
        summary: Its text.
        original: Handle of what it stands for.
        messages: Number of messages that it stands for.
        parts: Number of content blocks behind it that belong to it.
    """
    numbers = f'messages="{messages}" parts="{parts}"'
    head = f'<conversation_summary original="{original}" {numbers}>'
    return {"type": "text", "text": f"{head}\n{summary.strip()}\n</conversation_summary>"}


def carried(messages: Sequence[Message]) -> Carried:
    """Part a history into what an earlier compaction put at its head, and the rest."""
    start = 1 if messages and _is_compaction(messages[0]) else 0
    blocks = blocks_of(messages[start]) if len(messages) > start else []
    text = blocks[0].get("text") if blocks else None
    found = _HEAD.match(text) if isinstance(text, str) else None
    if found is None or messages[start].get("role") != "user":
        return Carried(head=(), kept=Kept(), original=None, rest=tuple(messages))
    values: dict[str, Any] = {}
    end = 1
    for block in blocks[1 : 1 + int(found.group(2))]:
        if (read := _read(block)) is not None:
            values[read[0]] = read[1]
        end += 1
    mine = {**messages[start], "content": list(blocks[:end])}
    rest: list[Message] = []
    if end < len(blocks):
        rest.append({**messages[start], "content": list(blocks[end:])})
    kept = Kept(
        words=tuple(values.get("user_words", ())),
        pins=tuple(Pin(**pin) for pin in values.get("pinned", ())),
        files=tuple(OpenFile(**file) for file in values.get("open_files", ())),
        tools=tuple(values.get("tools_loaded", ())),
    )
    return Carried(
        head=(*messages[:start], mine),
        kept=kept,
        original=found.group(1),
        rest=(*rest, *messages[start + 1 :]),
    )


def _is_compaction(message: Message) -> bool:
    blocks = blocks_of(message)
    return bool(blocks) and blocks[0].get("type") == "compaction"


def _read(block: Block) -> tuple[str, Any] | None:
    text = block.get("text")
    if not isinstance(text, str):
        return None
    for tag, kind in _KINDS.items():
        head, tail = f"<{tag}>\n", f"\n</{tag}>"
        if text.startswith(head) and text.endswith(tail):
            try:
                return tag, msgspec.json.decode(text[len(head) : -len(tail)], type=kind)
            except msgspec.MsgspecError:
                return None
    return None


_KINDS: Final[Mapping[str, Any]] = {
    "user_words": list[str],
    "pinned": list[dict[str, str]],
    "open_files": list[dict[str, str]],
    "tools_loaded": list[str],
}


def words_in(messages: Sequence[Message], longest: int, original: str) -> Iterator[str]:
    """Yield what the user said, tool results apart.

    Args:
        messages: The conversation, without what an earlier compaction put at its head.
        longest: Tokens of one text that are kept; a longer one loses its middle.
        original: Handle of the original, named where something was left out.
    """
    room = max(2, round(longest * BYTES_PER_TOKEN))
    for message in messages:
        if message.get("role") != "user":
            continue
        for block in blocks_of(message):
            text = block.get("text")
            if block.get("type") == "text" and isinstance(text, str) and text.strip():
                yield _shortened(text, room, original)


def _shortened(text: str, room: int, original: str) -> str:
    if len(text) <= room:
        return text
    note = f"\n[{len(text) - room:,} characters left out; the original is {original}]\n"
    return text[: room - room // 2] + note + text[len(text) - room // 2 :]


def tools_in(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the names of deferred tools that tool results have loaded."""
    for message in messages:
        for block in blocks_of(message):
            inner = block.get("content")
            if block.get("type") != "tool_result" or not isinstance(inner, Sequence):
                continue
            for item in inner:
                if isinstance(item, Mapping) and item.get("type") == "tool_reference":
                    yield str(item.get("tool_name"))


def tool_changes_in(messages: Sequence[Message]) -> list[Message]:
    """Return the system messages that add tools to a conversation or take some away."""
    return [
        message
        for message in messages
        if message.get("role") == "system"
        and any(b.get("type") in ("tool_addition", "tool_removal") for b in blocks_of(message))
    ]

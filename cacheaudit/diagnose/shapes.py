"""Sorts the first difference of two prompts by what was done to the prompt.

Every difference has one shape, so that two rules that look at different shapes never speak for the
same tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from cacheaudit.model.change import Change
from cacheaudit.model.prompt import ContentBlock, Level, Prompt

Shape = Literal[
    "parameter",
    "tools_gone",
    "tools_added",
    "tools_removed",
    "tools_reordered",
    "tool_description",
    "tool_schema",
    "key_order",
    "written_otherwise",
    "system_text",
    "system_blocks",
    "moved",
    "inserted",
    "block_dropped",
    "trimmed",
    "message_removed",
    "thinking_dropped",
    "thinking_edited",
    "image_replaced",
    "image_recoded",
    "result_pruned",
    "result_rewritten",
    "summarised",
    "rewound",
    "message_text",
    "other",
]
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_STUB: Final = re.compile(
    r"(?i)\b(cleared|omitted|truncated|elided|removed|pruned|compacted|trimmed|shortened|"
    r"no longer (?:shown|available)|old tool result)\b"
)
_SUMMARY: Final = re.compile(
    r"(?i)\b(summar(?:y|ise|ize|ised|ized)|compact(?:ed|ion)|continued from a previous)\b"
)
# A sliding window leaves the task in place and drops what follows.
_FRONT_MESSAGES: Final = 2
_LOOKED_AT: Final = 64


def shape_of(change: Change, before: Prompt, after: Prompt) -> Shape:
    """Name what was done to the prompt where it first differs."""
    if change.kind == "parameter":
        return "parameter"
    if change.kind == "representation_only":
        return "written_otherwise"
    if change.kind == "key_order_only":
        return "key_order"
    if change.level == "tools":
        return _tools(change, before, after)
    old, new = block_at(before, change), block_at(after, change)
    if change.level == "system":
        is_text = old is not None and new is not None and old.kind == new.kind == "text"
        return "system_text" if is_text and change.kind == "edited" else "system_blocks"
    return _messages(change, before, after, old, new)


def block_at(prompt: Prompt, change: Change) -> ContentBlock | None:
    """Return the content block at the place of a change, if the level still has one there."""
    at = change.blocks_before
    if at < len(prompt.blocks) and prompt.blocks[at].level == change.level:
        return prompt.blocks[at]
    return None


def names_of(prompt: Prompt) -> list[str]:
    """List the names of the tools."""
    return [block.name or "" for block in prompt.at_level("tools")]


def _tools(change: Change, before: Prompt, after: Prompt) -> Shape:
    if change.kind == "edited":
        field = change.path.rpartition("]")[2]
        return "tool_description" if field.endswith(".description") else "tool_schema"
    mine, theirs = Counter(names_of(before)), Counter(names_of(after))
    if not theirs:
        return "tools_gone"
    if mine == theirs:
        return "tools_reordered"
    return "tools_removed" if theirs < mine else "tools_added"


def _messages(
    change: Change,
    before: Prompt,
    after: Prompt,
    old: ContentBlock | None,
    new: ContentBlock | None,
) -> Shape:
    if change.kind in ("moved", "added"):
        return "moved" if change.kind == "moved" else "inserted"
    if old is None:
        return "other"
    if change.kind == "removed":
        return _removed(change, before, after, old)
    if change.kind != "edited" or new is None:
        return "other"
    return _edited(change, before, after, old, new)


def _removed(change: Change, before: Prompt, after: Prompt, old: ContentBlock) -> Shape:
    if old.kind in _THINKING:
        return "thinking_dropped"
    if _keeps_its_message(change, before, after, old):
        return "block_dropped"
    if new_messages(after) * 2 < new_messages(before) and not recurs(change, before, after):
        return "summarised"
    first = before.at_level("messages")[0].message
    return "trimmed" if old.message - first <= _FRONT_MESSAGES else "message_removed"


def _keeps_its_message(change: Change, before: Prompt, after: Prompt, old: ContentBlock) -> bool:
    """Whether other content blocks of the message are still there."""
    at = change.blocks_before
    if at and before.blocks[at - 1].message == old.message:
        return True
    others = {b.digest for b in before.blocks[at + 1 :] if b.message == old.message}
    return bool(others) and at < len(after.blocks) and after.blocks[at].digest in others


def _edited(
    change: Change, before: Prompt, after: Prompt, old: ContentBlock, new: ContentBlock
) -> Shape:
    if old.kind in _THINKING:
        return "thinking_edited" if new.kind in _THINKING else "thinking_dropped"
    if old.media_bytes and not new.media_bytes:
        return "image_replaced"
    if old.media_bytes and new.media_bytes and old.kind == new.kind:
        return "image_recoded"
    if old.kind == new.kind == "tool_result" and old.name == new.name:
        return "result_pruned" if _is_stub(old, new) else "result_rewritten"
    behind = _behind(before.blocks, change)
    if len(behind) > 1 and not recurs(change, before, after):
        return "summarised" if _is_summary(before, after, old, new) else "rewound"
    return "message_text" if old.kind == new.kind else "other"


def _behind(blocks: Sequence[ContentBlock], change: Change) -> Sequence[ContentBlock]:
    return [b for b in blocks[change.blocks_before + 1 :] if b.level == "messages"]


def recurs(change: Change, before: Prompt, after: Prompt) -> bool:
    """Whether anything that stood behind the change is sent again."""
    mine = {block.digest for block in _behind(before.blocks, change)}
    return any(block.digest in mine for block in after.blocks[change.blocks_before :])


def new_messages(prompt: Prompt) -> int:
    """Count the messages."""
    return len({block.message for block in prompt.blocks if block.level == "messages"})


def _is_stub(old: ContentBlock, new: ContentBlock) -> bool:
    if new.size * 2 < old.size:
        return True
    return new.size < old.size and _STUB.search(text_of(new)) is not None


def _is_summary(before: Prompt, after: Prompt, old: ContentBlock, new: ContentBlock) -> bool:
    if new_messages(after) >= new_messages(before):
        return False
    has_word = _SUMMARY.search(text_of(new)) is not None
    return has_word or (old.role != new.role and new_messages(after) * 2 < new_messages(before))


def text_of(block: ContentBlock | None, field: str = "") -> str:
    """Return the text of a content block, or of one of its fields; empty where none is known."""
    if block is None or not block.canonical:
        return ""
    value: Any = msgspec.json.decode(block.canonical)
    if block.level == "tools":
        for part in filter(None, field.split(".")):
            value = value.get(part) if isinstance(value, dict) else None
        return value if isinstance(value, str) else ""
    if not isinstance(value, dict):
        return ""
    if isinstance(value.get("text"), str):
        return str(value["text"])
    inner = value.get("content")
    if isinstance(inner, str):
        return inner
    if isinstance(inner, list):
        texts = (part.get("text") for part in inner[:_LOOKED_AT] if isinstance(part, dict))
        return "\n".join(words for words in texts if isinstance(words, str))
    return ""


def levels_in_front(prompt: Prompt, level: Level) -> tuple[Level, ...]:
    """Levels that are rendered before another one."""
    return prompt.level_order[: prompt.level_order.index(level)]

"""Finds text that looks made anew for each request: clock times, ids, random digits, git status.

What is found is named by kind and place only; the text itself is never repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from cacheaudit.model.prompt import ContentBlock

CLOCK: Final = "a clock time"
ID: Final = "an id"
HEX: Final = "random digits"
GIT: Final = "a git status"

_DATE: Final = r"\d{4}-\d{2}-\d{2}"
_PATTERNS: Final = (
    (CLOCK, re.compile(rf"{_DATE}[T ]\d{{1,2}}:\d{{2}}(:\d{{2}})?")),
    (CLOCK, re.compile(r"\d{1,2} [A-Z][a-z]{2,8},? \d{4},? (at )?\d{1,2}:\d{2}")),
    (CLOCK, re.compile(r"[A-Z][a-z]{2,8} \d{1,2},? (\d{4},? )?(at )?\d{1,2}:\d{2}(:\d{2})?")),
    (CLOCK, re.compile(r"\d{1,4}[/.]\d{1,2}[/.]\d{2,4},? \d{1,2}:\d{2}")),
    (CLOCK, re.compile(r"(?i)\b(time|timestamp|epoch|now)\b\W{1,5}1[6-9]\d{8}(\d{3})?\b")),
    (CLOCK, re.compile(r"(?i)\b(time|now|clock)\b\W{1,5}(is\W{1,5})?\d{1,2}:\d{2}(:\d{2})?\b")),
    (ID, re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")),
    (
        ID,
        re.compile(
            r"(?i)\b(nonce|(request|trace|run|turn|correlation)[ _-]?id)\b"
            r"['\"]?\s*[=:]\s*['\"]?(?=[\w-]*\d)[\w-]{4,}"
        ),
    ),
    (HEX, re.compile(r"\b\w{2,24}=(?=[0-9a-f]*\d)[0-9a-f]{5,}\b")),
    (HEX, re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{16,}\b")),
    (GIT, re.compile(r"(?i)\bgit[ _]?status\b\W")),
    (GIT, re.compile(r"(?m)^On branch \S+$")),
    (GIT, re.compile(r"(?m)^(?: M|M |MM|A |\?\?|D | D) \S+$\n(?: M|M |MM|A |\?\?|D | D) \S+$")),
)
# Words in front of a value that make it an example and no fact of this request.
_EXAMPLE: Final = re.compile(r"(?i)(e\.g\.?|example|such as|format|like|i\.e\.?|pattern)\W*$")
_CLUE: Final = re.compile(r"(?i)\b(now|current(ly)?|as of|today|generated|updated|warning)\b")
_BEFORE: Final = 24
_SHORT: Final = 300


class Volatile(msgspec.Struct, frozen=True):
    """Something that looks made anew.

    Attributes:
        index: Content block, in render order.
        path: Where in the body.
        kind: What it is, in words.
        offset: Byte of the text at which it begins.
    """

    index: int
    path: str
    kind: str
    offset: int


def find_volatile(blocks: tuple[ContentBlock, ...]) -> list[Volatile]:
    """Find the first volatile text of each content block that a later request sends anew.

    Tools count where a clue stands beside the value, since schemas are full of examples. Messages
    count in a conversation of one turn only: what stands in the history stays as it is.
    """
    has_history = any(b.level == "messages" and b.role in ("assistant", "model") for b in blocks)
    found: list[Volatile] = []
    for index, block in enumerate(blocks):
        if block.level == "messages" and has_history:
            continue
        for path, text in _texts(block):
            hit = _first(text, block.level)
            if hit is not None:
                found.append(Volatile(index, path, hit[0], len(text[: hit[1]].encode())))
                break
    return found


def _first(text: str, level: str) -> tuple[str, int] | None:
    hits = [
        (match.start(), kind)
        for kind, pattern in _PATTERNS
        for match in pattern.finditer(text)
        if _counts(text, match.start(), level)
    ]
    if not hits:
        return None
    start, kind = min(hits)
    return kind, start


def _counts(text: str, start: int, level: str) -> bool:
    if _EXAMPLE.search(text[max(0, start - _BEFORE) : start]):
        return False
    if level == "tools":
        return _CLUE.search(text[max(0, start - 4 * _BEFORE) : start + 8]) is not None
    if level == "messages" and len(text) > _SHORT:
        return _CLUE.search(text[max(0, start - _BEFORE) : start + 8]) is not None
    return True


def _texts(block: ContentBlock) -> Iterator[tuple[str, str]]:
    if not block.canonical or block.kind not in ("text", "tool"):
        return
    fields = msgspec.json.decode(block.canonical)
    if not isinstance(fields, dict):
        return
    if block.kind == "text":
        if isinstance(fields.get("text"), str):
            yield block.path, fields["text"]
        return
    yield from _descriptions(fields, block.path)


def _descriptions(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Walk the descriptions of a tool and of its parameters."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "description" and isinstance(item, str):
                yield f"{path}.{key}", item
            else:
                yield from _descriptions(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _descriptions(item, f"{path}[{index}]")

"""Bounds on the number of tokens of a prompt whose tokens nobody has counted.

A check that says *surely too short* rests on the upper bound, one that says *surely long* on the
lower one; in between nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cacheaudit.model.prompt import ContentBlock
from cacheaudit.model.tokens import tokens_of

# Letters of one token, at the least, over present tokenizers and European languages.
_LETTERS_PER_TOKEN = 2.8
# Digits and signs often share a token, with each other or with letters.
_SIGNS_PER_TOKEN = 0.9
# Characters outside ASCII take up to this many tokens each.
_TOKENS_PER_OTHER = 3.0
_FRAME = 12  # role, delimiters and ids around a content block
_TOOLS_FRAME = 1_000  # the provider's own text that comes with tools
_LARGEST_IMAGE = 5_000
_LEAST_SHARE = 0.6
_UNKNOWN = frozenset({"document", "image", "audio", "compaction", "redacted_thinking"})


class Bounds(msgspec.Struct, frozen=True):
    """Bounds on a size in tokens.

    Attributes:
        low: At least so many.
        middle: Best estimate.
        high: At most so many; ``None`` where nothing can be said.
    """

    low: int
    middle: int
    high: int | None


def bounds(blocks: Sequence[ContentBlock]) -> Bounds:
    """Bound the size of content blocks; recorded counts are taken as they are."""
    middle, origin = tokens_of(blocks)
    if blocks and origin != "estimated":
        return Bounds(middle, middle, middle)
    high = 0.0
    is_open = False
    for block in blocks:
        most = _most(block)
        if most is None:
            is_open = True
        else:
            high += most
    if any(block.level == "tools" for block in blocks):
        high += _TOOLS_FRAME
    low = int(middle * _LEAST_SHARE)
    return Bounds(low, middle, None if is_open else max(middle, round(high)))


def _most(block: ContentBlock) -> float | None:
    if block.tokens is not None and block.tokens_origin == "recorded":
        return block.tokens
    if block.kind == "image":
        return _LARGEST_IMAGE
    if block.kind in _UNKNOWN or block.media_bytes or not block.canonical:
        return None
    if block.level == "tools" and _has_no_schema(block):
        return None  # a server's tool: its definition is not in the body
    text = block.canonical.decode(errors="replace")
    letters = sum(1 for c in text if c.isascii() and (c.isalpha() or c == " "))
    other = sum(1 for c in text if not c.isascii())
    signs = len(text) - letters - other
    return (
        letters / _LETTERS_PER_TOKEN + signs / _SIGNS_PER_TOKEN + other * _TOKENS_PER_OTHER + _FRAME
    )


def _has_no_schema(block: ContentBlock) -> bool:
    return not any(
        name in block.canonical
        for name in (b'"input_schema"', b'"parameters"', b'"inputSchema"', b'"format"')
    )

"""Identity of a prefix: of everything that stands before a place, and what it depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from local_backend.rules.base import Block, Level, Prompt

SIZE = 16


def fields(*parts: bytes, tag: bytes) -> bytes:
    """Digest of byte strings, framed so that no two lists of them give the same one."""
    state = hashlib.blake2b(digest_size=SIZE, person=tag)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def root(prompt: Prompt) -> bytes:
    """Where the chains of a model and a workspace start."""
    return fields(prompt.workspace.encode(), prompt.model.encode(), tag=b"rules-root")


def prefixes(prompt: Prompt) -> list[bytes]:
    """Identity of the prefix up to each content block, the block included.

    The settings of a level enter where that level begins, so a change of them leaves the levels
    above alone.
    """
    state, level, found = root(prompt), -1, []
    for block in prompt.blocks:
        for entered in range(level + 1, block.level + 1):
            state = fields(state, bytes([entered]), prompt.settings[entered], tag=b"rules-level")
        level = max(level, block.level)
        kind = block.kind.encode()
        # Only the digest at the end has no known length, so no two contents look the same.
        framed = b"%b%c%c%b%b" % (state, block.level, len(kind), kind, block.digest)
        state = hashlib.blake2b(framed, digest_size=SIZE).digest()
        found.append(state)
    return found


def level_digest(blocks: Iterable[Block], level: Level) -> bytes:
    """Digest of the content of one level."""
    parts = [part for b in blocks if b.level == level for part in (b.kind.encode(), b.digest)]
    return fields(*parts, tag=b"rules-content")


def sums(blocks: Iterable[Block]) -> list[int]:
    """Tokens up to each content block, the block included."""
    total, found = 0, []
    for block in blocks:
        total += block.tokens
        found.append(total)
    return found

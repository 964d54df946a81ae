"""Text that stands for recorded content: as long as wanted, and nothing of what was said.

Every character is one byte, and none is written differently inside JSON, so a byte-level tokenizer
makes one token of each.
"""

from __future__ import annotations

import hashlib
from typing import Final

ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_TABLE: Final = bytes(ord(ALPHABET[value & 63]) for value in range(256))
_ROOT: Final = b"\0" * 16


def filler(identity: bytes, length: int) -> str:
    """Draw a text from an identity; a shorter one is the beginning of a longer one."""
    return hashlib.shake_128(identity).digest(max(length, 0)).translate(_TABLE).decode("ascii")


class Leads:
    """Sees to it that contents which follow the same prefix differ in their first character.

    Two random texts share their first character once in 64 times, and an engine that matches token
    by token would then read a token that the record never shared. Up to 64 followers of one prefix
    are told apart; beyond that the drawn character stays.
    """

    def __init__(self) -> None:
        self._taken: dict[bytes, dict[bytes, str]] = {}

    def lead(self, prefix: bytes, identity: bytes) -> str:
        """Return the first character of a content behind a prefix; the same for the same pair."""
        known = self._taken.setdefault(prefix, {})
        found = known.get(identity)
        if found is None:
            drawn = filler(identity, 1)
            used = set(known.values())
            start = ALPHABET.index(drawn)
            rotated = ALPHABET[start:] + ALPHABET[:start]
            found = known[identity] = next((c for c in rotated if c not in used), drawn)
        return found


def follow(prefix: bytes, identity: bytes) -> bytes:
    """Identify a prefix with one more content behind it."""
    return hashlib.blake2b(prefix + identity, digest_size=16).digest()


def root() -> bytes:
    """Identify the empty prefix."""
    return _ROOT

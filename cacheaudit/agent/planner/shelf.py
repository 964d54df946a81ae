"""What the provider's cache should hold of what was sent, as far as this program knows."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_KEPT: Final = 16_384
# An answer that was not seen to begin is taken to have begun after so many seconds.
_PATIENCE: Final = 60.0


class Entry:
    """One prefix that was written."""

    __slots__ = ("at", "expires", "owner", "ready", "ttl")

    def __init__(self, ttl: str, at: float, expires: float, owner: str) -> None:
        self.ttl = ttl
        self.at = at
        self.expires = expires
        self.owner = owner
        self.ready = False


class Shelf:
    """Entries by the identity of their prefix; the least recently used go first.

    Args:
        kept: How many are kept.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def alive(self, key: bytes, now: float) -> Entry | None:
        """Return an entry that a request sent now may read."""
        entry = self._entries.get(key)
        if entry is None or entry.expires <= now:
            return None
        return entry if entry.ready or now - entry.at > _PATIENCE else None

    def put(self, key: bytes, ttl: str, seconds: float, now: float, owner: str) -> None:
        """Note that a request writes a prefix."""
        old = self._entries.get(key)
        if old is not None and old.expires > now:
            if now + seconds > old.expires:
                old.ttl, old.expires = ttl, now + seconds
        else:
            self._entries[key] = Entry(ttl, now, now + seconds, owner)
        self._entries.move_to_end(key)
        while len(self._entries) > self._kept:
            self._entries.popitem(last=False)

    def renew(self, key: bytes, now: float, seconds: dict[str, float]) -> None:
        """Note that a request reads a prefix: it lives on for its own lifetime."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.expires = max(entry.expires, now + seconds.get(entry.ttl, 0.0))
            self._entries.move_to_end(key)

    def begun(self, keys: tuple[bytes, ...], owner: str) -> None:
        """Note that the answer to a request has begun: what it wrote can be read."""
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None and entry.owner == owner:
                entry.ready = True

    def lost(self, keys: tuple[bytes, ...]) -> None:
        """Forget prefixes that were found not to be there."""
        for key in keys:
            self._entries.pop(key, None)

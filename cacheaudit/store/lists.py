"""Lists of content blocks: each stored once, as its difference to an earlier one.

The key of a list is a running digest over its entries, so it does not depend on how the list was
split, and equal lists of any two sessions are one row.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from operator import is_
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from cacheaudit.errors import StoreError
from cacheaudit.model.delta import Entry, entries, shared
from cacheaudit.model.prompt import DIGEST_BYTES, Prompt
from cacheaudit.store.tables import block_lists

_START = b"\0" * DIGEST_BYTES
_KEPT = 256
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Entry, ...]).decode


class Listing(msgspec.Struct, frozen=True):
    """A list of content blocks; ``states[i]`` is the key of its first ``i + 1`` entries."""

    items: tuple[Entry, ...]
    states: tuple[bytes, ...]

    @property
    def key(self) -> bytes:
        """Identity of the whole list."""
        return self.states[-1] if self.states else _START


EMPTY = Listing((), ())


def listing(prompt: Prompt, previous: Listing = EMPTY, before: Prompt | None = None) -> Listing:
    """List a prompt's content blocks, taking over what it shares with ``previous``.

    Args:
        prompt: The prompt.
        previous: The list before it.
        before: The prompt of which that is the list, where it is still there.
    """
    count = 0 if before is None else _same(prompt, before)
    rest = prompt
    if count:
        blocks, digests = prompt.blocks[count:], prompt.prefix_digests[count:]
        rest = msgspec.structs.replace(prompt, blocks=blocks, prefix_digests=digests)
    count += shared(rest, previous.items[count:])
    return _extended(previous, count, entries(prompt, count))


def _same(prompt: Prompt, before: Prompt) -> int:
    """Count the leading content blocks that are the very same objects, behind the same ones."""
    mine, theirs = prompt.blocks, before.blocks
    count = min(len(mine), len(theirs))
    if not all(map(is_, mine, theirs)):
        pairs = enumerate(zip(mine, theirs, strict=False))
        count = next(index for index, (one, other) in pairs if one is not other)
    return count if prompt.prefix_digests[:count] == before.prefix_digests[:count] else 0


def node(whole: Listing, base: Listing) -> dict[str, Any]:
    """Return the row of a list, as its difference to ``base``, which must be stored."""
    count = common(whole, base)
    return {
        "key": whole.key,
        "base": base.key if count else None,
        "shared": count,
        "length": len(whole.items),
        "items": _encode(whole.items[count:]),
    }


def common(a: Listing, b: Listing) -> int:
    """Count the leading entries that two lists share."""
    low, high = 0, min(len(a.states), len(b.states))
    while low < high:
        middle = (low + high + 1) // 2
        if a.states[middle - 1] == b.states[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


class Lists:
    """Reads lists back, keeping the latest ones, since the next one usually builds on them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: OrderedDict[bytes, Listing] = OrderedDict()

    def get(self, key: bytes) -> Listing:
        """Return a list.

        Raises:
            StoreError: It, or one that it builds on, is not in the database.
        """
        rows: list[Any] = []
        at: bytes | None = key
        while at is not None and at not in self._kept:
            row = self._connection.execute(
                sa.select(block_lists).where(block_lists.c.key == at)
            ).one_or_none()
            if row is None:
                raise StoreError(
                    f"Content-block list {at.hex()} is missing from the database.",
                    "The database is damaged: import the sessions again into a new one.",
                )
            rows.append(row)
            at = row.base
        found = EMPTY if at is None else self._kept[at]
        for row in reversed(rows):
            found = _extended(found, row.shared, _decode(row.items))
            self._keep(row.key, found)
        return found

    def _keep(self, key: bytes, found: Listing) -> None:
        self._kept[key] = found
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)


def _extended(previous: Listing, count: int, new: Sequence[Entry]) -> Listing:
    states = list(previous.states[:count])
    state = states[-1] if states else _START
    for entry in new:
        state = hashlib.blake2b(state + _encode(entry), digest_size=DIGEST_BYTES).digest()
        states.append(state)
    return Listing((*previous.items[:count], *new), tuple(states))

"""What a finer grain of look-up costs and saves: counted on paper, and measured on the indexes."""

from __future__ import annotations

from dataclasses import dataclass

from local_backend.kvcache.caches import make_cache
from local_backend.kvcache.keys import KEY_BYTES, Namespace, TokenKey
from local_backend.kvcache.pages import PagePool


@dataclass(frozen=True, slots=True)
class Grain:
    """One grain, by calculation. Only whole groups of tokens have an identity.

    Attributes:
        group: Tokens in a group.
        identities: Identities that a document needs.
        identity_bytes: Bytes of all of them.
        reused: Tokens of a second prompt that need no computation.
        recomputed: Tokens that agree and are computed again all the same.
        computed: All tokens of the second prompt that are computed.
    """

    group: int
    identities: int
    identity_bytes: int
    reused: int
    recomputed: int
    computed: int


def calculate(
    group: int, document: int, prompt: int, common: int, *, id_bytes: int = KEY_BYTES
) -> Grain:
    """What a grain means for a document and a prompt that follows it for a while.

    Args:
        group: Tokens in a group.
        document: Tokens of the document.
        prompt: Tokens of the second prompt.
        common: Tokens at its beginning that are cached.
        id_bytes: Size of one identity.
    """
    count = document // group
    reused = common // group * group
    return Grain(group, count, count * id_bytes, reused, common - reused, prompt - reused)


@dataclass(frozen=True, slots=True)
class Measured:
    """What an index did for two prompts, the second of which leaves the first somewhere.

    Attributes:
        cache: Name of the index.
        page_size: Tokens in a page.
        entries: Records after the first prompt.
        entries_after: Records after both.
        reused: Tokens of the second prompt that were found.
        updates: Records whose counters or links were changed by both.
    """

    cache: str
    page_size: int
    entries: int
    entries_after: int
    reused: int
    updates: int


def measure(cache: str, page_size: int, length: int, common: int) -> Measured:
    """Send two prompts through an index, and count.

    Args:
        cache: Name of the index.
        page_size: Tokens in a page.
        length: Tokens of both prompts.
        common: Tokens that they share at the beginning.
    """
    pool = PagePool(2 * length)
    index = make_cache(cache, pool, page_size)
    space = Namespace("grain")
    entries = []
    reused = 0
    for other in (0, 1):
        tokens = [position if position < common or not other else -1 for position in range(length)]
        key = TokenKey(space, [length + 1 if token < 0 else token for token in tokens])
        match = index.match(key, length)
        reused = match.length
        pin = index.pin(match)
        index.extend(pin, key, pool.allocate(length // page_size - pin.pages))
        index.unpin(pin)
        entries.append(index.entries)
    return Measured(cache, page_size, entries[0], entries[1], reused, index.books.updates)

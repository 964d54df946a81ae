"""The prefix caches by name, and their policies."""

from __future__ import annotations

from local_backend.kvcache.base import PrefixCache
from local_backend.kvcache.costs import Cost
from local_backend.kvcache.evict import Lfu, Lru, Policy
from local_backend.kvcache.hashed import HashCache
from local_backend.kvcache.naive import NaiveCache
from local_backend.kvcache.pages import PagePool
from local_backend.kvcache.radix import RadixCache

CACHES: dict[str, type[PrefixCache]] = {
    cache.name: cache for cache in (RadixCache, HashCache, NaiveCache)
}


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Lru, Lfu, Cost)}


def policy_named(name: str) -> Policy:
    """A fresh policy by its name.

    Raises:
        ValueError: There is none of that name.
    """
    maker = POLICIES.get(name)
    if maker is None:
        raise ValueError(f"no eviction policy {name!r}; there are {', '.join(sorted(POLICIES))}")
    return maker()


def make_cache(
    name: str, pool: PagePool, page_size: int, *, policy: str = "lru", tails: bool = False
) -> PrefixCache:
    """A prefix cache over a pool.

    Args:
        name: ``radix``, ``hash`` or ``naive``.
        pool: Its pages.
        page_size: Tokens in a page.
        policy: ``lru``, ``lfu`` or ``cost``.
        tails: Whether a part of one more page may be copied; the hash index cannot.

    Raises:
        ValueError: A name is unknown.
    """
    maker = CACHES.get(name)
    if maker is None:
        raise ValueError(f"no prefix cache {name!r}; there are {', '.join(sorted(CACHES))}")
    return maker(pool, page_size, policy_named(policy), tails=tails and maker.can_tails)

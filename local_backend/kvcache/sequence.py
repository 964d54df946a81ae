"""One request's share of the cache."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from local_backend.kvcache.groups import Table
from local_backend.kvcache.keys import TOKEN_BYTES, TokenKey


class Container(StrEnum):
    """How a sequence gets the pages that it will need later."""

    DYNAMIC = "dynamic"
    """One at a time, as it grows. Growing can fail."""
    STATIC = "static"
    """All at admission, up to its longest possible length. Growing cannot fail within it."""


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """What the cache did for a request. The first three add up to its prompt.

    Attributes:
        resident: Prompt tokens whose KV was in memory, copied ones included.
        restored: Prompt tokens whose KV came from a tier.
        computed: Prompt tokens that had to be computed.
        copied: Of the resident ones, those that were copied out of a page of someone else.
        published: Tokens whose pages the cache took over from this request.
        restored_pages: By tier, how many pages came from it.
        restore_s: Seconds spent restoring.
        limited_by: The group of layers that allowed the least; empty where all allowed as much.
    """

    resident: int
    restored: int
    computed: int
    copied: int = 0
    published: int = 0
    restored_pages: tuple[tuple[str, int], ...] = ()
    restore_s: float = 0.0
    limited_by: str = ""

    @property
    def hit(self) -> int:
        """Prompt tokens that need no computation."""
        return self.resident + self.restored


class Sequence:
    """A request that was admitted. Only the manager changes it.

    Attributes:
        name: Unique among the live ones.
        key: Its tokens, as far as they are known.
        tables: Its pages, one table for each group, in the groups' order.
        prompt: Tokens that it came with.
        computed: Tokens whose KV is complete.
        container: How it grows.
        capacity: Longest length of a static container.
        is_live: Whether it was not released yet.
    """

    container = Container.DYNAMIC
    capacity = 0
    is_live = True
    computed = 0
    resident = 0
    copied = 0
    restored = 0
    restored_pages: Mapping[str, int] = MappingProxyType({})
    restore_s = 0.0
    limited_by = ""
    published_pages = 0

    def __init__(self, name: str, key: TokenKey) -> None:
        self.name = name
        self.key = key
        self.tables: list[Table] = []
        self.prompt = len(key.data) // TOKEN_BYTES

    def __len__(self) -> int:
        return len(self.key)

    def pages(self, group: int = 0) -> array[int]:
        """The page table of a group, as attention reads it. Do not change it."""
        return self.tables[group].pages

    def usage(self, page_size: int) -> CacheUsage:
        """What the cache did for it so far."""
        return CacheUsage(
            resident=self.resident,
            restored=self.restored,
            computed=self.prompt - self.resident - self.restored,
            copied=self.copied,
            published=self.published_pages * page_size,
            restored_pages=tuple(sorted(self.restored_pages.items())),
            restore_s=self.restore_s,
            limited_by=self.limited_by,
        )

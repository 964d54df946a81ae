"""Replays traces of block hashes through the cache manager, at any size of memory.

A trace names the KV blocks of each prompt by numbers; equal numbers mean equal prefixes up to that
block. Each number stands for one page here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from local_backend.errors import RequestTooLargeError
from local_backend.kvcache.coordinator import make_groups
from local_backend.kvcache.keys import Namespace, TokenKey
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.specs import simple_group


@dataclass(frozen=True, slots=True)
class TraceResult:
    """What a replay found.

    Attributes:
        requests: Prompts replayed.
        blocks: KV blocks in all of them.
        hits: Blocks found in the cache.
        evicted: Blocks evicted.
        too_large: Prompts that did not fit into the memory at all; their blocks are misses.
    """

    requests: int
    blocks: int
    hits: int
    evicted: int
    too_large: int

    @property
    def hit_ratio(self) -> float:
        """Hits over blocks."""
        return self.hits / self.blocks if self.blocks else 0.0


def read_block_trace(path: Path, field: str = "hash_ids") -> Iterator[list[int]]:
    """The block numbers of each line of a JSON Lines trace.

    Raises:
        ValueError: A line has none.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            record = json.loads(line)
            ids = record.get(field) if isinstance(record, dict) else None
            if not isinstance(ids, list):
                raise ValueError(f"line {number} of {path.name} has no list {field!r}")
            yield ids


def replay_blocks(
    prompts: Iterable[Sequence[int]], pages: int, *, policy: str = "lru", cache: str = "radix"
) -> TraceResult:
    """Send prompts one after the other through a cache of a limited size.

    Args:
        prompts: Block numbers of each.
        pages: Blocks that the memory holds.
        policy: Order of eviction.
        cache: Which prefix cache.
    """
    groups = make_groups([simple_group(1, 1)], {"full": pages}, cache=cache, policy=policy)
    manager = CacheManager(groups)
    namespace = Namespace("trace").root()
    requests = blocks = hits = too_large = 0
    for prompt in prompts:
        requests += 1
        blocks += len(prompt)
        key = TokenKey(namespace, prompt)
        try:
            sequence = manager.admit("prompt", key, hit_limit=len(prompt)) if len(key) else None
        except RequestTooLargeError:
            too_large += 1
            continue
        if sequence is None:
            continue
        hits += sequence.resident
        manager.commit(sequence, len(prompt))
        manager.release(sequence)
    evicted = sum(group.pool.total - group.pool.available for group in groups)
    evicted = blocks - hits - evicted
    return TraceResult(requests, blocks, hits, evicted, too_large)

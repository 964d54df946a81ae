"""Engines that run here: full KV blocks of some tokens each, chained, dropped by age of use.

A KV block is known by the content block in which it ends, so two prompts share the KV blocks that
end inside their shared content blocks. The last token of a prompt is always computed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.machine import Kind
from cacheaudit.simulate.request import Outcome, SimRequest
from cacheaudit.simulate.switches import Switches

_Block = tuple[str, bytes, int]


class LocalRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules in force.

    Attributes:
        block_tokens: Tokens of a KV block.
        capacity: KV blocks that fit; ``None``: all of them.
    """

    block_tokens: int = 16
    capacity: int | None = None


def local_rules(facts: Rules, switches: Switches) -> LocalRules:
    """Put dated facts and switches together."""
    del switches
    return LocalRules(block_tokens=max(1, facts.integer("kv_block_tokens", 16)))


class LocalMachine:
    """State of one engine. Requests must come in order of their start."""

    name = "local"

    def __init__(self) -> None:
        self._kept: OrderedDict[_Block, float] = OrderedDict()

    def step(self, request: SimRequest, rules: LocalRules) -> Outcome:
        """Take one request and say what was found."""
        blocks = list(_kv_blocks(request, rules.block_tokens))
        notes: set[str] = set()
        found = 0
        for block in blocks:
            readable = self._kept.get(block)
            if readable is None:
                break
            if readable > request.at:
                notes.add("not_yet_readable")
                break
            found += 1
        found = min(found, max(0, request.total - 1) // rules.block_tokens)
        read = found * rules.block_tokens
        self._keep(blocks, request.readable_at, rules.capacity)
        return Outcome(
            read=read,
            writes={},
            uncached=request.total - read,
            hit=_last_block(request, read),
            notes=tuple(sorted(notes)),
        )

    def _keep(self, blocks: list[_Block], readable: float, capacity: int | None) -> None:
        """Note a use, the head last: of one chain the tail goes first."""
        kept = self._kept
        for block in reversed(blocks):
            kept.setdefault(block, readable)
            kept.move_to_end(block)
        while capacity is not None and len(kept) > capacity:
            kept.popitem(last=False)


def _kv_blocks(request: SimRequest, size: int) -> list[_Block]:
    blocks: list[_Block] = []
    index, sizes = 0, request.sizes
    for number in range(request.total // size):
        end = (number + 1) * size
        while sizes[index] < end:
            index += 1
        blocks.append((request.scope, request.digests[index], number))
    return blocks


def _last_block(request: SimRequest, read: int) -> int:
    """Return the last content block that was found whole."""
    low, high = 0, len(request.digests)
    while low < high:
        middle = (low + high) // 2
        if request.sizes[middle] <= read:
            low = middle + 1
        else:
            high = middle
    return low - 1


KIND: Final = Kind("local", LocalMachine, local_rules)

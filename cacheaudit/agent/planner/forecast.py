"""What a request with given markers would read and write, by the rules of the cache.

Lookups count every content block as a position: where a provider counts a run of tool calls as one,
more is read than is foretold here, never less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cacheaudit.agent.planner.layout import SERVER_RESULTS, Layout
from cacheaudit.agent.planner.shelf import Shelf


class CacheRules(msgspec.Struct, frozen=True):
    """The rules that matter for placing markers.

    Attributes:
        minimum: Tokens that a prefix needs to be kept.
        positions: Content blocks that a lookup visits, the marked one included.
        most: Markers that a request may carry.
        seconds: Lifetimes by name.
        default: Lifetime of a marker that names none.
        server_writes: Results of server tools behind the last marker are written for 5 minutes.
    """

    minimum: int = 1024
    positions: int = 20
    most: int = 4
    seconds: Mapping[str, float] = {}
    default: str = "5m"
    server_writes: bool = True


class Forecast(msgspec.Struct, frozen=True):
    """What should come of a request.

    Attributes:
        hit: Block up to which the prefix is read; -1: none.
        read: Tokens read.
        writes: Tokens written, by lifetime.
        total: Tokens of the whole request.
        written: Blocks whose prefixes are written, with their lifetimes.
        renewed: Blocks whose prefixes live on.
    """

    hit: int
    read: int
    writes: Mapping[str, int]
    total: int
    written: tuple[tuple[int, str], ...] = ()
    renewed: tuple[int, ...] = ()


def reach(
    layout: Layout, index: int, shelf: Shelf, now: float, positions: int, floor: int = -1
) -> int:
    """Return the block of the longest readable prefix that a lookup from ``index`` finds, or -1."""
    for place in range(index, max(floor, index - positions, -1), -1):
        if shelf.alive(layout.keys[place], now) is not None:
            return place
    return -1


def longest(layout: Layout, shelf: Shelf, now: float) -> int:
    """Return the block of the longest readable prefix of all, or -1."""
    return reach(layout, len(layout.keys) - 1, shelf, now, len(layout.keys))


def forecast(
    layout: Layout,
    marks: Sequence[tuple[int, str]],
    shelf: Shelf,
    now: float,
    rules: CacheRules,
    scale: float = 1.0,
) -> Forecast:
    """Play a request.

    Args:
        layout: The request.
        marks: Marked blocks in render order, with their lifetimes.
        shelf: What the cache holds.
        now: Start of the request.
        rules: Rules of the cache.
        scale: Tokens of the provider for one of ours.
    """
    sizes = layout.sizes
    total = sizes[-1] if sizes else 0
    if not marks:
        return Forecast(-1, 0, {}, total)
    marks = _with_server_results(layout, marks, rules)
    hit = -1
    for index, _ in reversed(marks):
        hit = reach(layout, index, shelf, now, rules.positions)
        if hit >= 0:
            break
    read = sizes[hit] if hit >= 0 else 0
    last_long = last = read
    written: list[tuple[int, str]] = []
    renewed = [hit] if hit >= 0 else []
    for index, ttl in marks:
        if sizes[index] * scale < rules.minimum:
            continue
        if index < hit and shelf.alive(layout.keys[index], now) is not None:
            renewed.append(index)
        if index != hit:
            written.append((index, ttl))
        if index > hit:
            last = max(last, sizes[index])
            if ttl == "1h":
                last_long = max(last_long, sizes[index])
    writes = {}
    if last_long > read:
        writes["1h"] = last_long - read
    if last > last_long:
        writes["5m"] = last - last_long
    return Forecast(hit, read, writes, total, tuple(written), tuple(renewed))


def _with_server_results(
    layout: Layout, marks: Sequence[tuple[int, str]], rules: CacheRules
) -> list[tuple[int, str]]:
    """Add the marker that the provider sets on results of its own tools."""
    found = list(marks)
    if rules.server_writes:
        last = found[-1][0]
        for index in range(len(layout.blocks) - 1, last, -1):
            if layout.blocks[index].kind in SERVER_RESULTS:
                found.append((index, "5m"))
                break
    return found


def keep(
    found: Forecast, layout: Layout, shelf: Shelf, now: float, rules: CacheRules, owner: str
) -> tuple[bytes, ...]:
    """Note in the shelf what a request does; returns the keys that it writes."""
    seconds = dict(rules.seconds)
    for index in found.renewed:
        shelf.renew(layout.keys[index], now, seconds)
    for index, ttl in found.written:
        shelf.put(layout.keys[index], ttl, seconds.get(ttl, 300.0), now, owner)
    return tuple(layout.keys[index] for index, _ in found.written)

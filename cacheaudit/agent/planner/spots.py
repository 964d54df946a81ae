"""Names the places of a request that are worth marking, the most useful first."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from cacheaudit.agent.planner.forecast import CacheRules, longest
from cacheaudit.agent.planner.layout import Layout, common
from cacheaudit.agent.planner.memory import Line
from cacheaudit.agent.planner.shelf import Shelf

Role = Literal["tools", "system", "shared", "history", "tail"]
FRONT: Final = frozenset({"tools", "system"})
# A level that changed so often in a row is taken to change with every request.
UNSTEADY: Final = 2


class Candidate(msgspec.Struct, frozen=True):
    """A place.

    Attributes:
        role: Why it is worth marking.
        index: Content block.
        anchor: It ends, or lies closely behind, a prefix that can be read now.
    """

    role: Role
    index: int
    anchor: bool = False


def candidates(
    layout: Layout,
    line: Line,
    shelf: Shelf,
    now: float,
    rules: CacheRules,
    scale: float,
    *,
    with_tail: bool = True,
) -> list[Candidate]:
    """Return the places in order of use, each block at most once.

    Args:
        layout: The request.
        line: The line of conversation, as it was before this request.
        shelf: What the cache holds.
        now: Start of the request.
        rules: Rules of the cache.
        scale: Tokens of the provider for one of ours.
        with_tail: Whether the end may be marked.
    """
    end = _steady_end(layout, line) if with_tail else layout.front - 1
    tail = _markable(layout, end, layout.front)
    is_unsteady = max(line.churn.values()) >= UNSTEADY
    found: list[Candidate] = []
    if tail is not None and with_tail and not is_unsteady:
        found.append(Candidate("tail", tail))
    limit = tail if found and tail is not None else len(layout.blocks)
    history = _history(layout, line, shelf, now, rules, limit)
    is_far = history is not None and (
        not found or not history.anchor or limit - history.index >= rules.positions
    )
    if history is not None and is_far:
        found.append(history)
    found += _front(layout, line, "system", shelf, now)
    if found and found[0].role == "tail" and line.layout is None:
        found += _shared(layout, limit)
    found += _front(layout, line, "tools", shelf, now)
    found += [history] if history is not None and not is_far else []
    return _fit(found, layout, rules, scale)


def _fit(
    found: list[Candidate], layout: Layout, rules: CacheRules, scale: float
) -> list[Candidate]:
    """Drop places whose prefix is too short to be kept, and second mentions of a block."""
    kept: dict[int, Candidate] = {}
    for item in found:
        is_long = layout.sizes[item.index] * scale >= rules.minimum
        if (is_long or item.anchor) and item.index not in kept:
            kept[item.index] = item
    return list(kept.values())


def _steady_end(layout: Layout, line: Line) -> int:
    """Return the last block that the next request is expected to repeat."""
    end = len(layout.blocks)
    if layout.roles and layout.roles[-1] == "assistant":
        end = layout.ends[-2] if len(layout.ends) > 1 else layout.front
    elif line.steady_loose:
        end = max(layout.front, end - line.loose)
    return end - 1


def _markable(layout: Layout, index: int, least: int) -> int | None:
    """Return the last block up to ``index`` that may carry a marker."""
    while index >= least:
        if layout.blocks[index].markable:
            return index
        index -= 1
    return None


def _history(
    layout: Layout, line: Line, shelf: Shelf, now: float, rules: CacheRules, limit: int
) -> Candidate | None:
    """Return where to find what earlier requests wrote, else where this one parts from the last."""
    anchor = longest(layout, shelf, now)
    if anchor >= layout.front:
        for index in range(anchor, min(anchor + rules.positions, limit)):
            if layout.blocks[index].markable:
                return Candidate("history", index, anchor=True)
        return None
    if line.layout is None:
        return None
    parting = shared_blocks(layout, line.layout) - 1
    last = _markable(layout, min(parting, limit - 1), layout.front)
    return None if last is None else Candidate("history", last)


def shared_blocks(one: Layout, other: Layout) -> int:
    """Count the leading blocks whose prefixes two requests share, by bisection."""
    low, high = 0, min(len(one.keys), len(other.keys))
    while low < high:
        middle = (low + high + 1) // 2
        if one.keys[middle - 1] == other.keys[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


def _shared(layout: Layout, tail: int) -> list[Candidate]:
    """Return where the opening of a new line may part from that of its siblings."""
    before = _markable(layout, tail - 1, layout.front)
    if before is None or layout.blocks[before].outer != layout.blocks[tail].outer:
        return []
    return [Candidate("shared", before)]


def _front(layout: Layout, line: Line, level: Role, shelf: Shelf, now: float) -> list[Candidate]:
    """Return the last block of a level that was not seen to change with every request."""
    start = 0 if level == "tools" else layout.tool_count
    count = layout.tool_count if level == "tools" else layout.front - start
    before = line.layout
    if before is not None and line.churn["tools"] >= UNSTEADY and level == "system":
        return []
    if before is not None and line.churn[level] >= UNSTEADY:
        mine, theirs = (
            (layout.tools, before.tools) if level == "tools" else (layout.system, before.system)
        )
        count = min(count, common(mine, theirs))
    index = _markable(layout, start + count - 1, start)
    if index is None:
        return []
    return [Candidate(level, index, shelf.alive(layout.keys[index], now) is not None)]

"""What a call could at best have read, from the bodies of the calls before it.

A lookup walks back from each marker of the request over at most 20 positions and finds what an
earlier request marked. Lifetimes are not looked at here: what differs is judged, not when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.model.call import Call
from cacheaudit.model.change import common_prefix
from cacheaudit.model.prompt import ContentBlock, Prompt
from cacheaudit.model.tokens import estimate
from cacheaudit.providers.facts import Rules, rules

LOOKBACK: Final = 20
# Twenty blocks of some hundred tokens; a turn that adds less rarely adds twenty positions.
MANY_NEW_TOKENS: Final = 2_560
_RUNS: Final = frozenset({"tool_use", "tool_result"})
_NOT_MARKABLE: Final = frozenset({"thinking", "redacted_thinking", "settings"})
# Recorded sizes are exact but for the provider's own text around tools; estimates are shares of a
# recorded total, good to an eighth of it.
_SLACK: Final = 64
_ESTIMATE: Final = 8
_LEAST: Final = 1_024
_STEP: Final = 2_048 + 128


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a prompt an earlier call can have left in the cache.

    Attributes:
        blocks: Content blocks of it.
        tokens: Their size.
        marked: It ends at a marker of an earlier request, so that exactly this should be read.
        estimated: The size is estimated.
        below: How far below ``tokens`` a read may lie and still agree.
        above: How far above.
        source: Position of the earlier call, -1 where there is none.
    """

    blocks: int
    tokens: int
    marked: bool
    estimated: bool
    below: int
    above: int
    source: int = -1

    def agrees(self, read: int) -> bool:
        """Whether a read is what should have been read."""
        return self.tokens - self.below <= read <= self.tokens + self.above


def markers(prompt: Prompt) -> list[int]:
    """List the content blocks whose ends a request marks, the automatic marker included."""
    found = [index for index, block in enumerate(prompt.blocks) if block.marker is not None]
    if prompt.automatic_marker is not None:
        end = len(prompt.blocks) - 1
        while end >= 0 and prompt.blocks[end].kind in _NOT_MARKABLE:
            end -= 1
        if end >= 0 and end not in found:
            found.append(end)
    return found


def window(blocks: Sequence[ContentBlock], mark: int, *, collapse: bool) -> list[int]:
    """List the content blocks that a lookup from a marker can end on, the marked one first."""
    visited: list[int] = []
    positions = 0
    run: str | None = None
    for index in range(mark, -1, -1):
        kind = blocks[index].kind
        if not (collapse and kind in _RUNS and kind == run):
            positions += 1
            if positions > LOOKBACK:
                break
        visited.append(index)
        run = kind
    return visited


def position(blocks: Sequence[ContentBlock], mark: int, block: int, *, collapse: bool) -> int:
    """Say at which position of the lookup from a marker a content block stands; from 1."""
    kinds = [one.kind for one in blocks[block : mark + 1]]
    joined = sum(a == b and a in _RUNS for a, b in pairwise(kinds)) if collapse else 0
    return len(kinds) - joined


def facts_of(call: Call) -> Rules | None:
    """Return the cache rules in force for a call; those of today where its times are no dates."""
    at = None if call.relative_time else call.at
    return rules(call.provider, call.model, at, call.surface)


def collapses(call: Call) -> bool:
    """Whether a run of tool calls is one position of a lookup: so on some surfaces, by date."""
    facts = facts_of(call)
    return facts is not None and facts.flag("collapse_runs")


def reach(ctx: Context, index: int, *, explicit: bool, unlimited: bool = False) -> Reach | None:
    """Work out what a call could have read; ``None`` without a body.

    Args:
        ctx: The session.
        index: Position of the call.
        explicit: Its cache works with markers.
        unlimited: As if a lookup went back to the beginning, whatever the request marks.
    """
    call = ctx.session.calls[index]
    prompt = call.prompt
    if prompt is None or not prompt.blocks:
        return None
    stored = _stored(ctx)
    marks = markers(prompt) if explicit else []
    found, source = -1, -1
    if marks and stored.has_markers:
        places = _everything(prompt) if unlimited else _reachable(prompt, marks, collapses(call))
        found, source = _longest(prompt, places, stored.marked, index)
    else:
        places = _everything(prompt)
        found, source = _longest(prompt, places, stored.prefixes, index)
    total = sizes(call)
    tokens = sum(total[: found + 1])
    is_marked = bool(marks) and stored.has_markers
    estimated = _is_estimated(prompt)
    below, above = _tolerance(call, total, estimated=estimated)
    return Reach(
        blocks=found + 1,
        tokens=tokens,
        marked=is_marked,
        estimated=estimated,
        below=below if is_marked or explicit else below + _STEP,
        above=above,
        source=source,
    )


def sizes(call: Call) -> list[int]:
    """Size of every content block; what is not known shares what the recorded total leaves."""
    prompt = call.prompt
    if prompt is None:
        return []
    counts = [block.tokens for block in prompt.blocks]
    if None not in counts:
        return [count or 0 for count in counts]
    weights = [estimate(b) if b.tokens is None else 0 for b in prompt.blocks]
    whole = sum(weights)
    total = call.usage.prompt_size if call.usage is not None else None
    rest = whole if total is None else max(0, total - sum(count or 0 for count in counts))
    return [
        rest * weight // whole if count is None else count
        for count, weight in zip(counts, weights, strict=True)
    ]


def size_before(call: Call, block: int) -> int:
    """Tokens of the content blocks in front of one."""
    return sum(sizes(call)[:block])


def _is_estimated(prompt: Prompt) -> bool:
    return any(b.tokens is None or b.tokens_origin == "estimated" for b in prompt.blocks)


def _tolerance(call: Call, counts: list[int], *, estimated: bool) -> tuple[int, int]:
    whole = sum(counts)
    if estimated:
        slack = max(_LEAST, whole // _ESTIMATE)
        return slack, slack
    total = call.usage.prompt_size if call.usage is not None else None
    hidden = max(0, total - whole) if total is not None else 0
    slack = _SLACK + whole // 100
    return slack, slack + hidden


class _Stored:
    """Prefixes that calls left in the cache, each with the first call that did."""

    __slots__ = ("has_markers", "marked", "prefixes")

    def __init__(self) -> None:
        self.marked: dict[bytes, int] = {}
        self.prefixes: dict[bytes, int] = {}
        self.has_markers = False


def _stored(ctx: Context) -> _Stored:
    found: _Stored | None = ctx.memo.get("reach.stored")
    if found is not None:
        return found
    stored = _Stored()
    last: dict[str, Prompt] = {}
    for index, call in enumerate(ctx.session.calls):
        prompt = call.prompt
        if prompt is None or call.usage is None:
            continue
        for mark in markers(prompt):
            stored.has_markers = True
            stored.marked.setdefault(prompt.prefix_digests[mark], index)
        before = last.get(call.lane)
        start = 0 if before is None else common_prefix(before, prompt)
        for digest in prompt.prefix_digests[start:]:
            stored.prefixes.setdefault(digest, index)
        last[call.lane] = prompt
    ctx.memo["reach.stored"] = stored
    return stored


def _everything(prompt: Prompt) -> list[int]:
    return list(range(len(prompt.blocks) - 1, -1, -1))


def _reachable(prompt: Prompt, marks: Sequence[int], collapse: bool) -> list[int]:
    places: set[int] = set()
    for mark in marks:
        places.update(window(prompt.blocks, mark, collapse=collapse))
    return sorted(places, reverse=True)


def _longest(
    prompt: Prompt, places: Sequence[int], known: Mapping[bytes, int], index: int
) -> tuple[int, int]:
    for place in places:
        source = known.get(prompt.prefix_digests[place])
        if source is not None and source < index:
            return place, source
    return -1, -1

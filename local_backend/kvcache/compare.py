"""Comparing prefixes without a loop over tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from local_backend.kvcache.keys import TOKEN_BYTES, PageExtra

# Not a token id (they stay below 2**31), so a page with an extra never sorts among plain ones.
_FENCE = b"\xff\xff\xff\xff"


def branch_key(page: bytes, extra: PageExtra | None) -> bytes:
    """What a page is filed under: its tokens, with an extra at the place where it takes effect."""
    if extra is None:
        return page
    cut = extra[1] * TOKEN_BYTES
    return page[:cut] + _FENCE + extra[0] + page[cut:]


def within(extra: PageExtra | None, tokens: int) -> PageExtra | None:
    """An extra, if it takes effect among the first tokens of its page."""
    return None if extra is None or extra[1] >= tokens else extra


def common_bytes(one: bytes, other: bytes) -> int:
    """Length of the common beginning of two short strings."""
    size = min(len(one), len(other))
    differing = int.from_bytes(one[:size], "little") ^ int.from_bytes(other[:size], "little")
    if not differing:
        return size
    return ((differing & -differing).bit_length() - 1) // 8


def common_pages(data: bytes, at: int, edge: bytes, pages: int, step: int) -> int:
    """How many whole pages of an edge stand in ``data`` from a position on, up to ``pages``."""
    low, high = 0, pages
    while low < high:
        middle = (low + high + 1) // 2
        if data.startswith(edge[low * step : middle * step], at + low * step):
            low = middle
        else:
            high = middle - 1
    return low


def same_extras(
    ours: Mapping[int, PageExtra], first: int, theirs: Mapping[int, PageExtra], pages: int
) -> int:
    """How many of the first pages have equal extras; ``first`` is our page at their page 0."""
    for offset in range(pages):
        if ours.get(first + offset) != theirs.get(offset):
            return offset
    return pages


def common_tokens(
    ours: bytes, our_extra: PageExtra | None, theirs: bytes, their_extra: PageExtra | None
) -> int:
    """How many tokens of two pages agree, and have nothing different before or under them."""
    count = common_bytes(ours, theirs) // TOKEN_BYTES
    if our_extra == their_extra:
        return count
    limits = [extra[1] for extra in (our_extra, their_extra) if extra is not None]
    return min(count, *limits)


def nearest(order: Sequence[bytes], wanted: bytes) -> Sequence[bytes]:
    """The neighbours in a sorted list: among them is the one with the longest common beginning."""
    at = bisect_left(order, wanted)
    return order[max(at - 1, 0) : at + 1]

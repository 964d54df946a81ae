"""Cuts a text to a budget: its beginning, its end, and between them what tells of failures."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from cacheaudit.agent.outputs.evidence import Evidence, find
from cacheaudit.agent.outputs.grep_worker import rows as fold
from cacheaudit.agent.outputs.size import Counter

_HEAD: Final = 0.3
_EVIDENCE: Final = 0.45
_SHORTEST_CUT: Final = 40
_ELLIPSIS: Final = " … "


class Excerpt(msgspec.Struct, frozen=True):
    """What is shown of a text.

    Attributes:
        text: Rows in their order; a line in brackets stands where rows were left out.
        rows: Rows of the whole text.
        shown: Rows that are shown, whole or cut.
        failures: Rows of the whole text that tell of failures.
    """

    text: str
    rows: int
    shown: int
    failures: int


def split(text: str) -> list[str]:
    """Cut a text into rows: its lines, long ones in pieces of 2,000 characters."""
    return list(fold(io.StringIO(text, newline="\n")))


def excerpt(text: str, budget: int, count: Counter, *, evidence: bool = True) -> Excerpt:
    """Choose rows that fit.

    Args:
        text: The whole text.
        budget: Tokens for the rows and the lines between them.
        count: Counts tokens.
        evidence: Whether to look for failures; without, only the beginning and the end are kept.
    """
    rows = split(text)
    found, failures = find(rows) if evidence else ([], 0)
    room = budget
    while True:
        shown = _choose(rows, found, room, count)
        text = _render(rows, shown)
        # A tokenizer may need more for the whole than for its parts.
        if count(text) <= budget or room <= 0:
            break
        room = min(room - 1, room * 9 // 10)
    return Excerpt(text if count(text) <= budget else "", len(rows), len(shown), failures)


def _choose(
    rows: Sequence[str], found: Iterable[Evidence], budget: int, count: Counter
) -> dict[int, str]:
    """Return the rows to show, by index."""
    gap = count(_gap(len(rows), len(rows)) + "\n") + 1
    room = budget - 2 * gap
    shown: dict[int, str] = {}
    head = int(room * _HEAD)
    evidence = int(room * _EVIDENCE)
    spent = _run(rows, range(len(rows)), head, count, shown)
    spent += _run(rows, range(len(rows) - 1, -1, -1), room - head - evidence, count, shown)
    left = room - spent
    for item in found:
        fresh = [index for index in range(item.start, item.stop) if index not in shown]
        cost = sum(count(rows[index] + "\n") for index in fresh) + 2 * gap
        if fresh and cost <= left:
            shown.update((index, rows[index]) for index in fresh)
            left -= cost
        elif fresh and left > 2 * gap + _SHORTEST_CUT:
            left -= 2 * gap + _ends(rows, fresh, left - 2 * gap, count, shown)
    # What failures did not need goes to the beginning and to the end.
    left -= _run(rows, range(len(rows)), left // 2, count, shown)
    _run(rows, range(len(rows) - 1, -1, -1), left, count, shown)
    return shown


def _ends(
    rows: Sequence[str], indices: Sequence[int], room: int, count: Counter, shown: dict[int, str]
) -> int:
    """Show the last rows of a trace, and its first: the exception matters more than the way."""
    spent = _run(rows, indices[:1], room // 2, count, shown)
    return spent + _run(rows, indices[:0:-1], room - spent, count, shown)


def _run(
    rows: Sequence[str], indices: Iterable[int], room: int, count: Counter, shown: dict[int, str]
) -> int:
    """Show row after row while there is room; the first is cut if it is too long alone."""
    spent = 0
    for index in indices:
        if index in shown:
            continue
        cost = count(rows[index] + "\n")
        if spent + cost > room:
            cut = _cut(rows[index], room - spent, count) if spent == 0 else ""
            if cut:
                shown[index] = cut
                spent += count(cut + "\n")
            break
        shown[index] = rows[index]
        spent += cost
    return spent


def _cut(row: str, room: int, count: Counter) -> str:
    """Keep both ends of a row, as long as they fit; empty where there is no room."""
    if room < _SHORTEST_CUT:
        return ""
    low, high = 0, len(row) // 2
    while low < high:
        middle = (low + high + 1) // 2
        fits = count(row[:middle] + _ELLIPSIS + row[len(row) - middle :] + "\n") <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return row[:low] + _ELLIPSIS + row[len(row) - low :] if low else ""


def _render(rows: Sequence[str], shown: dict[int, str]) -> str:
    lines: list[str] = []
    following = 0
    for index in sorted(shown):
        if index > following:
            lines.append(_gap(following + 1, index))
        lines.append(shown[index])
        following = index + 1
    if following < len(rows):
        lines.append(_gap(following + 1, len(rows)))
    return "\n".join(lines)


def _gap(first: int, last: int) -> str:
    return f"[row {first} left out]" if first == last else f"[rows {first}-{last} left out]"

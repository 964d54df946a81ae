"""Finds the rows of an output that tell of failures: traces, failed tests, exit statuses.

The best known shapes are looked for, not a language: whatever it misses is still in the store.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

_BLOCK: Final = 256
_LONGEST_TRACE: Final = 60
_PER_SHAPE: Final = 3
_MOST_SHAPES: Final = 2000
# What a row must hold, in lower case, to be looked at at all.
_NEEDLES: Final = (
    "error", "fail", "exception", "traceback", "panic", "fatal", "abort", "assert", "exit",
    "segmentation", "killed", "denied", "refused", "timed out", "timeout", "critical", "not ok",
    "cannot", "no such", "undefined", "core dumped", "✗", "✕",
)  # fmt: skip
_STATUS: Final = re.compile(
    r"\bexit(?:ed)?(?: with)?(?: (?:code|status|value))[ :=]+-?\d+"
    r"|\bexit[_ ]?(?:code|status)\W+-?\d+|\breturned non-zero\b|\bexited with -?\d+",
    re.IGNORECASE,
)
_SUMMARY: Final = re.compile(
    r"^FAILED\b|^ERROR\b \S+::|^(?:=+|-+)?.*\b[1-9]\d* (?:failed|failures?|errors?)\b|^not ok \d"
    r"|^--- FAIL|^FAIL\b|\btest result: FAILED|^BUILD FAILED|^Tests?:.*\b[1-9]\d* failed",
    re.IGNORECASE,
)
_TRACE: Final = re.compile(
    r"Traceback \(most recent call last\)|^panic:|\bpanicked at\b|^Exception in thread"
    r"|^\s*Caused by: |^goroutine \d+ \[|^Unhandled (?:exception|rejection)"
    r"|^(?:Uncaught )?[\w.$]*(?:Error|Exception)\b.*:|\bSegmentation fault|AddressSanitizer",
)
_FAILURE: Final = re.compile(
    r"\b(?:errors?|fail(?:ed|ure|s|ing)?|fatal|critical|panic|abort(?:ed)?|killed|denied|refused"
    r"|timed out|timeout|exception|assert(?:ion)?|cannot|no such|undefined|core dumped)\b|[✗✕]"
    r"|Error\b",
    re.IGNORECASE,
)
_CALM: Final = re.compile(
    r"\b(?:0|no|zero|without)\s+(?:\w+\s+)?(?:errors?|fail(?:ures?|ed|ing)?|exceptions?)\b"
    r"|\b(?:errors?|fail(?:ures?|ed)|exceptions?)\s*[=:]\s*0\b"
    r"|\bexit(?:ed)?(?: with)?(?: (?:code|status))?[ :=]+0\b",
    re.IGNORECASE,
)
_INDENTED: Final = re.compile(r"^(?:\s|E\s|>\s|at |\.\.\. \d+ more|Caused by:|During handling)")
_SHAPE: Final = 200
# Numbers differ from row to row; whether one is zero matters ("0 failed").
_DIGITS: Final = str.maketrans("123456789", "#########", "0")
_STATUS_WEIGHT, _SUMMARY_WEIGHT, _TRACE_WEIGHT, _FAILURE_WEIGHT = 4, 3, 2, 1


class Evidence(msgspec.Struct, frozen=True):
    """Rows that belong together and tell of a failure.

    Attributes:
        start: First row, counted from 0.
        stop: Behind the last.
        weight: 4 an exit status, 3 a summary of failures, 2 a trace, 1 any other failure.
        repeat: How many like it come before; 0: the first of its shape.
    """

    start: int
    stop: int
    weight: int
    repeat: int


def find(rows: Sequence[str]) -> tuple[list[Evidence], int]:
    """Look for failures.

    Returns:
        What was found, the first of each shape before its repetitions and among those the
        weightiest first, at most three of a shape; and the number of rows that tell of failures.
    """
    weights: dict[str, int] = {}
    seen: Counter[str] = Counter()
    found: list[Evidence] = []
    count = covered = 0
    for index in _candidates(rows):
        # Rows of one shape weigh the same: of a million, a few are looked at.
        shape = rows[index][:_SHAPE].translate(_DIGITS)
        weight = weights.get(shape)
        if weight is None:
            weight = _weight(rows[index])
            if len(weights) < _MOST_SHAPES:
                weights[shape] = weight
            else:
                shape = f"beyond {weight}"
        if not weight:
            continue
        count += 1
        if index < covered or seen[shape] >= _PER_SHAPE:
            continue
        covered = _end(rows, index, weight)
        found.append(Evidence(index, covered, weight, seen[shape]))
        seen[shape] += 1
    found.sort(key=lambda item: (item.repeat, -item.weight, item.start))
    return found, count


def _candidates(rows: Sequence[str]) -> Iterator[int]:
    """Name the rows that hold a needle; whole blocks without one cost a search each."""
    for base in range(0, len(rows), _BLOCK):
        block = rows[base : base + _BLOCK]
        low = "\n".join(block).lower()
        held = [needle for needle in _NEEDLES if needle in low]
        if not held:
            continue
        lowered = low.split("\n")
        # Lower case can split no row: it makes no newlines.
        for offset, row in enumerate(lowered):
            for needle in held:
                if needle in row:
                    yield base + offset
                    break


def _weight(row: str) -> int:
    if _TRACE.search(row):
        return _TRACE_WEIGHT
    if _CALM.search(row) and not re.search(r"\b[1-9]\d* (?:failed|failures?|errors?)\b", row):
        return 0
    if _STATUS.search(row):
        return _STATUS_WEIGHT
    if _SUMMARY.search(row):
        return _SUMMARY_WEIGHT
    return _FAILURE_WEIGHT if _FAILURE.search(row) else 0


def _end(rows: Sequence[str], start: int, weight: int) -> int:
    """Return where the rows end that belong to a failure: what is indented, and its last word."""
    if weight not in (_TRACE_WEIGHT, _FAILURE_WEIGHT):
        return start + 1
    stop, last = start + 1, min(len(rows), start + _LONGEST_TRACE)
    while stop < last and _INDENTED.match(rows[stop]):
        stop += 1
    # The exception itself stands behind its trace, not indented.
    closes = "Traceback" in rows[start] and stop < last and bool(rows[stop].strip())
    return stop + 1 if closes else stop

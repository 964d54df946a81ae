"""The order of the calls of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cacheaudit.model.call import Call

# Programs that append to a file as things happen: its order holds even where a clock was set back.
_APPENDED: Final = frozenset({"claude_code", "codex"})


def in_order(calls: Sequence[Call], source: str) -> tuple[Call, ...]:
    """Order calls by time where every one has a time; others are in order already.

    Args:
        calls: As they were read.
        source: Name of the source that read them. Where it appends what happens, calls of one lane
            stay in the order of their file, whatever the clock said.
    """
    times = [call.at for call in calls]
    known = [at for at in times if at is not None]
    if len(known) < len(calls) or known == sorted(known):
        return tuple(calls)
    if source in _APPENDED:
        known = _as_written(calls, known)
    order = sorted(range(len(calls)), key=lambda index: (known[index], index))
    return tuple(calls[index] for index in order)


def _as_written(calls: Sequence[Call], times: Sequence[float]) -> list[float]:
    """Let no time run backwards within a lane of one file."""
    latest: dict[tuple[str, str | None], float] = {}
    found: list[float] = []
    for call, at in zip(calls, times, strict=True):
        key = (call.lane, None if call.origin is None else call.origin.file)
        latest[key] = max(at, latest.get(key, at))
        found.append(latest[key])
    return found

"""What happened at a call besides reading and writing, as signs of the timeline."""

from __future__ import annotations

from cacheaudit.report.result import CallRow

SIGNS: dict[str, str] = {
    "T": "tools changed",
    "S": "system prompt changed",
    "M": "model changed",
    "P": "setting changed",
    "C": "compaction",
    "N": "conversation cleared or branched",
    "K": "keep-alive",
    "W": "warm-up",
    "R": "retry",
}
_PURPOSES = {"compaction": "C", "keep_alive": "K", "warm_up": "W", "retry": "R"}
_EVENTS = {"compaction": "C", "clear": "N", "branch": "N", "retry": "R"}
_LEVELS = {"tools": "T", "system": "S"}


class Signs:
    """Reads the signs off calls; those of a lane must come in their order."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], str] = {}

    def of(self, row: CallRow) -> tuple[str, ...]:
        """Signs of one call, each a letter of ``SIGNS``."""
        found: dict[str, None] = {}
        key = (row.session, row.lane)
        before = self._models.get(key)
        if row.model is not None:
            self._models[key] = row.model
            if before is not None and before != row.model:
                found["M"] = None
        change = row.first_change
        if change is not None:
            sign = "P" if change.kind == "parameter" else _LEVELS.get(change.level)
            if sign is not None:
                found[sign] = None
        for sign in (_PURPOSES.get(row.purpose), *map(_EVENTS.get, row.events)):
            if sign is not None:
                found[sign] = None
        return tuple(found)

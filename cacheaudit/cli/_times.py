"""Reads what people write for a moment: a date, a time, or how long ago."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._types import override
from cacheaudit.model.clock import iso, parse_time

_DAY = 86_400.0
_AGO = re.compile(r"(\d+)\s*([mhdw])")
_SECONDS = {"m": 60.0, "h": 3_600.0, "d": _DAY, "w": 7 * _DAY}
if TYPE_CHECKING:
    _Base = click.ParamType[float]
else:
    _Base = click.ParamType
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class Moment(_Base):
    """Converts to seconds since the epoch.

    ``2026-11-03`` is a whole UTC day: its beginning, or the next one's where ``is_end`` is set,
    since an end lies outside what it bounds.
    """

    name = "TIME"

    def __init__(self, *, is_end: bool) -> None:
        self._is_end = is_end

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read one moment; a bad one is a usage error."""
        if isinstance(value, float):
            return value
        text = str(value).strip().lower()
        machine = ctx.find_object(Machine) if ctx is not None else None
        now = (machine or Machine.real()).clock.now()
        if text in ("today", "yesterday"):
            text = iso(now - (_DAY if text == "yesterday" else 0.0))[:10]
        if ago := _AGO.fullmatch(text):
            return now - int(ago[1]) * _SECONDS[ago[2]]
        at = parse_time(text.upper())
        if at is None:
            self.fail(
                f"{value!r} is no time. Write 2026-11-03, 2026-11-03T10:00:00Z, today or 7d.",
                param,
                ctx,
            )
        if self._is_end and _DATE.fullmatch(text):
            return at + _DAY
        return at

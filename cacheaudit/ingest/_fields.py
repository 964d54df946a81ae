"""Lenient, counting access to the fields of one foreign record.

What people and tools write into a token column varies (``1,234``, ``12.0``, ``""``, ``-``); what
cannot be read is counted as ``wrong_type`` and taken as not known, so that one bad cell costs one
value and not the row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from cacheaudit.dialects.reading import is_ambiguous
from cacheaudit.ingest.lines import mended
from cacheaudit.model.clock import parse_time
from cacheaudit.model.money import decimal
from cacheaudit.model.ports import ProblemSink

# Above any real token count; a larger number is a parsing accident (a time stamp, an id).
MAX_TOKENS = 10**12
_ABSENT = frozenset({"", "-", "–", "n/a", "na", "nan", "none", "null", "unknown", "\\n"})  # noqa: RUF001
_LONGEST_ABSENT = 32
# Thirty years: longer than any call took, and added to any date still a date.
_LONGEST_SECONDS = 1e9
_GROUPED = re.compile(r"^[+-]?\d{1,3}([,_ '\u00a0\u202f]\d{3})+(\.0*)?$")
_EXACT = re.compile(r"^[+-]?\d+(\.0*)?$")
_DURATION = re.compile(
    r"^([0-9]*\.?[0-9]+)\s*(ms|milliseconds?|s|sec|secs|seconds?|m|min|minutes?)?$"
)


def is_absent(value: object) -> bool:
    """Whether a cell says that it holds nothing."""
    if value is None:
        return True
    return (
        isinstance(value, str) and len(value) < _LONGEST_ABSENT and value.strip().lower() in _ABSENT
    )


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object, decoding text that holds one; an empty one for anything else."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        decoded = decode(value)
        if isinstance(decoded, dict):
            return decoded
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> list[Any]:
    """Return a JSON array, decoding text that holds one; an empty one for anything else."""
    if isinstance(value, list):
        return value
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        decoded = decode(value)
        if isinstance(decoded, list):
            return decoded
    return []


def decode(data: str | bytes) -> Any:
    """Decode JSON; ``None`` where it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    raw = data.encode(errors="replace") if isinstance(data, str) else data
    better = mended(raw)
    try:
        return None if better is None else msgspec.json.decode(better)
    except (msgspec.DecodeError, RecursionError):
        return None


def text(value: object) -> str | None:
    """Return text that says something; numbers are written out, anything else is not text."""
    if isinstance(value, str):
        stripped = value.strip()
        return stripped or None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return None


def dig(value: object, *path: str) -> Any:
    """Follow keys through nested objects; ``None`` where one is missing."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def read_count(value: object) -> int | None:
    """Read a whole number of tokens.

    Raises:
        ValueError: The value is neither absent nor a whole number.
    """
    if is_absent(value):
        return None
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    elif isinstance(value, str):
        number = _count_in_text(value.strip())
    if number is None or abs(number) > MAX_TOKENS:
        raise ValueError("not a whole number of tokens")
    return number


def _count_in_text(value: str) -> int | None:
    if _EXACT.match(value) and not is_ambiguous(value):
        return int(value.split(".")[0])
    if _GROUPED.match(value):
        return int(re.sub(r"[^\d+-]", "", value.split(".")[0]))
    return None


def read_seconds(value: object) -> float | None:
    """Read a length of time in seconds: a number, or text such as ``20 s``, ``350ms``, ``2 min``.

    Raises:
        ValueError: The value is neither absent nor a length of time.
    """
    if is_absent(value):
        return None
    amount: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        amount = value
    elif isinstance(value, str) and (match := _DURATION.match(value.strip().lower())):
        amount, unit = float(match[1]), match[2] or "s"
        if unit.startswith(("ms", "milli")):
            amount /= 1000
        elif unit.startswith("m"):
            amount *= 60
    if amount is None or not 0 <= amount <= _LONGEST_SECONDS:
        raise ValueError("not a length of time")
    return float(amount)


def read_money(value: object) -> Decimal | None:
    """Read an amount; a JSON number is taken by its shortest text, without binary digits.

    Raises:
        ValueError: The value is neither absent nor a finite number.
    """
    if is_absent(value):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError("not an amount")
    try:
        return decimal(value.strip().lstrip("$€") if isinstance(value, str) else repr(value))
    except InvalidOperation as error:
        raise ValueError("not an amount") from error


class Record:
    """One record, with where it stands and who counts what is wrong with it.

    Args:
        fields: The record's fields.
        where: File and line.
        problems: Counts fields that cannot be read.
    """

    __slots__ = ("_problems", "fields", "where")

    def __init__(self, fields: Mapping[str, Any], where: str, problems: ProblemSink) -> None:
        self.fields = fields
        self.where = where
        self._problems = problems

    @property
    def problem_sink(self) -> ProblemSink:
        """What counts the problems of this record."""
        return self._problems

    def first(self, *names: str) -> tuple[str, Any]:
        """Return name and value of the first field that holds something."""
        get = self.fields.get
        for name in names:
            value = get(name)
            if value is not None and not is_absent(value):
                return name, value
        return "", None

    def text(self, *names: str) -> str | None:
        """Return a text field; a value that is no text is counted."""
        name, value = self.first(*names)
        if value is None:
            return None
        found = text(value)
        if found is None:
            self.wrong(name, "text", value)
        return found

    def count(self, *names: str) -> int | None:
        """Return a number of tokens; a value that is none is counted."""
        name, value = self.first(*names)
        try:
            return read_count(value)
        except ValueError:
            self.wrong(name, "a whole number", value)
            return None

    def seconds(self, *names: str) -> float | None:
        """Return a length of time in seconds; fields that end in ``_ms`` hold milliseconds."""
        name, value = self.first(*names)
        if value is None:
            return None
        try:
            found = read_seconds(value)
        except ValueError:
            self.wrong(name, "a length of time", value)
            return None
        is_milli = name.lower().endswith(("_ms", "millis", "milliseconds")) or name.endswith("Ms")
        has_unit = isinstance(value, str) and value.strip()[-1:].isalpha()
        if found is None or not is_milli or has_unit:
            return found
        return found / 1000

    def time(self, *names: str) -> float | None:
        """Return a moment in seconds since the epoch; a value that is none is counted."""
        name, value = self.first(*names)
        if value is None:
            return None
        found = parse_time(value)
        if found is None:
            self.wrong(name, "a time", value)
        return found

    def money(self, *names: str) -> Decimal | None:
        """Return an amount; a value that is none is counted."""
        name, value = self.first(*names)
        try:
            return read_money(value)
        except ValueError:
            self.wrong(name, "an amount", value)
            return None

    def wrong(self, name: str, wanted: str, value: object) -> None:
        """Count a field of the wrong type, by type only: the value may be text of a prompt."""
        self._problems("wrong_type", self.where, f"{name} is {type(value).__name__}, not {wanted}")

    def problem(self, kind: str, detail: str) -> None:
        """Count another problem of this record."""
        self._problems(kind, self.where, detail)

"""What the readers of coding-agent sessions share: careful numbers, usage, times, documents."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from cacheaudit.dialects.reading import Reader, Writes, additive, inclusive, reasoning_of
from cacheaudit.ingest.lines import mended
from cacheaudit.model.call import Span
from cacheaudit.model.money import is_sane
from cacheaudit.model.ports import ProblemSink
from cacheaudit.model.usage import (
    FLAG_BAD_TYPE,
    FLAG_CACHE_OVER_INPUT,
    FLAG_FIELDS_DISAGREE,
    FLAG_NEGATIVE,
    FLAG_SPLIT,
    FLAG_TOTAL,
    Usage,
    add,
)

MAX_DOCUMENT = 512 << 20
_DIGITS, _MONEY_PLACES = 15, 12
# Contradictions in the record itself; assumptions of ours are no problem of the file.
_CONTRADICTIONS = frozenset(
    {
        FLAG_BAD_TYPE,
        FLAG_CACHE_OVER_INPUT,
        FLAG_FIELDS_DISAGREE,
        FLAG_NEGATIVE,
        FLAG_SPLIT,
        FLAG_TOTAL,
    }
)
T = TypeVar("T")


def mapping(value: object) -> dict[str, Any]:
    """Return the value where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: object) -> str | None:
    """Return the value where it is text with something in it."""
    return value if isinstance(value, str) and value else None


def money(value: object) -> Decimal | None:
    """Read an amount as recorded.

    A float that JSON wrote in its shortest form gives the same digits back by ``repr``. A product
    of price and tokens has few decimals; 16 digits and more are the residue of the program's
    binary arithmetic (``0.017400000000000002``) and are rounded off, so that sums come out even.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value):
        return None
    amount = Decimal(repr(value))
    if not is_sane(amount):
        return None
    _, digits, exponent = amount.as_tuple()
    is_residue = len(digits) > _DIGITS and int(exponent) < -_MONEY_PLACES
    return round(amount, _MONEY_PLACES) if is_residue else amount


def size(record: Mapping[str, Any], name: str) -> int | None:
    """Read a count that nothing rests on, such as the size of a context."""
    return Reader().aside(record.get(name))


def within(
    dialect: str,
    reader: Reader,
    *,
    total: int | None,
    read: int | None,
    write: int | None = None,
    output: int | None = None,
    reasoning: int | None = None,
) -> Usage:
    """Build a usage from counts whose input contains what was read and written."""
    return inclusive(
        reader,
        total=total,
        read=read,
        writes=Writes(other=write),
        output=output,
        reasoning=reasoning_of(reader, output, reasoning),
        dialect=dialect,
    )


def beside(
    dialect: str,
    reader: Reader,
    *,
    fresh: int | None,
    read: int | None,
    write: int | None = None,
    output: int | None = None,
    reasoning: int | None = None,
) -> Usage:
    """Build a usage from counts that exclude each other."""
    return additive(
        reader,
        fresh=fresh,
        read=read,
        writes=Writes(other=write),
        output=output,
        reasoning=reasoning_of(reader, output, reasoning),
        dialect=dialect,
    )


class GoogleNames(NamedTuple):
    """Where Gemini's counts stand in a record."""

    prompt: str
    cached: str
    candidates: str
    thoughts: str
    tool: str
    total: str


def google(
    dialect: str, raw: Mapping[str, Any], names: GoogleNames, absent: int | None = None
) -> Usage:
    """Build a usage from Gemini's counts as agents store them.

    Whether the thoughts stand beside the answer and the tool prompts beside the prompt differs
    by program and endpoint; the recorded total decides, and Gemini's own rule (beside) where no
    total is recorded or none fits. ``absent`` is what a missing cached count means: Gemini leaves
    it out where nothing was read, other APIs where they do not know.
    """
    reader = Reader()
    prompt, cached, tool = (
        reader.count(raw.get(name)) for name in (names.prompt, names.cached, names.tool)
    )
    candidates, thoughts, total = (
        reader.aside(raw.get(name)) for name in (names.candidates, names.thoughts, names.total)
    )
    apart, extra = True, True
    if total is not None and prompt is not None and candidates is not None:
        fits = [
            (apart, extra)
            for apart in (True, False)
            for extra in (True, False)
            if prompt + candidates + (thoughts or 0) * apart + (tool or 0) * extra == total
        ]
        apart, extra = max(fits, default=(True, True))
        if not fits:
            reader.flags.add(FLAG_TOTAL)
    if cached is None and raw.get(names.cached) is None and prompt is not None:
        cached = absent
    return within(
        dialect,
        reader,
        total=None if prompt is None else add(prompt, tool if extra else None),
        read=cached,
        output=add(candidates, thoughts if apart else None),
        reasoning=thoughts,
    )


def count_flags(usage: Usage | None, problems: ProblemSink, where: str) -> None:
    """Count the contradictions of a record under data quality."""
    for flag in usage.flags if usage is not None else ():
        if flag in _CONTRADICTIONS:
            problems(flag, where)


class Window:
    """Brackets the start of a request between the last input before it and its first output."""

    def __init__(self) -> None:
        self._input: float | None = None
        self._low: float | None = None
        self._first: float | None = None

    def saw_input(self, at: float | None) -> None:
        """Note a record that the next request carries."""
        if at is not None and (self._input is None or at > self._input):
            self._input = at

    def saw_output(self, at: float | None) -> None:
        """Note a record that a response produced."""
        if at is not None and self._first is None:
            self._low, self._first = self._input, at

    def close(self, end: float | None) -> Span | None:
        """End the call; later input and output belong to the next one.

        Returns:
            The interval that holds the request start, or ``None`` where no lower bound is known.
        """
        low, high = (self._low, self._first) if self._first is not None else (self._input, end)
        self._low = self._first = None
        self.saw_input(end)
        if low is None or high is None or high < low:
            return None
        return Span(low, high)


def document(path: Path, problems: ProblemSink, kind: type[T]) -> T | None:
    """Read a file that is one JSON value; every failure is counted and gives ``None``.

    Args:
        path: The file.
        problems: Counts what goes wrong.
        kind: Type to decode into; fields that it does not name are skipped, not built.
    """
    try:
        if path.stat().st_size > MAX_DOCUMENT:
            problems("too_long_line", str(path), f"one value of over {MAX_DOCUMENT >> 20} MiB")
            return None
        data = path.read_bytes()
    except FileNotFoundError:
        problems("vanished_file", str(path))
        return None
    except OSError as error:
        problems("unreadable_file", str(path), error.strerror or str(error))
        return None
    return decode(_as_utf8(data, path, problems), str(path), problems, kind)


def _as_utf8(data: bytes, path: Path, problems: ProblemSink) -> bytes:
    if data.startswith(codecs.BOM_UTF8):
        return data[len(codecs.BOM_UTF8) :]
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        problems("encoding", str(path), "file is utf-16, read as such")
        return data.decode("utf-16", errors="replace").encode()
    return data


def decode(data: bytes | msgspec.Raw, where: str, problems: ProblemSink, kind: type[T]) -> T | None:
    """Decode one JSON value; a failure is counted and gives ``None``."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        problems("wrong_type", where, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raw = bytes(data)
        repaired = mended(raw)
        if repaired is not None:
            problems("encoding", where, "bytes that are no UTF-8")
            return decode(repaired, where, problems, kind)
        whole = raw.rstrip().endswith((b"}", b"]"))
        problems("invalid_json" if whole else "truncated_line", where, str(error))
    except RecursionError:
        problems("too_deep", where, "nested deeper than the decoder allows")
    return None


def items(
    raws: Iterable[msgspec.Raw], where: str, problems: ProblemSink
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (position from 1, object) of a list, one decoded at a time; others are counted."""
    for position, raw in enumerate(raws, 1):
        spot = f"{where}[{position - 1}]"
        value = decode(raw, spot, problems, object)
        if isinstance(value, dict):
            yield position, value
        elif value is not None:
            problems("wrong_type", spot, "expected an object")


def is_line_file(path: Path) -> bool:
    """Whether a file holds one JSON value a line: so named, or its first line is a whole value."""
    if path.suffix == ".jsonl":
        return True
    try:
        with path.open("rb") as stream:
            first = stream.readline(64 << 10)
        msgspec.json.decode(first)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def folders(environment: Mapping[str, str], variable: str) -> list[Path]:
    """Return the folders that an override variable names, separated by commas."""
    return [
        Path(part.strip()).expanduser()
        for part in environment.get(variable, "").split(",")
        if part.strip()
    ]

"""Plain usage logs: one row a call, with times and token counts, as CSV, TSV or JSON lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.dialects.detect import normalise
from cacheaudit.ingest._fields import Record, is_absent, mapping
from cacheaudit.ingest.answers import short_message
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.lines import json_lines
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.records import UsageRecord, record_of
from cacheaudit.ingest.relative import CLOCK, RelativeClock
from cacheaudit.ingest.rows import is_json
from cacheaudit.ingest.tables import header_of, normal_name, normal_names, table_rows
from cacheaudit.ingest.usage_columns import (
    DETAIL_COLUMNS,
    TOKEN_COLUMNS,
    Columns,
    columns_of,
    convention,
    usage_of,
)
from cacheaudit.ingest.usage_shapes import Meanings, Shape, Shapes, UnusualRowError
from cacheaudit.model.call import PURPOSES, Call, CallError, Origin
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import Usage

_START: Final = (
    "started_at", "start", "start_time", "started", "timestamp", "time", "ts", "request_time",
    "created_at", "date",
)  # fmt: skip
_END: Final = ("ended_at", "end", "end_time", "ended", "completed_at", "finished_at")
_FIRST: Final = ("first_token_at", "first_token", "first_token_time", "completion_start_time")
_DURATION: Final = (
    "duration_s", "duration", "duration_ms", "duration_seconds", "latency", "latency_s",
    "latency_ms", "elapsed", "elapsed_s", "elapsed_ms", "seconds",
)  # fmt: skip
_TTFT: Final = ("ttft", "ttft_s", "ttft_ms", "time_to_first_token", "time_to_first_token_ms")
_IDS: Final = ("id", "message_id", "request_id", "response_id", "row", "request", "no", "nr")
_SESSION: Final = ("session", "session_id", "conversation_id", "trace_id", "thread_id", "chat_id")
_LANE: Final = ("lane", "agent", "agent_id", "subagent", "thread")
_PARENT: Final = ("parent", "parent_id")
_TASK: Final = ("task", "task_id")
_MODEL: Final = ("model", "model_id", "model_name")
_COST: Final = ("cost", "reported_cost", "cost_usd", "total_cost", "spend", "usd")
_STATUS: Final = ("status", "status_code", "http_status")
_ERROR: Final = ("error", "error_type")
_PLAIN: Final = (
    "attempt", "client", "currency", "error_message", "outcome", "provider", "purpose",
    "stop_reason", "finish_reason", "surface", "tool_seconds", "usage", "service_tier", "schema",
)  # fmt: skip
_UNDERSTOOD: Final = frozenset(
    itertools.chain(
        _START, _END, _FIRST, _DURATION, _TTFT, _IDS, _SESSION, _LANE, _PARENT, _TASK, _MODEL,
        _COST, _STATUS, _ERROR, _PLAIN, TOKEN_COLUMNS, DETAIL_COLUMNS,
    )
)  # fmt: skip
_NOTES: Final = frozenset({"note", "notes", "comment", "comments", "what_happened", "description"})
_PROVIDER_ID: Final = re.compile(r"^(msg_|chatcmpl-|resp_|req_|gen-)[\w-]{8,}$")
# What names a kind of error; anything longer is its message.
_WORD: Final = re.compile(r"[\w.:-]{1,64}\Z", re.ASCII)
_STATUS_DIGITS: Final = 3
_DECIDED_BY: Final = 500
_NAMES_KEPT: Final = 4096
_CHUNK: Final = 1 << 20
_TIMES: Final = frozenset(itertools.chain(_START, _DURATION, _END))
_MEANINGS: Final = Meanings(
    start=_START,
    times={"ended": _END, "first": _FIRST},
    lengths={"duration": _DURATION, "wait": _TTFT, "tools": ("tool_seconds",)},
    texts={
        "id": _IDS,
        "session": _SESSION,
        "lane": _LANE,
        "parent": _PARENT,
        "task": _TASK,
        "model": _MODEL,
        "provider": ("provider",),
        "surface": ("surface",),
        "purpose": ("purpose",),
        "attempt": ("attempt",),
        "stop_reason": ("stop_reason", "finish_reason"),
        "outcome": ("outcome",),
        "currency": ("currency",),
        "client": ("client",),
    },
    cost=_COST,
    # Nothing is read of them where there is no error.
    ignored=frozenset({*_STATUS, "error_message", "schema"}),
    understood=_UNDERSTOOD,
)


class UsageLogSource:
    """Reads tables and JSON lines of plain token counts."""

    name = "usage_log"
    title = "Plain usage log (CSV, TSV, JSON lines)"
    capabilities = Capabilities(
        reads=True, writes=True, ttl_split=True, start_times="exact", output="exact"
    )

    def detect(self, head: Head) -> int:
        """Say how sure we are that the file is a usage log."""
        header = header_of(head)
        if header:
            return 40 if _looks_like_log(normal_names(header)) else 0
        for line in head.lines[:5]:
            names = normal_names(list(line)) | normal_names(list(mapping(line.get("usage"))))
            if {"body", "headers", "type", "attributes", "choices"} & line.keys():
                return 0
            if isinstance(line.get("request"), dict) or isinstance(line.get("response"), dict):
                return 0
            if _looks_like_log(names):
                return 40
        return 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call a row."""
        yield from _Reader(path, problems).calls()

    def read_from(
        self, path: Path, problems: ProblemSink, start: int, first_line: int
    ) -> Iterator[Call]:
        """Yield the calls of an appended part.

        All are read again where the new rows may change what the old ones mean: while what the
        columns mean rests on fewer rows than are looked at, and where times count on from row to
        row.
        """
        yield from _Reader(path, problems, start, first_line).calls()

    def usages(self, path: Path, problems: ProblemSink) -> Iterator[UsageRecord]:
        """Yield what a total needs of every row; quicker than :meth:`read`."""
        yield from _Reader(path, problems).records()

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield nothing: a usage log lies wherever its owner put it."""
        del environment, home
        yield from ()


def _looks_like_log(names: set[str]) -> bool:
    return bool(names & _TIMES) and len(names & TOKEN_COLUMNS) >= 2


class _Reader:
    """State of one pass over one file: its columns and the clock that has no date."""

    def __init__(
        self, path: Path, problems: ProblemSink, start: int = 0, first_line: int = 1
    ) -> None:
        self._start, self._first_line = start, first_line
        self._path = path
        self._name = str(path)
        self._stem = path.stem
        self._problems = problems
        self._clock = RelativeClock()
        self._reported: set[str] = set()
        self._names: dict[str, str] = {}
        self._counted = 0
        self._found: dict[tuple[str, ...], tuple[str, ...]] = {}

    def calls(self) -> Iterator[Call]:
        """Decide on the first rows what the columns mean, then read them all."""
        for number, row, shape in self._shaped():
            if shape is not None:
                try:
                    yield self._usual_call(number, row, shape)
                    continue
                except UnusualRowError:
                    pass
            call = self._call(number, self._normalised(row), self._known)
            if call is not None:
                yield call

    def records(self) -> Iterator[UsageRecord]:
        """Read what a total needs."""
        for number, row, shape in self._shaped():
            if shape is not None:
                try:
                    yield self._usual_record(number, row, shape)
                    continue
                except UnusualRowError:
                    pass
            call = self._call(number, self._normalised(row), self._known)
            record = record_of(call) if call is not None else None
            if record is not None:
                yield record

    def _shaped(self) -> Iterator[tuple[int, dict[str, Any], Shape | None]]:
        """Yield rows with the form that they have, ``None`` where it needs a closer look."""
        rows = self._rows()
        first = list(itertools.islice(rows, _DECIDED_BY))
        if self._start and self._is_settled(first):
            rows, first, known = self._rows(self._start, self._first_line), [], first
        else:
            known = first
        self._known = self._columns([self._normalised(row) for _, row in known])
        self._shapes = Shapes(self._known, _MEANINGS, self._normal)
        shape_of = self._shapes.of
        for number, row in itertools.chain(first, rows):
            yield number, row, shape_of(row)

    def _is_settled(self, first: list[tuple[int, dict[str, Any]]]) -> bool:
        """Whether rows behind a place can be read without those before it."""
        if len(first) < _DECIDED_BY or first[-1][0] >= self._first_line:
            return False
        records = (Record(self._normalised(row), "", Problems()) for _, row in first)
        is_relative = any(self._moment(record, _START)[1] for record in records)
        self._clock = RelativeClock()
        if is_relative:
            return False
        return is_json(self._path) or not _is_open_quote(self._path, self._start)

    def _rows(self, start: int = 0, first_line: int = 1) -> Iterator[tuple[int, dict[str, Any]]]:
        if not is_json(self._path):
            yield from table_rows(self._path, self._problems, start, first_line)
            return
        for number, value in json_lines(self._path, self._problems, start, first_line):
            if isinstance(value, dict):
                yield number, value
            else:
                where = f"{self._path}:{number}"
                self._problems("wrong_type", where, f"{type(value).__name__}, not an object")

    def _normalised(self, row: dict[str, Any]) -> dict[str, Any]:
        return {self._normal(k): v for k, v in row.items()}

    def _usual_record(self, number: int, row: dict[str, Any], shape: Shape) -> UsageRecord:
        shapes = self._shapes
        start = shapes.start(shape, row)
        shapes.times(shape, row, start)
        words = shapes.words(shape, row)
        usage = shapes.usage(shape, row, words)
        record = UsageRecord(
            _key(shapes.text(shape, row, "id")),
            words.session or self._stem,
            words.lane,
            words.purpose,
            words.provider,
            words.surface,
            words.model,
            start,
            usage,
            None,
            shapes.cost(shape, row),
            words.currency,
        )
        if usage.flags:
            self._count_flags(usage, number)
        return record

    def _usual_call(self, number: int, row: dict[str, Any], shape: Shape) -> Call:
        shapes = self._shapes
        start = shapes.start(shape, row)
        ended, first_token, tool_seconds = shapes.times(shape, row, start)
        words = shapes.words(shape, row)
        usage = shapes.usage(shape, row, words)
        ident = shapes.text(shape, row, "id")
        call = Call(
            id=ident or f"{self._stem}#{number}",
            session=words.session or self._stem,
            lane=words.lane,
            parent=shapes.text(shape, row, "parent"),
            task=shapes.text(shape, row, "task"),
            purpose=words.purpose,
            provider=words.provider,
            surface=words.surface,
            model=words.model,
            started_at=start,
            first_token_at=first_token,
            ended_at=ended,
            attempt=int(words.attempt),
            usage=usage,
            stop_reason=words.stop_reason,
            tool_seconds=tool_seconds,
            outcome=words.outcome,
            reported_cost=shapes.cost(shape, row),
            currency=words.currency,
            client=words.client,
            origin=Origin(self._name, number),
            dedupe_key=_key(ident),
            extra={name: row[c] for c, name in shape.extra if not is_absent(row[c])},
        )
        if usage.flags:
            self._count_flags(usage, number)
        return call

    def _count_flags(self, usage: Usage, number: int) -> None:
        for flag in usage.flags:
            self._problems(flag, f"{self._name}:{number}")

    def _normal(self, name: str) -> str:
        known = self._names.get(name)
        if known is None:
            known = normal_name(name)
            if len(self._names) < _NAMES_KEPT:
                self._names[name] = known
        return known

    def _columns(self, rows: list[dict[str, Any]]) -> Columns:
        header = dict.fromkeys(name for row in rows for name in row)
        columns = columns_of(header)
        if columns.is_open:
            decided, is_proved = convention(columns, rows)
            if not is_proved:
                self._problems(
                    "convention_assumed",
                    str(self._path),
                    f"column {columns.names['input']!r} is read as input with the cached tokens; "
                    "name it total_input or uncached_input to say which",
                )
            columns = msgspec.structs.replace(columns, input_is=decided)
        return columns

    def _call(self, number: int, fields: dict[str, Any], columns: Columns) -> Call | None:
        where = f"{self._path}:{number}"
        record = Record(fields, where, self._problems)
        self._name_unknown(fields, where)
        nested = mapping(fields.get("usage"))
        usage = normalise(nested) if nested else usage_of(columns, fields)
        provider, model = record.text("provider"), record.text(*self._present(_MODEL))
        usage = with_assumed_ttl(usage, None, provider, model)
        if usage is None and not _has_error(record):
            self._problems("missing_usage", where, "no token count in this row")
            return None
        for flag in usage.flags if usage is not None else ():
            self._problems(flag, where)
        return self._build(record, number, usage)

    def _build(self, record: Record, number: int, usage: Usage | None) -> Call:
        here = self._present
        started, relative = self._moment(record, here(_START), is_start=True)
        ended, _ = self._moment(record, here(_END))
        first_token, _ = self._moment(record, here(_FIRST))
        duration = record.seconds(*here(_DURATION))
        ttft = record.seconds(*here(_TTFT))
        if ended is None and started is not None and duration is not None:
            ended = started + duration
        if started is None and ended is not None and duration is not None:
            started = ended - duration
        if first_token is None and started is not None and ttft is not None:
            first_token = started + ttft
        ident = record.text(*here(_IDS))
        session = record.text(*here(_SESSION)) or self._path.stem
        return Call(
            id=ident or f"{self._path.stem}#{number}",
            session=session,
            lane=record.text(*here(_LANE)) or "main",
            parent=record.text(*here(_PARENT)),
            task=record.text(*here(_TASK)),
            purpose=self._purpose(record),
            provider=record.text("provider"),
            surface=record.text("surface"),
            model=record.text(*here(_MODEL)),
            started_at=started,
            first_token_at=first_token,
            ended_at=ended,
            attempt=record.count("attempt") or 0,
            usage=usage,
            stop_reason=record.text("stop_reason", "finish_reason"),
            error=_error(record),
            tool_seconds=record.seconds("tool_seconds"),
            outcome=record.text("outcome"),
            reported_cost=record.money(*here(_COST)),
            currency=record.text("currency") or "USD",
            client=record.text("client"),
            origin=Origin(str(self._path), number),
            dedupe_key=_key(ident),
            relative_time=relative,
            extra=_extra(record.fields),
        )

    def _present(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of several names that any row so far had."""
        if len(self._names) != self._counted:
            self._counted = len(self._names)
            self._found.clear()
        found = self._found.get(names)
        if found is None:
            seen = set(self._names.values())
            full = len(self._names) >= _NAMES_KEPT
            found = names if full else tuple(name for name in names if name in seen)
            self._found[names] = found
        return found

    def _moment(
        self, record: Record, names: tuple[str, ...], *, is_start: bool = False
    ) -> tuple[float | None, bool]:
        """Read a moment; ``mm:ss`` and ``hh:mm:ss`` count from an unknown beginning."""
        _, value = record.first(*names)
        if isinstance(value, str) and (match := CLOCK.match(value.strip())):
            return self._clock.seconds(match, advance=is_start), True
        moment = record.time(*names)
        return moment, moment is not None and moment < RelativeClock.LATEST

    def _purpose(self, record: Record) -> str:
        purpose = record.text("purpose")
        if purpose is None or purpose in PURPOSES:
            return purpose or "main"
        record.wrong("purpose", "one of " + ", ".join(PURPOSES), purpose)
        return "other"

    def _name_unknown(self, fields: dict[str, Any], where: str) -> None:
        for name in fields:
            if name in self._reported or name in _UNDERSTOOD or name in _NOTES:
                continue
            if len(self._reported) >= _NAMES_KEPT:
                return
            self._reported.add(name)
            self._problems("unknown_column", where, f"column {name!r} is kept but not understood")


def _is_open_quote(path: Path, end: int) -> bool:
    """Whether a quoted cell spans a place, or the file is in an encoding without plain quotes."""
    quotes = 0
    with path.open("rb") as stream:
        if stream.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            return True
        stream.seek(0)
        while end > 0 and (chunk := stream.read(min(end, _CHUNK))):
            quotes += chunk.count(b'"')
            end -= len(chunk)
    return quotes % 2 == 1


def _key(ident: str | None) -> str | None:
    """Return the key of a row whose id is a provider's own."""
    return f"id:{ident}" if ident and _PROVIDER_ID.match(ident) else None


def _has_error(record: Record) -> bool:
    return not is_absent(record.first(*_ERROR)[1])


def _error(record: Record) -> CallError | None:
    _, value = record.first(*_ERROR)
    details = mapping(value)
    status = record.fields.get("status_code", record.fields.get("http_status"))
    if details:
        inner = Record(details, record.where, record.problem_sink)
        message = short_message(inner.text("message"))
        return CallError(inner.text("type"), inner.count("status"), message)
    if not isinstance(value, str):
        return None
    code = int(status) if str(status).isdecimal() and len(str(status)) <= _STATUS_DIGITS else None
    if _WORD.match(value):
        return CallError(value, code, short_message(record.text("error_message")))
    return CallError(None, code, short_message(value))


def _extra(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in fields.items()
        if name not in _UNDERSTOOD and not is_absent(value)
    }


SOURCE = UsageLogSource()

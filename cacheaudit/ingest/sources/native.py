"""The project's own session files: ``*.session.jsonl``, one call a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.dialects.detect import normalise
from cacheaudit.ingest._fields import Record, dig, is_absent, mapping, text
from cacheaudit.ingest.answers import Answer, raw_usage, read_answer, short_message
from cacheaudit.ingest.bodies import Bodies, with_sizes
from cacheaudit.ingest.endpoints import provider_of_model, served_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.lines import json_lines, parse, raw_lines
from cacheaudit.ingest.records import UsageRecord, record_of
from cacheaudit.ingest.unpack import UnpackError
from cacheaudit.model.call import PURPOSES, Boundary, Call, CallError, Origin, Span
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.record import EXACT_FIELD, RecordReader
from cacheaudit.model.usage import Usage

SCHEMA: Final = "cacheaudit.call/1"
_FAMILY: Final = "cacheaudit.call/"
# Numbers below count from an unknown moment; as dates they would lie in the early 1970s.
_EARLIEST: Final = 1e8
_SIGN: Final = re.compile(rb'"schema"\s*:\s*"cacheaudit\.call/')
_KNOWN: Final = frozenset(
    {
        "schema", "id", "session", "lane", "parent", "task", "purpose", "provider", "surface",
        "model", "started_at", "first_token_at", "ended_at", "attempt", "request",
        "content_tokens", "response", "error", "tool_seconds", "outcome", "usage",
        "reported_cost", "currency", "client", "boundaries", "start_span", "relative_time",
        "requests", EXACT_FIELD,
    }
)  # fmt: skip


_raws: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class NativeSource:
    """Reads recorded session files."""

    name = "native"
    title = "Recorded session (*.session.jsonl)"
    capabilities = Capabilities(
        reads=True,
        writes=True,
        ttl_split=True,
        bodies=True,
        start_times="exact",
        provider_reasons=True,
    )

    def detect(self, head: Head) -> int:
        """Say how sure we are that the file is a recorded session."""
        records = head.lines or ((head.document,) if isinstance(head.document, dict) else ())
        for record in records[:5]:
            if str(record.get("schema", "")).startswith(_FAMILY):
                return 100
        if _SIGN.search(head.data[:1000]):
            return 100
        named = head.path.name.endswith(".session.jsonl")
        for record in records[:5]:
            if "started_at" in record and ("response" in record or "request" in record):
                return 90 if named or {"lane", "purpose"} & record.keys() else 0
        return 90 if named and not records and head.data.lstrip()[:1] in (b"{", b"") else 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call a line; bodies are expanded and then dropped."""
        reader = _Reader(path, problems)
        for number, value in json_lines(path, problems):
            call = reader.any(number, value)
            if call is not None:
                yield call

    def read_from(
        self, path: Path, problems: ProblemSink, start: int, first_line: int
    ) -> Iterator[Call]:
        """Yield the calls of an appended part.

        Where a line builds on an earlier prompt, what stands before is read for it first.
        """
        reader = _Reader(path, problems)
        is_whole = first_line <= 1
        for number, value in json_lines(path, problems, start, first_line):
            if not is_whole and _builds_on_earlier(value):
                is_whole = True
                reader = _Reader(path, _nowhere)
                for earlier, record in json_lines(path, _nowhere):
                    if earlier >= number:
                        break
                    reader.any(earlier, record)
                reader.problems = problems
            call = reader.any(number, value)
            if call is not None:
                yield call

    def usages(self, path: Path, problems: ProblemSink) -> Iterator[UsageRecord]:
        """Yield what a total needs; bodies are passed over unless the bill depends on them."""
        reader = _Reader(path, problems)
        for number, _, line in raw_lines(path, problems):
            fields = _without_request(line)
            if fields is not None and _is_billed_without_body(fields):
                call: Call | None = reader.call(number, fields)
            else:
                value = parse(line, f"{path}:{number}", problems)
                call = None if value is None else reader.any(number, value)
            record = None if call is None else record_of(call)
            if record is not None:
                yield record

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield nothing: recordings lie where their owner put them."""
        del environment, home
        yield from ()


class _Reader:
    """One pass over one file."""

    def __init__(self, path: Path, problems: ProblemSink) -> None:
        self._path = path
        self.problems = problems
        self._bodies = Bodies(self._count)
        self._written = RecordReader()
        self._newer = False

    def _count(self, kind: str, where: str, detail: str = "") -> None:
        self.problems(kind, where, detail)

    def any(self, number: int, value: Any) -> Call | None:
        """Make a call of whatever stands on a line."""
        where = f"{self._path}:{number}"
        if not isinstance(value, dict):
            self.problems("wrong_type", where, f"{type(value).__name__}, not an object")
            return None
        exact = self._written.call(value, where, self.problems)
        return exact if exact is not None else self.call(number, value)

    def call(self, number: int, fields: dict[str, Any]) -> Call:
        """Make a call of one line."""
        where = f"{self._path}:{number}"
        record = Record(fields, where, self.problems)
        self._check_schema(record)
        named = record.text("session")
        session = named or self._path.name.removesuffix(".session.jsonl")
        lane = record.text("lane") or "main"
        provider = record.text("provider")
        request = self._object(record, "request")
        answer = self._answer(record, request)
        prompt, _ = self._bodies.prompt(
            request, session=session, lane=lane, provider=provider, where=where, answer=answer
        )
        sent = record.text("model") or (prompt.model if prompt else None)
        model = served_model(sent, answer.model)
        usage = with_assumed_ttl(self._usage(record, answer), prompt, provider, model)
        for flag in usage.flags if usage is not None else ():
            self.problems(flag, where)
        started = record.time("started_at")
        ident = record.text("id")
        if ident is None:
            record.problem("missing_field", "id")
        return Call(
            id=ident or f"{session}#{number}",
            session=session,
            lane=lane,
            parent=record.text("parent"),
            task=record.text("task"),
            purpose=_purpose(record),
            provider=provider,
            surface=record.text("surface"),
            model=model,
            started_at=started,
            start_span=_span(record) if started is None else None,
            first_token_at=record.time("first_token_at"),
            ended_at=record.time("ended_at"),
            attempt=record.count("attempt") or 0,
            usage=usage,
            prompt=self._sized(record, prompt, usage),
            diagnostics=answer.diagnostics,
            stop_reason=answer.stop_reason,
            error=_error(record) or answer.error,
            tool_seconds=record.seconds("tool_seconds"),
            outcome=record.text("outcome"),
            reported_cost=record.money("reported_cost") or answer.cost,
            currency=record.text("currency") or "USD",
            client=record.text("client"),
            boundaries=_boundaries(record),
            origin=Origin(str(self._path), number),
            dedupe_key=f"native:{named}/{ident}/{started}" if named and ident else None,
            relative_time=_is_relative(fields, started),
            requests=_requests(record),
            extra={k: v for k, v in fields.items() if k not in _KNOWN and not is_absent(v)},
        )

    def _check_schema(self, record: Record) -> None:
        schema = record.fields.get("schema")
        if schema == SCHEMA or is_absent(schema) or self._newer:
            return
        self._newer = True
        record.problem("unknown_schema", f"{str(schema)[:60]!r} is read as {SCHEMA}")

    def _object(self, record: Record, name: str) -> Mapping[str, Any] | None:
        value = record.fields.get(name)
        if is_absent(value):
            return None
        found = mapping(value)
        if not found and not isinstance(value, Mapping):
            record.wrong(name, "an object", value)
        return found or None

    def _answer(self, record: Record, request: Mapping[str, Any] | None) -> Answer:
        response = self._object(record, "response")
        if response is None:
            return Answer()
        try:
            return read_answer(response, request)
        except UnpackError as error:
            record.problem("unreadable_body", str(error))
            return Answer()

    def _usage(self, record: Record, answer: Answer) -> Usage | None:
        if answer.usage is not None:
            return answer.usage
        own = mapping(record.fields.get("usage"))
        if own:
            return normalise(own)
        response = record.fields.get("response")
        if isinstance(response, Mapping) and is_absent(record.fields.get("error")):
            record.problem("missing_usage", "the response carries no usage record")
        return None

    def _sized(self, record: Record, prompt: Prompt | None, usage: Usage | None) -> Prompt | None:
        counts = record.fields.get("content_tokens")
        if counts is not None and prompt is None:
            return None
        return with_sizes(prompt, usage, counts, record.where, self.problems)


def _nowhere(kind: str, where: str, detail: str = "") -> None:
    """Count nothing: these lines were counted when they were read for themselves."""


def _without_request(line: bytes) -> dict[str, Any] | None:
    """Decode a line but for its request; ``None`` where that cannot be done."""
    try:
        raws = _raws(line)
        if EXACT_FIELD in raws:
            return None
        raws.pop("request", None)
        return {name: msgspec.json.decode(raw) for name, raw in raws.items()}
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_billed_without_body(fields: Mapping[str, Any]) -> bool:
    """Whether the record says itself which model it was, and how long what was written lives."""
    if provider_of_model(text(fields.get("model"))) is None:
        return False
    response = fields.get("response")
    if response is not None and not isinstance(response, Mapping):
        return False
    stated = raw_usage(response) if response else mapping(fields.get("usage"))
    usage = normalise(stated) if stated else None
    return usage is None or not usage.write_other


def _builds_on_earlier(value: Any) -> bool:
    """Whether the prompt of a line is told as a difference to an earlier one."""
    record = mapping(value)
    if dig(record, EXACT_FIELD, "prompt", "base") is not None:
        return True
    request = mapping(record.get("request"))
    return isinstance(request.get("thread"), Mapping) or "previous_response_id" in request


def _purpose(record: Record) -> str:
    purpose = record.text("purpose") or "main"
    if purpose in PURPOSES:
        return purpose
    record.wrong("purpose", "one of " + ", ".join(PURPOSES), purpose)
    return "other"


def _error(record: Record) -> CallError | None:
    value = record.fields.get("error")
    if is_absent(value):
        return None
    details = mapping(value)
    if not details:
        return CallError(None, None, short_message(value) if isinstance(value, str) else None)
    inner = Record(details, record.where, record.problem_sink)
    return CallError(
        inner.text("type"), inner.count("status"), short_message(inner.text("message"))
    )


def _span(record: Record) -> Span | None:
    span = record.fields.get("start_span")
    if is_absent(span):
        return None
    if isinstance(span, list) and len(span) == 2:
        span = {"low": span[0], "high": span[1]}
    inner = Record(mapping(span), record.where, record.problem_sink)
    low, high = inner.time("low"), inner.time("high")
    if low is None or high is None or low > high:
        record.wrong("start_span", "an interval of time", span)
        return None
    return Span(low, high)


def _boundaries(record: Record) -> tuple[Boundary, ...]:
    value = record.fields.get("boundaries")
    if not isinstance(value, list):
        return ()
    found: list[Boundary] = []
    for item in value:
        inner = Record(mapping(item), record.where, record.problem_sink)
        kind = inner.text("kind")
        if kind is not None:
            at, before = inner.time("at"), inner.count("tokens_before")
            found.append(Boundary(kind, at, inner.text("trigger"), before))
    return tuple(found)


def _is_relative(fields: Mapping[str, Any], started: float | None) -> bool:
    stated = fields.get("relative_time")
    if isinstance(stated, bool):
        return stated
    return started is not None and started < _EARLIEST


def _requests(record: Record) -> int | None:
    if "requests" not in record.fields:
        return 1
    return record.count("requests")


SOURCE = NativeSource()

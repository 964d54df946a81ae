"""Copilot CLI session events: totals by model at shutdown, output counts by message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cacheaudit.dialects.reading import Reader
from cacheaudit.ingest._agents import (
    Window,
    count_flags,
    folders,
    mapping,
    size,
    text,
    within,
)
from cacheaudit.ingest.endpoints import provider_of_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.lines import json_lines
from cacheaudit.model.call import Boundary, Call, Origin, Span
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import FLAG_SPLIT_UNKNOWN, Usage

_EVENTS = (
    "session.start",
    "session.resume",
    "session.shutdown",
    "user.message",
    "assistant.message",
    "assistant.turn_start",
    "session.model_change",
)
_INPUT_EVENTS = frozenset(
    {"user.message", "system.message", "tool.execution_complete", "assistant.turn_start"}
)
_FIELDS = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens", "reasoningTokens")
Counts = tuple[int | None, ...]


class CopilotCli:
    """Reads ``session-state/*/events.jsonl``; its OpenTelemetry files belong to that source."""

    name = "copilot_cli"
    title = "GitHub Copilot CLI"
    capabilities = Capabilities(reads=True, writes=True, start_times="interval")

    def detect(self, head: Head) -> int:
        """Recognise the envelope of an event (type, data, id, parentId), or the totals."""
        for line in head.lines:
            data, kind = line.get("data"), str(line.get("type"))
            if not isinstance(data, dict) or kind not in _EVENTS:
                continue
            if ("parentId" in line and "id" in line) or "modelMetrics" in data:
                return 90
        start = head.data[:400].replace(b" ", b"")
        return 80 if b'"type":"session.start","data":{"sessionId"' in start else 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield a call for every model of every stretch that ended with a shutdown.

        A stretch with one request gives that request. One with several gives their sum
        (``requests`` says of how many), since only sums of the input are recorded. Answers
        that no shutdown followed give calls of which only the output is known.
        """
        return _Events(path, problems).calls()

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield session events and telemetry below ``COPILOT_HOME``, default ``~/.copilot``."""
        for root in folders(environment, "COPILOT_HOME") or [home / ".copilot"]:
            yield root / "session-state"
            yield root / "history-session-state"
            yield root / "otel"
        yield from folders(environment, "COPILOT_OTEL_FILE_EXPORTER_PATH")


class _Events:
    """State of one pass over one file."""

    def __init__(self, path: Path, problems: ProblemSink) -> None:
        self.path, self.problems = path, problems
        self.session = path.parent.name if path.stem == "events" else path.stem
        self.client = "copilot-cli"
        self.model: str | None = None
        self.last_at: float | None = None
        self.windows: dict[str, Window] = {}
        self.boundaries: list[Boundary] = []
        # Answers since the last shutdown, in order.
        self.answers: list[Call] = []
        self.totals: dict[str, Counts] = {}
        self.counted: dict[str, int] = {}
        self.stretch = 0

    def calls(self) -> Iterator[Call]:
        for line, event in json_lines(self.path, self.problems):
            where = f"{self.path}:{line}"
            if not isinstance(event, dict):
                self.problems("wrong_type", where, "expected an object")
                continue
            data = event.get("data")
            if not isinstance(data, dict):
                if str(event.get("type")) in _EVENTS:
                    self.problems("wrong_type", where, "data is no object")
                continue
            at = parse_time(event.get("timestamp"))
            self.last_at = at if at is not None else self.last_at
            if event.get("type") == "session.shutdown":
                yield from self._shutdown(data, line, where)
            else:
                self._event(str(event.get("type")), event, data, at, line)
        yield from self.answers

    def _event(
        self,
        kind: str,
        event: dict[str, Any],
        data: dict[str, Any],
        at: float | None,
        line: int,
    ) -> None:
        if kind in ("session.start", "session.resume"):
            self._start(kind, data, at)
        elif kind == "session.model_change":
            self.model = text(data.get("newModel")) or self.model
        elif kind == "session.compaction_complete" and data.get("success") is not False:
            before = size(data, "preCompactionTokens")
            self.boundaries.append(Boundary("compaction", at=at, tokens_before=before))
        elif kind == "session.truncation":
            self.boundaries.append(Boundary("clear", at=at))
        elif kind in _INPUT_EVENTS:
            self._window(event, data).saw_input(at)
        elif kind == "assistant.message":
            self._answer(event, data, at, line)

    def _start(self, kind: str, data: dict[str, Any], at: float | None) -> None:
        self.session = text(data.get("sessionId")) or self.session
        self.model = text(data.get("selectedModel")) or self.model
        version = text(data.get("copilotVersion"))
        self.client = f"copilot-cli {version}" if version else self.client
        if kind == "session.resume":
            self.boundaries.append(Boundary("resume", at=at))

    def _lane(self, event: dict[str, Any], data: dict[str, Any]) -> str:
        return text(event.get("agentId")) or text(data.get("parentToolCallId")) or "main"

    def _window(self, event: dict[str, Any], data: dict[str, Any]) -> Window:
        return self.windows.setdefault(self._lane(event, data), Window())

    def _answer(
        self, event: dict[str, Any], data: dict[str, Any], at: float | None, line: int
    ) -> None:
        reader = Reader()
        lane = self._lane(event, data)
        model = text(data.get("model")) or self.model
        output = reader.aside(data.get("outputTokens"))
        ident = text(data.get("apiCallId")) or text(data.get("messageId")) or text(event.get("id"))
        ident = ident or f"{self.session}:{line}"
        if any(answer.id == ident for answer in self.answers[-1:]):
            return
        usage = Usage(
            output=output, dialect="copilot_cli", flags=(*reader.done(), FLAG_SPLIT_UNKNOWN)
        )
        call = self._call(ident, model, usage, line)
        count_flags(usage, self.problems, f"{self.path}:{line}")
        span = self._window(event, data).close(at)
        self.answers.append(
            replace(
                call,
                lane=lane,
                purpose="main" if lane == "main" else "subagent",
                start_span=span,
                ended_at=at,
                boundaries=tuple(self.boundaries),
                dedupe_key=f"copilot_cli:{ident}",
            )
        )
        self.boundaries.clear()

    # Shutdown --------------------------------------------------------------------------------

    def _shutdown(self, data: dict[str, Any], line: int, where: str) -> Iterator[Call]:
        metrics = data.get("modelMetrics")
        answers, self.answers = self.answers, []
        if not isinstance(metrics, dict) or not metrics:
            if metrics is not None and not isinstance(metrics, dict):
                self.problems("wrong_type", where, "modelMetrics is no object")
            yield from answers
            return
        self.stretch += 1
        for model, entry in metrics.items():
            raw = mapping(entry).get("usage")
            if not isinstance(raw, dict):
                self.problems("missing_usage", where, "a model without usage")
                continue
            call = self._model(str(model), raw, mapping(mapping(entry).get("requests")), line)
            if call is None:
                continue
            count_flags(call.usage, self.problems, where)
            mine = answers if len(metrics) == 1 else [a for a in answers if a.model == model]
            yield _merged(call, mine)

    def _model(
        self, model: str, raw: dict[str, Any], requests: dict[str, Any], line: int
    ) -> Call | None:
        """Return what a model used since the last shutdown: the recorded sums run on."""
        reader = Reader()
        totals = tuple(
            reader.count(raw.get(field)) if field in _FIELDS[:3] else reader.aside(raw.get(field))
            for field in _FIELDS
        )
        count = size(requests, "count")
        before, counted = self.totals.get(model), self.counted.get(model, 0)
        if before is not None and _went_down(before, totals):
            # The program counts from zero again.
            before, counted = None, 0
        self.totals[model] = totals
        self.counted[model] = count or 0
        own = totals if before is None else _minus(totals, before)
        number = None if count is None else count - counted
        if before is not None and not any(own) and not number:
            return None
        total, read, write, output, reasoning = own
        usage = within(
            "copilot_cli",
            reader,
            total=total,
            read=read,
            write=write,
            output=output,
            reasoning=reasoning,
        )
        ident = f"{self.session}:shutdown:{self.stretch}:{model}"
        call = self._call(ident, model, usage, line)
        key = ":".join(str(part) for part in totals)
        return replace(
            call,
            requests=number if number is not None and number > 0 else None,
            ended_at=self.last_at,
            lane="totals",
            purpose="other",
            dedupe_key=f"copilot_cli:{self.session}:{model}:{key}",
        )

    def _call(self, ident: str, model: str | None, usage: Usage, line: int) -> Call:
        return Call(
            id=ident,
            session=self.session,
            provider=provider_of_model(model),
            surface="other",
            model=model,
            usage=with_assumed_ttl(usage, None, provider_of_model(model), model),
            client=self.client,
            origin=Origin(str(self.path), line),
        )


def _merged(total: Call, answers: list[Call]) -> Call:
    """Give a sum the times of the answers in it; the sum of one request is that request."""
    if not answers:
        return total
    boundaries = tuple(boundary for answer in answers for boundary in answer.boundaries)
    if total.requests == 1 and len(answers) == 1:
        only = answers[0]
        return replace(only, usage=total.usage, dedupe_key=total.dedupe_key)
    first, last = answers[0].start_bounds, answers[-1].ended_at
    span = None if first is None or last is None else Span(first.low, max(first.low, last))
    return replace(total, start_span=span, ended_at=last, boundaries=boundaries)


def _went_down(before: Counts, now: Counts) -> bool:
    return any((b or 0) < (a or 0) for a, b in zip(before, now, strict=True))


def _minus(a: Counts, b: Counts) -> Counts:
    return tuple(
        None if mine is None else mine - (theirs or 0) for mine, theirs in zip(a, b, strict=True)
    )


SOURCE = CopilotCli()

"""Kimi CLI: the wire log of a session, whose status updates carry disjoint counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cacheaudit.dialects.reading import Reader
from cacheaudit.ingest._agents import Window, beside, count_flags, folders, mapping, text
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.lines import json_lines
from cacheaudit.model.call import Boundary, Call, Origin
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import Usage

_SNAKE = ("input_other", "input_cache_read", "input_cache_creation")
_CAMEL = ("inputOther", "inputCacheRead", "inputCacheCreation")
_INPUT = ("TurnBegin", "ToolResult", "SteerInput")
_OUTPUT = ("ContentPart", "ToolCall", "ThinkPart", "TextPart")


class KimiCli:
    """Reads ``sessions/*/*/wire.jsonl``."""

    name = "kimi_cli"
    title = "Kimi CLI"
    capabilities = Capabilities(reads=True, writes=True, start_times="interval")

    def detect(self, head: Head) -> int:
        """Recognise wire messages, or the usage records of the newer program."""
        for line in head.lines:
            message = mapping(line.get("message"))
            if "timestamp" in line and "payload" in message and text(message.get("type")):
                return 85
            if line.get("type") == "usage.record" and "inputOther" in mapping(line.get("usage")):
                return 90
        return 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call for every status update with counts."""
        return _Wire(path, problems).calls()

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield the sessions below ``KIMI_SHARE_DIR``, default ``~/.kimi``."""
        for root in folders(environment, "KIMI_SHARE_DIR") or [home / ".kimi"]:
            yield root / "sessions"


class _Wire:
    """State of one pass over one file."""

    def __init__(self, path: Path, problems: ProblemSink) -> None:
        self.path, self.problems = path, problems
        self.session = path.parent.name or path.stem
        self.windows: dict[str, Window] = {}
        self.boundaries: dict[str, list[Boundary]] = {}
        self.sizes: dict[str, int | None] = {}
        # The last call of a lane: its update may be repeated with newer counts.
        self.pending: Call | None = None

    def calls(self) -> Iterator[Call]:
        for line, record in json_lines(self.path, self.problems):
            if not isinstance(record, dict):
                self.problems("wrong_type", f"{self.path}:{line}", "expected an object")
                continue
            call = self._take(record, line)
            if call is None:
                continue
            if self.pending is not None and self.pending.dedupe_key != call.dedupe_key:
                yield self.pending
            self.pending = call
        if self.pending is not None:
            yield self.pending

    def _take(self, record: dict[str, Any], line: int) -> Call | None:
        if record.get("type") == "usage.record":
            at = parse_time(record.get("time"))
            model = text(record.get("model"))
            return self._call(record.get("usage"), "main", at, line, None, model, _CAMEL)
        at = parse_time(record.get("timestamp"))
        message = mapping(record.get("message"))
        return self._message(message, "main", at, line)

    def _message(
        self, message: dict[str, Any], lane: str, at: float | None, line: int
    ) -> Call | None:
        kind, payload = message.get("type"), mapping(message.get("payload"))
        if kind == "SubagentEvent":
            inner = text(payload.get("task_tool_call_id")) or text(payload.get("agent_id"))
            return self._message(mapping(payload.get("event")), inner or "subagent", at, line)
        window = self.windows.setdefault(lane, Window())
        if kind in _INPUT:
            window.saw_input(at)
        elif kind in _OUTPUT:
            window.saw_output(at)
        elif kind == "CompactionEnd":
            size = self.sizes.get(lane)
            window.saw_input(at)
            waiting = self.boundaries.setdefault(lane, [])
            waiting.append(Boundary("compaction", at=at, tokens_before=size))
        elif kind == "StatusUpdate" and payload.get("token_usage") is not None:
            answer = text(payload.get("message_id"))
            return self._call(payload["token_usage"], lane, at, line, answer, None, _SNAKE)
        return None

    def _call(
        self,
        raw: object,
        lane: str,
        at: float | None,
        line: int,
        answer: str | None,
        model: str | None,
        names: tuple[str, ...],
    ) -> Call | None:
        where = f"{self.path}:{line}"
        if not isinstance(raw, dict):
            self.problems("wrong_type", where, "usage is no object")
            return None
        usage = _usage(raw, names)
        count_flags(usage, self.problems, where)
        key = f"kimi_cli:{answer}" if answer else f"kimi_cli:{self.session}:{at}:{line}"
        again = self.pending is not None and self.pending.dedupe_key == key
        window = self.windows.setdefault(lane, Window())
        before = self.pending if again else None
        self.sizes[lane] = usage.total_input
        return Call(
            id=answer or f"{self.session}:{line}",
            session=self.session,
            lane=lane,
            purpose="main" if lane == "main" else "subagent",
            provider="moonshot",
            model=model,
            start_span=before.start_span if before else window.close(at),
            ended_at=at,
            usage=with_assumed_ttl(usage, None, "moonshot", model),
            client="kimi-cli",
            boundaries=before.boundaries if before else tuple(self.boundaries.pop(lane, ())),
            origin=Origin(str(self.path), line),
            dedupe_key=key,
        )


def _usage(raw: Mapping[str, Any], names: tuple[str, ...]) -> Usage:
    reader = Reader()
    output = reader.aside(raw.get("output"))
    fresh, read, write = (reader.count(raw.get(name)) for name in names)
    return beside("kimi_cli", reader, fresh=fresh, read=read, write=write, output=output)


SOURCE = KimiCli()

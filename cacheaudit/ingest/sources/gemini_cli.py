"""Gemini CLI: chat recordings (one document, or a log of rewritten records) and headless output."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cacheaudit.ingest._agents import (
    GoogleNames,
    Window,
    count_flags,
    document,
    folders,
    google,
    is_line_file,
    items,
    mapping,
    size,
    text,
)
from cacheaudit.ingest.lines import json_lines
from cacheaudit.model.call import Boundary, Call, Origin
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import Usage

_NAMES = GoogleNames("input", "cached", "output", "thoughts", "tool", "total")
_HEADLESS = _NAMES._replace(prompt="prompt", candidates="candidates")
_HEAD_BYTES = 4096
_SESSION = re.compile(rb'"sessionId"\s*:\s*"([^"/]+)"')
_SUBAGENT = re.compile(rb'"kind"\s*:\s*"subagent"')
_MARKS = (b'"sessionId"', b'"projectHash"')


class _Chat(msgspec.Struct):
    """The parts of a one-document recording that are read."""

    sessionId: Any = None  # noqa: N815 - named as in the file
    kind: Any = None
    messages: list[msgspec.Raw] = []
    stats: Any = None
    session_id: Any = None


class GeminiCli:
    """Reads ``chats/session-*.json`` and ``.jsonl``, and what ``--output-format json`` printed."""

    name = "gemini_cli"
    title = "Gemini CLI"
    capabilities = Capabilities(reads=True, start_times="interval")

    def detect(self, head: Head) -> int:
        """Recognise a recording by its head, else by messages with Gemini CLI's token names."""
        if isinstance(head.document, dict) and _models(head.document):
            return 85
        start = head.data[:4096]
        if all(mark in start for mark in _MARKS):
            return 90
        for line in head.lines:
            if line.get("type") == "gemini" and "cached" in mapping(line.get("tokens")):
                return 80
        return 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call for every answer; of records with one id the last one counts."""
        if is_line_file(path):
            return _Recording(path, problems).lines()
        return _Recording(path, problems).whole()

    def group(self, path: Path) -> str:
        """Name the session of a file: subagents have files in a folder named after it."""
        try:
            with path.open("rb") as stream:
                head = stream.read(_HEAD_BYTES)
        except OSError:
            head = b""
        if _SUBAGENT.search(head):
            return str(path.parent)
        found = _SESSION.search(head)
        return str(path.parent / (found[1].decode(errors="replace") if found else path.stem))

    def project(self, path: Path) -> str | None:
        """Name the folder that holds the recordings of one project."""
        above = [folder.parent.name for folder in path.parents if folder.name == "chats"]
        return above[0] if above else path.parent.name

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield the recordings below ``GEMINI_DATA_DIR``, default ``~/.gemini``."""
        for root in folders(environment, "GEMINI_DATA_DIR") or [home / ".gemini"]:
            yield root if root.name == "tmp" else root / "tmp"


class _Recording:
    """State of one pass over one file."""

    def __init__(self, path: Path, problems: ProblemSink) -> None:
        self.path, self.problems = path, problems
        self.session = path.stem
        self.lane, self.purpose = "main", "main"
        self.window = Window()
        self.boundaries: list[Boundary] = []
        self.found: dict[str, Call] = {}

    def whole(self) -> Iterator[Call]:
        chat = document(self.path, self.problems, _Chat)
        if chat is None:
            return
        if chat.stats is not None and not chat.messages:
            yield from self._headless(chat.stats, chat.session_id)
            return
        self._head({"sessionId": chat.sessionId, "kind": chat.kind})
        where = f"{self.path}:messages"
        for position, message in items(chat.messages, where, self.problems):
            self._message(message, 0, position)
        yield from self.found.values()

    def lines(self) -> Iterator[Call]:
        for line, record in json_lines(self.path, self.problems):
            if not isinstance(record, dict):
                self.problems("wrong_type", f"{self.path}:{line}", "expected an object")
            elif "$rewindTo" in record:
                # The answers behind the mark were paid for all the same.
                self.boundaries.append(Boundary("branch"))
            elif "stats" in record:
                yield from self._headless(record["stats"], record.get("session_id"))
            elif isinstance(record.get("id"), str) and "type" in record:
                self._message(record, line, line)
            else:
                self._patch(mapping(record.get("$set")) or record, line)
        yield from self.found.values()

    def _patch(self, patch: dict[str, Any], line: int) -> None:
        self._head(patch)
        messages = patch.get("messages")
        for message in messages if isinstance(messages, list) else ():
            # A patch repeats the context as it is now; known messages keep their first place.
            if not isinstance(message, dict):
                self.problems("wrong_type", f"{self.path}:{line}", "a message is no object")
            elif text(message.get("id")) not in self.found:
                self._message(message, line, line)

    def _head(self, head: Mapping[str, Any]) -> None:
        self.session = text(head.get("sessionId")) or self.session
        if head.get("kind") == "subagent":
            self.lane, self.purpose = self.session, "subagent"
            # Recordings of subagents lie in a folder named after the session that started them.
            if self.path.parent.name not in ("chats", ""):
                self.session = self.path.parent.name

    def _message(self, message: dict[str, Any], line: int, position: int) -> None:
        at = parse_time(message.get("timestamp"))
        if message.get("type") != "gemini":
            if message.get("type") == "user":
                self.window.saw_input(at)
            return
        ident = text(message.get("id")) or f"{self.session}:{position}"
        where = f"{self.path}:{line}" if line else f"{self.path}:messages[{position - 1}]"
        usage = self._usage(message, where)
        known = self.found.get(ident)
        if known is not None:
            if usage is not None:
                self.found[ident] = msgspec.structs.replace(known, usage=usage)
            self._saw_tools(message)
            return
        if usage is None and not text(message.get("model")):
            return
        span = self.window.close(at)
        self.found[ident] = Call(
            id=ident,
            session=self.session,
            lane=self.lane,
            purpose=self.purpose,
            provider="gemini",
            surface="gemini_api",
            model=text(message.get("model")),
            start_span=span,
            ended_at=at,
            usage=usage,
            client="gemini-cli",
            boundaries=tuple(self.boundaries),
            origin=Origin(str(self.path), line),
            dedupe_key=f"gemini_cli:{self.session}:{ident}",
        )
        self.boundaries.clear()
        self._saw_tools(message)

    def _saw_tools(self, message: dict[str, Any]) -> None:
        """Tool results are stored inside the answer that asked for them."""
        calls = message.get("toolCalls")
        for tool in calls if isinstance(calls, list) else ():
            self.window.saw_input(parse_time(mapping(tool).get("timestamp")))

    def _usage(self, message: dict[str, Any], where: str) -> Usage | None:
        raw = message.get("tokens")
        if raw is None:
            return None
        if not isinstance(raw, dict):
            self.problems("wrong_type", where, "tokens is no object")
            return None
        usage = google("gemini_cli", raw, _NAMES, absent=0)
        count_flags(usage, self.problems, where)
        return usage

    def _headless(self, stats: object, session_id: object) -> Iterator[Call]:
        """Yield one sum for every model of a headless run."""
        session = text(session_id) or self.session
        for model, entry in _models({"stats": stats}).items():
            raw = mapping(mapping(entry).get("tokens"))
            count = mapping(mapping(entry).get("api")).get("totalRequests")
            usage = google("gemini_cli", raw, _HEADLESS, absent=0)
            count_flags(usage, self.problems, f"{self.path}:{model}")
            alone = count == 1
            yield Call(
                id=f"{session}:{model}",
                session=session,
                lane="main" if alone else "totals",
                purpose="main" if alone else "other",
                requests=size({"count": count}, "count") or None,
                provider="gemini",
                surface="gemini_api",
                model=str(model),
                usage=usage,
                client="gemini-cli",
                origin=Origin(str(self.path)),
                dedupe_key=f"gemini_cli:{session}:stats:{model}",
            )


def _models(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the per-model statistics of headless output, an empty object where it is none."""
    models = mapping(mapping(record.get("stats")).get("models"))
    good = all("candidates" in mapping(mapping(entry).get("tokens")) for entry in models.values())
    return models if good else {}


SOURCE = GeminiCli()

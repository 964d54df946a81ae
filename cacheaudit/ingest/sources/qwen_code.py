"""Qwen Code: chat recordings as a tree of self-contained JSONL records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cacheaudit.ingest._agents import (
    GoogleNames,
    Window,
    count_flags,
    folders,
    google,
    mapping,
    size,
    text,
)
from cacheaudit.ingest.endpoints import provider_of_model
from cacheaudit.ingest.lines import json_lines
from cacheaudit.model.call import Boundary, Call, Origin
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import Capabilities, Head, ProblemSink

# Gemini's names, but for other models the counts come from APIs whose answer already holds the
# reasoning and whose prompt already holds tool prompts: the total tells.
_NAMES = GoogleNames(
    "promptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
    "totalTokenCount",
)


class QwenCode:
    """Reads ``projects/*/chats/*.jsonl``."""

    name = "qwen_code"
    title = "Qwen Code"
    capabilities = Capabilities(reads=True, start_times="interval")

    def detect(self, head: Head) -> int:
        """Recognise records with Google-shaped messages or usage inside a session's tree."""
        for line in head.lines:
            if not isinstance(line.get("sessionId"), str) or "uuid" not in line:
                continue
            # Envelope as in Claude Code, message as in Google's API: surer than either alone.
            if "promptTokenCount" in mapping(line.get("usageMetadata")):
                return 100
            if isinstance(mapping(line.get("message")).get("parts"), list):
                return 100
        return 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call for every assistant record with usage."""
        return _Recording(path, problems).calls()

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield the projects below ``QWEN_DATA_DIR`` or ``QWEN_HOME``, default ``~/.qwen``."""
        named = folders(environment, "QWEN_DATA_DIR") + folders(environment, "QWEN_HOME")
        for root in named or [home / ".qwen"]:
            yield root / "projects"


class _Recording:
    """State of one pass over one file."""

    def __init__(self, path: Path, problems: ProblemSink) -> None:
        self.path, self.problems = path, problems
        self.windows: dict[str, Window] = {}
        self.boundaries: dict[str, list[Boundary]] = {}
        # Record to the call that its context ends with.
        self.ends_with: dict[str, str] = {}
        self.seen: set[str] = set()

    def calls(self) -> Iterator[Call]:
        for line, record in json_lines(self.path, self.problems):
            if not isinstance(record, dict):
                self.problems("wrong_type", f"{self.path}:{line}", "expected an object")
                continue
            call = self._take(record, line)
            uuid, above = text(record.get("uuid")), text(record.get("parentUuid"))
            if uuid is not None:
                inherited = self.ends_with.get(above) if above is not None else None
                end = call.id if call is not None else inherited
                if end is not None:
                    self.ends_with[uuid] = end
            if call is not None:
                yield call

    def _take(self, record: dict[str, Any], line: int) -> Call | None:
        lane = "main"
        if text(record.get("agentId")) is not None or record.get("isSidechain") is True:
            lane = text(record.get("agentId")) or "sidechain"
        window = self.windows.setdefault(lane, Window())
        at, kind = parse_time(record.get("timestamp")), record.get("type")
        if kind in ("user", "tool_result"):
            window.saw_input(at)
        elif kind == "system":
            self._system(record, lane, at)
        elif kind == "assistant":
            return self._answer(record, lane, window, at, line)
        return None

    def _system(self, record: dict[str, Any], lane: str, at: float | None) -> None:
        waiting = self.boundaries.setdefault(lane, [])
        if record.get("subtype") == "chat_compression":
            info = mapping(mapping(record.get("systemPayload")).get("info"))
            waiting.append(
                Boundary("compaction", at=at, tokens_before=size(info, "originalTokenCount"))
            )
        elif record.get("subtype") == "rewind":
            waiting.append(Boundary("branch", at=at))

    def _answer(
        self, record: dict[str, Any], lane: str, window: Window, at: float | None, line: int
    ) -> Call | None:
        where = f"{self.path}:{line}"
        raw = record.get("usageMetadata")
        if raw is None:
            window.saw_output(at)
            return None
        if not isinstance(raw, dict):
            self.problems("wrong_type", where, "usageMetadata is no object")
            return None
        uuid = text(record.get("uuid")) or f"{self.path.stem}:{line}"
        if uuid in self.seen:
            return None
        self.seen.add(uuid)
        absent = 0 if provider_of_model(text(record.get("model"))) == "gemini" else None
        usage = google("qwen_code", raw, _NAMES, absent=absent)
        count_flags(usage, self.problems, where)
        model = text(record.get("model"))
        version = text(record.get("version"))
        # A fork copies records into a new session and says where they came from.
        origin = mapping(record.get("forkedFrom"))
        session = text(record.get("sessionId")) or self.path.stem
        return Call(
            id=uuid,
            session=text(origin.get("sessionId")) or session,
            lane=lane,
            parent=self.ends_with.get(str(record.get("parentUuid"))),
            purpose="main" if lane == "main" else "subagent",
            provider=provider_of_model(model),
            model=model,
            start_span=window.close(at),
            ended_at=at,
            usage=usage,
            client=f"qwen-code {version}" if version else "qwen-code",
            boundaries=tuple(self.boundaries.pop(lane, ())),
            origin=Origin(str(self.path), line),
            dedupe_key=f"qwen_code:{text(origin.get('messageUuid')) or uuid}",
        )


SOURCE = QwenCode()

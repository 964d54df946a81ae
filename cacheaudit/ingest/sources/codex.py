"""Codex CLI rollouts: cumulative token counts, re-emitted events, forked and replayed history."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cacheaudit.dialects.detect import normalise
from cacheaudit.dialects.reading import Reader
from cacheaudit.ingest._agents import (
    Window,
    count_flags,
    folders,
    mapping,
    text,
    within,
)
from cacheaudit.ingest.endpoints import provider_of_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.lines import json_lines
from cacheaudit.model.call import Boundary, Call, Origin, Span
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import FLAG_FIELDS_DISAGREE, Usage

# Tuples, since what a damaged file holds there may not be hashable.
_ENVELOPES = (
    "session_meta",
    "turn_context",
    "response_item",
    "event_msg",
    "compacted",
    "token_usage_record",
    "world_state",
)
_FIELDS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)
# A fork writes the history that it copies in one burst; a genuine response takes longer.
_BURST_SECONDS = 1.0
_OUTPUT_ITEMS = (
    "reasoning",
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "web_search_call",
)
_PROVIDERS = {
    "openai": ("openai", "openai"),
    "azure": ("openai", "azure"),
    "openrouter": (None, "openrouter"),
    "ollama": ("local", "local"),
    "lmstudio": ("local", "local"),
    "oss": ("local", "local"),
}
_HEADER_LINES = 5
Counts = tuple[int | None, ...]


class Codex:
    """Reads ``rollout-*.jsonl``."""

    name = "codex"
    title = "Codex CLI"
    capabilities = Capabilities(reads=True, writes=True, start_times="interval")

    def detect(self, head: Head) -> int:
        """Recognise the envelope of a rollout line."""
        for line in head.lines:
            if line.get("type") in _ENVELOPES and isinstance(line.get("payload"), dict):
                return 95
        # The first line carries the base instructions and may be longer than the head.
        start = head.data[:400].replace(b" ", b"")
        return 85 if b'"type":"session_meta"' in start and b'"payload":{' in start else 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call for every change of the cumulative counts."""
        return _Rollout(path, problems).calls()

    def group(self, path: Path) -> str:
        """Name the session of a file.

        Subagents have files of their own, and a fork begins with a copy of what it forked from.
        """
        first = _first_meta(path)
        return first.session if first.lane != "main" else first.root

    def project(self, path: Path) -> str | None:
        """Name the folder that the session works in."""
        return _first_meta(path).project

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield the active and the archived sessions of ``CODEX_HOME``, default ``~/.codex``."""
        for root in folders(environment, "CODEX_HOME") or [home / ".codex"]:
            yield root / "sessions"
            yield root / "archived_sessions"


def _first_meta(path: Path) -> _Rollout:
    """Read the header of a rollout and nothing else."""
    state = _Rollout(path, _nowhere)
    for line, record in json_lines(path, _nowhere):
        payload = record.get("payload") if isinstance(record, dict) else None
        if isinstance(payload, dict) and record.get("type") == "session_meta":
            state._meta(payload, None)
        if state.has_meta or line >= _HEADER_LINES:
            break
    return state


def _nowhere(kind: str, where: str, detail: str = "") -> None:
    """Count nothing: the file is read for itself later."""


class _Rollout:
    """State of one pass over one file."""

    def __init__(self, path: Path, problems: ProblemSink) -> None:
        self.path, self.problems = path, problems
        self.thread = path.stem
        self.session = self.thread
        self.lane, self.purpose = "main", "main"
        self.root = self.thread
        self.project: str | None = None
        self.ancestor: str | None = None
        self.created: float | None = None
        self.client = "codex"
        self.provider: str | None = None
        self.model: str | None = None
        self.has_meta = False
        self.replaying = False
        self.first_ordinal: int | None = None
        self.last_at: float | None = None
        self.window = Window()
        self.boundaries: list[Boundary] = []
        self.totals: Counts | None = None
        self.record_counts: Counts | None = None
        self.last_counts: Counts | None = None
        self.responses: set[str] = set()
        self.pending: Call | None = None
        self.pending_counts: Counts | None = None
        self.prompt_size: int | None = None
        self.compaction_noted = False

    def calls(self) -> Iterator[Call]:
        for line, record in json_lines(self.path, self.problems):
            where = f"{self.path}:{line}"
            if not isinstance(record, dict):
                self.problems("wrong_type", where, "expected an object")
                continue
            payload = record.get("payload")
            if not isinstance(payload, dict):
                if record.get("type") in _ENVELOPES:
                    self.problems("wrong_type", where, "payload is no object")
                continue
            before = self.pending
            self._take(record, payload, parse_time(record.get("timestamp")), line, where)
            if before is not None and before is not self.pending and not self._replaces(before):
                yield before
        if self.pending is not None:
            yield self.pending

    def _replaces(self, before: Call) -> bool:
        """Whether the pending call is the same one as before, told more exactly."""
        now = self.pending
        return now is not None and now.origin == before.origin

    def _take(
        self,
        record: dict[str, Any],
        payload: dict[str, Any],
        at: float | None,
        line: int,
        where: str,
    ) -> None:
        kind = record.get("type")
        if kind == "session_meta":
            self._meta(payload, at)
            return
        self._watch_replay(record, at)
        if self.replaying and at is not None and not self._is_copy(at):
            self._replayed(record, payload, where)
        elif kind == "turn_context":
            self.model = text(payload.get("model")) or self.model
            self.window.saw_input(at)
        elif kind == "response_item":
            self._item(payload, at)
        elif kind == "token_usage_record":
            self._usage_record(payload, at, line, where)
        elif kind == "compacted":
            self._compacted(payload, at)
        elif kind == "event_msg":
            self._event(payload, at, line, where)

    # Lineage ---------------------------------------------------------------------------------

    def _meta(self, payload: dict[str, Any], at: float | None) -> None:
        thread = text(payload.get("id")) or text(payload.get("session_id"))
        if self.has_meta:
            # Headers of ancestors are copied along with their history.
            if thread is not None and thread != self.thread:
                self.ancestor = self.root = thread
                self.replaying = True
            return
        self.has_meta = True
        self.thread = thread or self.thread
        self.session = self.root = self.thread
        self.created = parse_time(payload.get("timestamp")) or at
        self.last_at = at
        folder = text(payload.get("cwd"))
        self.project = re.split(r"[/\\]", folder.rstrip("/\\"))[-1] if folder else None
        version = text(payload.get("cli_version"))
        self.client = f"codex {version}" if version else "codex"
        self.provider = text(payload.get("model_provider"))
        self.model = text(payload.get("model"))
        ordinal = payload.get("subagent_history_start_ordinal")
        self.first_ordinal = ordinal if isinstance(ordinal, int) else None
        self._place(payload)

    def _place(self, payload: dict[str, Any]) -> None:
        """Find out whether the thread is a subagent or a fork of another one."""
        source = mapping(payload.get("source")).get("subagent")
        spawn = mapping(mapping(source).get("thread_spawn"))
        parent = text(spawn.get("parent_thread_id")) or text(payload.get("parent_thread_id"))
        forked = text(payload.get("forked_from_id"))
        self.ancestor = forked or parent
        self.root = self.ancestor or self.thread
        self.replaying = self.ancestor is not None
        if source is not None or parent is not None or payload.get("thread_source") == "subagent":
            root = text(payload.get("session_id"))
            self.session = (root if root != self.thread else None) or parent or self.thread
            self.lane = self.thread
            self.purpose = "compaction" if source == "compact" else "subagent"

    def _watch_replay(self, record: dict[str, Any], at: float | None) -> None:
        """Find the end of the copied history: the first line that came after a pause."""
        ordinal = record.get("ordinal")
        if self.first_ordinal is not None and isinstance(ordinal, int):
            self.replaying = ordinal < self.first_ordinal
            return
        if not self.replaying or at is None or self._is_copy(at):
            return
        if self.last_at is not None and at - self.last_at >= _BURST_SECONDS:
            self.replaying = False
        self.last_at = at

    def _replayed(self, record: dict[str, Any], payload: dict[str, Any], where: str) -> None:
        """Take only the running total from history that was written again with new times."""
        if record.get("type") != "event_msg" or payload.get("type") != "token_count":
            return
        total = self._counts(mapping(payload.get("info")).get("total_token_usage"), where)
        if total is not None and total != self.totals:
            self.totals = total
            self.problems("replayed_history", where, "counts copied from the parent thread")

    def _is_copy(self, at: float | None) -> bool:
        """Whether a line of a fork is older than the fork: copied with its own time."""
        return (
            self.ancestor is not None
            and at is not None
            and self.created is not None
            and at < self.created
        )

    # Events ----------------------------------------------------------------------------------

    def _item(self, payload: dict[str, Any], at: float | None) -> None:
        kind = payload.get("type")
        if kind in _OUTPUT_ITEMS or (kind == "message" and payload.get("role") == "assistant"):
            self.window.saw_output(at)
        else:
            self.window.saw_input(at)

    def _event(self, payload: dict[str, Any], at: float | None, line: int, where: str) -> None:
        kind = payload.get("type")
        if kind == "token_count":
            self._token_count(payload, at, line, where)
        elif kind in ("user_message", "task_started"):
            self.window.saw_input(at)
        elif kind in ("agent_message", "agent_reasoning"):
            self.window.saw_output(at)
        elif kind == "context_compacted":
            self._note_compaction(at)
        elif kind == "item_completed":
            if mapping(payload.get("item")).get("type") == "ContextCompaction":
                self._note_compaction(at)
        elif kind == "thread_rolled_back":
            self.boundaries.append(Boundary("branch", at=at))

    def _compacted(self, payload: dict[str, Any], at: float | None) -> None:
        answer = text(payload.get("compaction_response_id"))
        if self.pending is not None and answer is not None and self.pending.id == answer:
            self.pending = msgspec.structs.replace(self.pending, purpose="compaction")
        self._note_compaction(at)

    def _note_compaction(self, at: float | None) -> None:
        # ``compacted`` and the event of the same name are two records of one thing.
        if not self.compaction_noted:
            self.compaction_noted = True
            self.boundaries.append(Boundary("compaction", at=at, tokens_before=self.prompt_size))

    def _token_count(
        self, payload: dict[str, Any], at: float | None, line: int, where: str
    ) -> None:
        info = payload.get("info")
        if info is None:
            return
        total = self._counts(mapping(info).get("total_token_usage"), where)
        last = self._counts(mapping(info).get("last_token_usage"), where)
        if total is None and last is None:
            self.problems("missing_usage", where, "token_count without counts")
            return
        unchanged = total == self.totals if total is not None else last == self.last_counts
        counts = self._own_counts(total, last, where)
        self.totals, self.last_counts = total or self.totals, last
        if unchanged or counts is None:
            return
        if self.record_counts is not None and _same(self.record_counts, counts):
            self.record_counts = None
            return
        model = text(mapping(info).get("model")) or text(payload.get("model"))
        key = self._key(at, total or counts)
        raw = mapping(info).get("last_token_usage") if counts is last else None
        self._start(counts, raw, at, line, where, ident=None, key=key, model=model)

    def _own_counts(self, total: Counts | None, last: Counts | None, where: str) -> Counts | None:
        """Return the counts of this request alone; gaps in the running total are counted."""
        before, grown = self.totals, None
        if total is not None:
            grown = _minus(total, before) if before is not None else total
        if grown is not None and any(part is not None and part < 0 for part in grown):
            # Newer versions lower the total at a compaction, and a subagent counts for itself.
            grown = None
            if last is None:
                self.problems("counter_reset", where, "the running total went down")
                grown = total
        if last is None:
            return grown
        if not any(last) and grown is not None and any(grown):
            self.problems(FLAG_FIELDS_DISAGREE, where, "the total grew, the last usage is zero")
            return grown
        known_start = before is not None or self.ancestor is None
        if known_start and grown is not None and any(grown) and not _same(grown, last):
            missing = (grown[0] or 0) - (last[0] or 0)
            self.problems("counter_gap", where, f"the total grew by {missing} input tokens more")
        return last

    def _usage_record(
        self, payload: dict[str, Any], at: float | None, line: int, where: str
    ) -> None:
        counts = self._counts(payload.get("usage"), where)
        if counts is None:
            self.problems("missing_usage", where, "token_usage_record without usage")
            return
        answer = text(payload.get("response_id"))
        if answer is not None:
            if answer in self.responses:
                return
            self.responses.add(answer)
        key = f"codex:{answer}" if answer else self._key(at, counts)
        known = self.pending
        if (
            known is not None
            and self.pending_counts is not None
            and _same(self.pending_counts, counts)
            and known.dedupe_key != f"codex:{known.id}"
        ):
            # The count came first: the same response, now with its id.
            ident = answer or known.id
            self.pending = msgspec.structs.replace(known, id=ident, dedupe_key=key)
            return
        self.record_counts = counts
        model = text(payload.get("model"))
        raw = payload.get("usage")
        self._start(counts, raw, at, line, where, ident=answer, key=key, model=model)

    # Calls -----------------------------------------------------------------------------------

    def _counts(self, value: object, where: str) -> Counts | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            self.problems("wrong_type", where, "usage is no object")
            return None
        reader = Reader()
        counts = tuple(reader.count(value.get(field)) for field in _FIELDS)
        return counts if any(count is not None for count in counts) else None

    def _key(self, at: float | None, counts: Counts) -> str:
        """Build a key that a copy of the line shares, whichever thread's file it stands in."""
        moment = f"{at:.3f}" if at is not None else self.root
        return f"codex:{moment}:" + ":".join(str(count or 0) for count in counts)

    def _start(
        self,
        counts: Counts,
        raw: object,
        at: float | None,
        line: int,
        where: str,
        *,
        ident: str | None,
        key: str,
        model: str | None,
    ) -> None:
        usage = _usage(counts, raw)
        count_flags(usage, self.problems, where)
        model = model or self.model
        copied = self._is_copy(at)
        span: Span | None = self.window.close(at)
        provider, surface = self._maker(model)
        self.pending = Call(
            id=ident or f"{self.thread}:{line}",
            session=(self.ancestor or self.session) if copied else self.session,
            lane="main" if copied else self.lane,
            purpose="main" if copied else self.purpose,
            provider=provider,
            surface=surface,
            model=model,
            start_span=span,
            ended_at=at,
            usage=with_assumed_ttl(usage, None, provider, model),
            client=self.client,
            boundaries=tuple(self.boundaries),
            origin=Origin(str(self.path), line),
            dedupe_key=key,
        )
        self.pending_counts = counts
        self.boundaries.clear()
        self.compaction_noted = False
        self.prompt_size = usage.total_input

    def _maker(self, model: str | None) -> tuple[str | None, str | None]:
        if self.provider in _PROVIDERS:
            provider, surface = _PROVIDERS[self.provider]
            return provider or provider_of_model(model), surface
        provider = provider_of_model(model)
        return provider, "openai" if provider == "openai" else None


def _usage(counts: Counts, raw: object) -> Usage:
    """Normalise a recorded usage, or counts that were worked out from the running total."""
    usage = normalise(raw) if isinstance(raw, dict) else None
    if usage is not None and usage.dialect == "codex":
        return usage
    total, read, write, output, reasoning = counts
    return within(
        "codex", Reader(), total=total, read=read, write=write, output=output, reasoning=reasoning
    )


def _minus(a: Counts, b: Counts) -> Counts:
    return tuple(
        None if mine is None else mine - (theirs or 0) for mine, theirs in zip(a, b, strict=True)
    )


def _same(a: Counts, b: Counts) -> bool:
    """Whether two counts agree, a field that one does not have counting as zero."""
    return all((mine or 0) == (theirs or 0) for mine, theirs in zip(a, b, strict=True))


SOURCE = Codex()

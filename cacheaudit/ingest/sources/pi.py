"""Pi: one JSONL file a session, a tree of entries; stored cost; keep-alive and summary usage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cacheaudit.dialects.detect import normalise
from cacheaudit.ingest._agents import (
    Window,
    count_flags,
    folders,
    mapping,
    money,
    text,
)
from cacheaudit.ingest.endpoints import provider_of_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.lines import json_lines
from cacheaudit.model.call import Boundary, Call, CallError, Origin
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import Capabilities, Head, ProblemSink

# Tuples, since what a damaged file holds there may not be hashable.
_ENTRIES = (
    "session",
    "message",
    "usage",
    "compaction",
    "branch_summary",
    "model_change",
    "thinking_level_change",
    "context_window",
)
_PASSIVE = ("usage", "label", "session_info", "custom")
_INPUT_ROLES = (
    "user",
    "toolResult",
    "bashExecution",
    "custom",
    "hookMessage",
    "system",
    "branchSummary",
)
# The provider names of Pi that differ from ours, and the surface that they stand for.
_PROVIDERS = {
    "anthropic": ("anthropic", "claude_api"),
    "amazon-bedrock": (None, "bedrock"),
    "google-vertex": (None, "google_cloud"),
    "google": ("gemini", "gemini_api"),
    "openai": ("openai", "openai"),
    "openai-codex": ("openai", "openai"),
    "azure-openai-responses": ("openai", "azure"),
    "deepseek": ("deepseek", "deepseek"),
    "openrouter": (None, "openrouter"),
    "github-copilot": (None, "other"),
}


class Pi:
    """Reads ``{time}_{session}.jsonl``."""

    name = "pi"
    title = "Pi coding agent"
    capabilities = Capabilities(
        reads=True, writes=True, ttl_split=True, start_times="exact", output="exact"
    )

    def detect(self, head: Head) -> int:
        """Recognise the session header, or assistant messages with Pi's usage fields."""
        for line in head.lines:
            kind = line.get("type")
            if kind == "session" and isinstance(line.get("id"), str) and "timestamp" in line:
                return 90
            usage = mapping(line.get("message")).get("usage") or line.get("usage")
            if kind in _ENTRIES and "cacheRead" in mapping(usage) and "input" in mapping(usage):
                return 90
        return 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call for every billed response, keep-alive and summary."""
        return _Journal(path, problems).calls()

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield the session folder of ``PI_AGENT_DIR``, default ``~/.pi/agent``."""
        named = folders(environment, "PI_AGENT_DIR") + folders(environment, "PI_CODING_AGENT_DIR")
        for root in named or [home / ".pi" / "agent"]:
            yield root if root.name == "sessions" else root / "sessions"


class _Journal:
    """State of one pass over one file."""

    def __init__(self, path: Path, problems: ProblemSink) -> None:
        self.path, self.problems = path, problems
        self.session = path.stem.rsplit("_", 1)[-1]
        self.provider: str | None = None
        self.model: str | None = None
        self.client = "pi"
        self.window = Window()
        self.boundaries: list[Boundary] = []
        # Entry id to the call that its context ends with.
        self.ends_with: dict[str, str | None] = {}
        # Entries that the next one may hang below without leaving the branch.
        self.tips: set[str | None] = set()

    def calls(self) -> Iterator[Call]:
        for line, entry in json_lines(self.path, self.problems):
            if not isinstance(entry, dict):
                self.problems("wrong_type", f"{self.path}:{line}", "expected an object")
                continue
            call = self._take(entry, parse_time(entry.get("timestamp")), line)
            self._link(entry, call)
            if call is not None:
                yield call

    def _take(self, entry: dict[str, Any], at: float | None, line: int) -> Call | None:
        kind = entry.get("type")
        if kind == "message":
            return self._message(entry, at, line)
        if kind == "usage":
            purpose = "keep_alive" if entry.get("kind") == "cache_warm" else "other"
            return self._call(entry, entry, at, line, purpose)
        if kind in ("compaction", "branch_summary"):
            return self._summary(entry, at, line)
        if kind == "model_change":
            self.provider = text(entry.get("provider")) or self.provider
            self.model = text(entry.get("modelId")) or self.model
        elif kind == "context_window":
            self.boundaries.append(Boundary("clear", at=at, tokens_before=_count(entry)))
        elif kind == "session":
            self._header(entry)
        elif kind == "custom_message":
            self.window.saw_input(at)
        return None

    def _header(self, entry: dict[str, Any]) -> None:
        self.session = text(entry.get("id")) or self.session
        self.provider = text(entry.get("provider"))
        self.model = text(entry.get("modelId"))
        if entry.get("version") is not None and isinstance(entry["version"], int | str):
            self.client = f"pi (session format {entry['version']})"

    def _message(self, entry: dict[str, Any], at: float | None, line: int) -> Call | None:
        message = entry.get("message")
        if not isinstance(message, dict):
            self.problems("wrong_type", f"{self.path}:{line}", "message is no object")
            return None
        role = message.get("role")
        if role in _INPUT_ROLES:
            self.window.saw_input(at)
            if role == "toolResult" and isinstance(message.get("usage"), dict):
                return self._call(entry, message, at, line, "subagent")
            return None
        # Snapshots of a response that is still running are not billed a second time.
        if role != "assistant" or message.get("checkpoint") is True:
            return None
        return self._call(entry, message, at, line, "main")

    def _summary(self, entry: dict[str, Any], at: float | None, line: int) -> Call | None:
        call = None
        if isinstance(entry.get("usage"), dict):
            call = self._call(entry, entry, at, line, "compaction")
        kind = "compaction" if entry.get("type") == "compaction" else "branch"
        self.boundaries.append(Boundary(kind, at=at, tokens_before=_count(entry)))
        return call

    def _call(
        self,
        entry: dict[str, Any],
        holder: dict[str, Any],
        at: float | None,
        line: int,
        purpose: str,
    ) -> Call | None:
        where = f"{self.path}:{line}"
        raw = holder.get("usage")
        usage = normalise(raw) if isinstance(raw, dict) else None
        if usage is None:
            kind = "missing_usage" if raw is None else "wrong_type"
            self.problems(kind, where, "no usage that can be read")
        count_flags(usage, self.problems, where)
        nested = purpose == "subagent"
        model = text(holder.get("model")) or (None if nested else self.model)
        provider, surface = _maker(
            text(holder.get("provider")) or (None if nested else self.provider), model
        )
        started = parse_time(holder.get("timestamp")) if purpose == "main" else None
        if started is not None and at is not None and started > at:
            started = None
        follows = purpose == "main"
        # Other entries are written once the answer is there; nothing bounds their start.
        span = self.window.close(at) if follows else None
        ident = text(holder.get("responseId")) or text(entry.get("id"))
        call = Call(
            id=ident or f"{self.session}:{line}",
            session=self.session,
            lane=self._lane(entry, holder, purpose),
            parent=self.ends_with.get(str(entry.get("parentId"))),
            purpose=purpose,
            provider=provider,
            surface=surface,
            model=model,
            started_at=started,
            start_span=None if started is not None else span,
            ended_at=at,
            usage=with_assumed_ttl(usage, None, provider, model),
            stop_reason=text(holder.get("stopReason")),
            error=_error(holder),
            reported_cost=money(mapping(mapping(raw).get("cost")).get("total")),
            client=self.client,
            boundaries=tuple(self.boundaries) if follows else (),
            origin=Origin(str(self.path), line),
            dedupe_key=_key(entry, holder, raw),
        )
        if follows:
            self.boundaries.clear()
        return call

    def _lane(self, entry: dict[str, Any], holder: dict[str, Any], purpose: str) -> str:
        """Keep what does not extend the conversation out of its lane."""
        if purpose in ("main", "keep_alive"):
            return "main"
        if purpose == "subagent":
            return text(holder.get("toolCallId")) or f"tool:{entry.get('id')}"
        return purpose

    def _link(self, entry: dict[str, Any], call: Call | None) -> None:
        """Follow the tree: a new entry below anything but the last one opens a branch."""
        ident = text(entry.get("id"))
        if ident is None or entry.get("type") == "session":
            return
        above = text(entry.get("parentId"))
        jumped = bool(self.tips) and above not in self.tips
        # The boundary goes to the next call; one on this very entry would come too late.
        if jumped and call is None and entry.get("type") != "branch_summary":
            at = parse_time(entry.get("timestamp"))
            self.boundaries.append(Boundary("branch", at=at))
        if entry.get("type") not in _PASSIVE:
            self.tips.clear()
        self.tips.add(ident)
        inherited = self.ends_with.get(above) if above is not None else None
        extends = call is not None and call.purpose == "main"
        self.ends_with[ident] = call.id if call is not None and extends else inherited


def _count(entry: dict[str, Any]) -> int | None:
    value = entry.get("tokensBefore")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _error(holder: dict[str, Any]) -> CallError | None:
    reason = holder.get("stopReason")
    if reason not in ("error", "aborted"):
        return None
    details = mapping(holder.get("providerError"))
    status = details.get("status")
    return CallError(
        type=text(details.get("type")) or text(details.get("code")) or str(reason),
        status=status if isinstance(status, int) else None,
    )


def _maker(name: str | None, model: str | None) -> tuple[str | None, str | None]:
    if name is None:
        return provider_of_model(model), None
    provider, surface = _PROVIDERS.get(name, (name, "other"))
    return provider or provider_of_model(model), surface


def _key(entry: dict[str, Any], holder: dict[str, Any], raw: object) -> str:
    """Build a key that the copies of an entry share; old sessions have no ids."""
    usage = mapping(raw)
    parts = [entry.get("id"), entry.get("timestamp"), holder.get("timestamp"), holder.get("model")]
    parts += [usage.get(name) for name in ("input", "output", "cacheRead", "cacheWrite")]
    return "pi:" + ":".join("" if part is None else str(part) for part in parts)


SOURCE = Pi()

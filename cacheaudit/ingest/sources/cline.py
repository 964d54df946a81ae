"""Cline and Roo Code: the task folders that both extensions write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cacheaudit.dialects.reading import Reader
from cacheaudit.ingest._agents import (
    beside,
    count_flags,
    decode,
    document,
    folders,
    items,
    mapping,
    money,
    size,
    text,
    within,
)
from cacheaudit.ingest.endpoints import provider_of_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.model.call import Boundary, Call, CallError, Origin
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import Usage

_EXTENSIONS = (
    "saoudrizwan.claude-dev",
    "rooveterinaryinc.roo-cline",
    "kilocode.kilo-code",
)
_EDITORS = (
    (".config", "Code"),
    (".config", "Code - Insiders"),
    (".config", "Cursor"),
    (".config", "VSCodium"),
    (".config", "Windsurf"),
    ("Library", "Application Support", "Code"),
    ("Library", "Application Support", "Cursor"),
    ("AppData", "Roaming", "Code"),
)
_INPUT_COUNTS = ("tokensIn", "cacheWrites", "cacheReads")
# They lie beside the messages that are read; what they count is the same.
_COMPANIONS = frozenset({"api_conversation_history.json", "task_metadata.json"})
_SURFACES = {
    "anthropic": "claude_api",
    "bedrock": "bedrock",
    "vertex": "google_cloud",
    "gemini": "gemini_api",
    "openrouter": "openrouter",
    "openai-native": "openai",
    "deepseek": "deepseek",
    "ollama": "local",
    "lmstudio": "local",
}


class Cline:
    """Reads ``tasks/*/ui_messages.json``."""

    name = "cline"
    title = "Cline and Roo Code"
    capabilities = Capabilities(reads=True, writes=True, start_times="exact")

    def detect(self, head: Head) -> int:
        """Recognise a list of chat messages with ``ts``, ``type`` and ``say`` or ``ask``."""
        start = head.data[: 8 << 10].lstrip()
        if head.path.name in _COMPANIONS and start[:1] in (b"[", b"{"):
            return 40
        if start[:1] != b"[":
            return 0
        if isinstance(head.document, list):
            good = [entry for entry in head.document[:50] if _is_message(entry)]
            return 85 if good else 0
        marks = (b'"ts"', b'"type"', b'"say"')
        return 80 if all(mark in start for mark in marks) else 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call for every request; the companion files repeat them and give none."""
        return iter(()) if path.name in _COMPANIONS else _calls(path, problems)

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield the task folders of ``CLINE_DATA_DIR``, else those of the usual editors."""
        named = folders(environment, "CLINE_DATA_DIR")
        for root in named:
            yield root if root.name == "tasks" else root / "tasks"
        if named:
            return
        yield home / ".cline" / "data" / "tasks"
        for editor in _EDITORS:
            storage = home.joinpath(*editor, "User", "globalStorage")
            for extension in _EXTENSIONS:
                yield storage / extension / "tasks"


def _is_message(entry: object) -> bool:
    record = mapping(entry)
    return "ts" in record and record.get("type") in ("say", "ask") and record["type"] in record


def _calls(path: Path, problems: ProblemSink) -> Iterator[Call]:
    raws = document(path, problems, list[msgspec.Raw])
    if raws is None:
        return
    task = _Task(path, problems)
    for position, message in items(raws, str(path), problems):
        call = task.take(message, f"{path}[{position - 1}]")
        if call is not None:
            yield call


class _Task:
    """State of one pass over the messages of a task."""

    def __init__(self, path: Path, problems: ProblemSink) -> None:
        self.path, self.problems = path, problems
        self.session = path.parent.name or path.stem
        self.models = _models_used(path.with_name("task_metadata.json"))
        self.boundaries: list[Boundary] = []

    def take(self, message: dict[str, Any], where: str) -> Call | None:
        say, at = message.get("say"), parse_time(message.get("ts"))
        if say == "condense_context":
            before = size(mapping(message.get("contextCondense")), "prevContextTokens")
            self.boundaries.append(Boundary("compaction", at=at, tokens_before=before))
        if say not in ("api_req_started", "api_req_deleted"):
            return None
        body = message.get("text")
        if not isinstance(body, str):
            self.problems("wrong_type", where, "text of a request is no text")
            return None
        record = decode(body.encode(), where, self.problems, dict[str, Any])
        if record is None:
            return None
        if say == "api_req_deleted":
            return self._deleted(record, at, where)
        return self._request(message, record, at, where)

    def _request(
        self, message: dict[str, Any], record: dict[str, Any], at: float | None, where: str
    ) -> Call | None:
        stopped = text(record.get("cancelReason"))
        usage = self._usage(record, where)
        if usage is None and stopped is None:
            # Still running, or the editor was closed: what it cost is not recorded.
            self.problems("missing_usage", where, "a request without counts")
        service, model = self._model(message, record, at)
        call = Call(
            id=f"{self.session}:{message.get('ts')}",
            session=self.session,
            provider=provider_of_model(model),
            surface=_SURFACES.get(service, "other") if service else None,
            model=model,
            started_at=at,
            usage=with_assumed_ttl(usage, None, provider_of_model(model), model),
            error=CallError(type=stopped) if stopped else None,
            reported_cost=money(record.get("cost")),
            client="cline",
            boundaries=tuple(self.boundaries),
            origin=Origin(str(self.path)),
            dedupe_key=f"cline:{self.session}:{message.get('ts')}",
        )
        self.boundaries.clear()
        return call

    def _deleted(self, record: dict[str, Any], at: float | None, where: str) -> Call | None:
        """Messages that the user took back were paid for; their sum is all that is left."""
        usage = self._usage(record, where)
        self.boundaries.append(Boundary("branch", at=at))
        if usage is None:
            return None
        return Call(
            id=f"{self.session}:deleted:{at}",
            session=self.session,
            lane="deleted",
            purpose="other",
            requests=None,
            ended_at=at,
            usage=with_assumed_ttl(usage, None, None, None),
            reported_cost=money(record.get("cost")),
            client="cline",
            origin=Origin(str(self.path)),
            dedupe_key=f"cline:{self.session}:deleted:{at}",
        )

    def _usage(self, record: dict[str, Any], where: str) -> Usage | None:
        reader = Reader()
        output = reader.aside(record.get("tokensOut"))
        fresh, write, read = (reader.count(record.get(name)) for name in _INPUT_COUNTS)
        if fresh is None and output is None and not reader.flags:
            return None
        if record.get("apiProtocol") == "openai":
            # Roo says so where the input count holds the cached tokens.
            usage = within("cline", reader, total=fresh, read=read, write=write, output=output)
        else:
            usage = beside("cline", reader, fresh=fresh, read=read, write=write, output=output)
        count_flags(usage, self.problems, where)
        return usage

    def _model(
        self, message: dict[str, Any], record: dict[str, Any], at: float | None
    ) -> tuple[str | None, str | None]:
        """Return provider setting and model: from the message, else from the task's list."""
        info = mapping(message.get("modelInfo"))
        model = text(info.get("modelId")) or text(record.get("model"))
        if model is not None:
            return text(info.get("providerId")), model
        service = None
        for since, name, named in self.models:
            if at is None or since is None or since <= at:
                service, model = name, named
        return service, model


def _models_used(path: Path) -> list[tuple[float | None, str | None, str | None]]:
    """Read when which model was chosen; the file is a help, so its absence is no problem."""
    try:
        record = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    entries = mapping(record).get("model_usage")
    return [
        (
            parse_time(mapping(entry).get("ts")),
            text(mapping(entry).get("model_provider_id")),
            text(mapping(entry).get("model_id")),
        )
        for entry in (entries if isinstance(entries, list) else ())
    ]


SOURCE = Cline()

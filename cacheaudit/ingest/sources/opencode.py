"""OpenCode: its SQLite database, the older one-file-a-message storage, and exported sessions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from cacheaudit.dialects.reading import Reader
from cacheaudit.ingest._agents import (
    Window,
    beside,
    count_flags,
    decode,
    document,
    folders,
    items,
    mapping,
    money,
    text,
)
from cacheaudit.ingest.endpoints import provider_of_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.model.call import Boundary, Call, CallError, Origin
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import FLAG_TOTAL, Usage, add

_SQLITE = b"SQLite format 3\x00"
_WAIT_SECONDS = 1.0
_SURFACES = {
    "anthropic": "claude_api",
    "amazon-bedrock": "bedrock",
    "google-vertex": "google_cloud",
    "google-vertex-anthropic": "google_cloud",
    "google": "gemini_api",
    "openai": "openai",
    "azure": "azure",
    "deepseek": "deepseek",
    "openrouter": "openrouter",
    "ollama": "local",
    "lmstudio": "local",
}
# Providers that resell others' models: the model's own maker is the provider.
_RESELLERS = frozenset(
    {"amazon-bedrock", "google-vertex", "google-vertex-anthropic", "openrouter", "github-copilot"}
)


class _Export(msgspec.Struct):
    """The parts of an exported session that are read."""

    info: Any = None
    messages: list[msgspec.Raw] = []


class OpenCode:
    """Reads ``opencode*.db``, ``storage/message/**.json`` and exports."""

    name = "opencode"
    title = "OpenCode"
    capabilities = Capabilities(reads=True, writes=True, start_times="exact")

    def detect(self, head: Head) -> int:
        """Recognise the message table of the database, a stored message, or an export."""
        if head.data.startswith(_SQLITE):
            return 95 if _has_messages(head.path) else 0
        if isinstance(head.document, dict):
            if _is_message(head.document):
                return 90
            return 90 if _is_export(head.document) else 0
        # An export that is longer than the head: its session record comes first.
        start = head.data[:2048]
        marks = (b'"info"', b'"id"', b'"projectID"', b'"directory"')
        return 80 if start.lstrip()[:1] == b"{" and all(mark in start for mark in marks) else 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call for every assistant message."""
        with_head = _first_bytes(path)
        if with_head == _SQLITE:
            return _database(path, problems)
        return _documents(path, problems)

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield databases and storage of ``OPENCODE_DATA_DIR`` or the user's data folder."""
        shared = folders(environment, "XDG_DATA_HOME") or [home / ".local" / "share"]
        default = [root / "opencode" for root in shared]
        for root in folders(environment, "OPENCODE_DATA_DIR") or default:
            found = sorted(root.glob("opencode*.db")) if root.is_dir() else []
            yield from found or [root / "opencode.db"]
            yield root / "storage" / "message"

    def group(self, path: Path) -> str:
        """Name the session that a file belongs to: the older storage has one file a message."""
        return str(path.parent) if path.name.startswith("msg_") else str(path)


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(len(_SQLITE))
    except OSError:
        return b""


# Database ------------------------------------------------------------------------------------


def _connect(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            raise
        # A folder that may not be written to: a database without a pending log needs no lock.
        connection = sqlite3.connect(address + "&immutable=1", uri=True)
    return connection


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return {str(row[0]) for row in rows}


def _has_messages(path: Path) -> bool:
    try:
        connection = _connect(path)
        try:
            return {"id", "session_id", "data"} <= _columns(connection, "message")
        finally:
            connection.close()
    except (sqlite3.Error, OSError):
        # Locked or broken: the name is all there is; reading will count what is wrong.
        return path.name.startswith("opencode")


def _database(path: Path, problems: ProblemSink) -> Iterator[Call]:
    try:
        connection = _connect(path)
    except (sqlite3.Error, OSError) as error:
        problems("unreadable_file", str(path), str(error))
        return
    connection.text_factory = bytes
    try:
        yield from _rows(connection, path, problems)
    except sqlite3.Error as error:
        problems("unreadable_file", str(path), str(error))
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection, path: Path, problems: ProblemSink) -> Iterator[Call]:
    connection.text_factory = str
    if not {"id", "session_id", "data"} <= _columns(connection, "message"):
        problems("unknown_format", str(path), "no table message(id, session_id, data)")
        return
    parents = _parents(connection)
    ordered = "time_created, id" if "time_created" in _columns(connection, "message") else "id"
    query = {
        "time_created, id": "SELECT id, session_id, data FROM message "
        "ORDER BY session_id, time_created, id",
        "id": "SELECT id, session_id, data FROM message ORDER BY session_id, id",
    }[ordered]
    connection.text_factory = bytes
    reader: _Messages | None = None
    for row in connection.execute(query):
        ident, session = (_plain(value) for value in row[:2])
        where = f"{path}:message[{ident}]"
        if not isinstance(row[2], bytes):
            problems("wrong_type", where, "data is no text")
            continue
        message = decode(row[2], where, problems, object)
        if not isinstance(message, dict):
            if message is not None:
                problems("wrong_type", where, "data is no object")
            continue
        if reader is None or reader.thread != session:
            reader = _Messages(path, problems, session, parents)
        call = reader.take({**message, "id": ident, "sessionID": session}, where)
        if call is not None:
            yield call


def _parents(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the session that started each subagent's session."""
    if not {"id", "parent_id"} <= _columns(connection, "session"):
        return {}
    rows = connection.execute("SELECT id, parent_id FROM session WHERE parent_id IS NOT NULL")
    return {str(child): str(parent) for child, parent in rows}


def _plain(value: object) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


# Documents -----------------------------------------------------------------------------------


def _is_message(record: Mapping[str, Any]) -> bool:
    return (
        record.get("role") in ("assistant", "user")
        and isinstance(record.get("sessionID"), str)
        and isinstance(record.get("id"), str)
        and isinstance(record.get("time"), dict)
    )


def _is_export(record: Mapping[str, Any]) -> bool:
    messages = record.get("messages")
    if not isinstance(record.get("info"), dict) or not isinstance(messages, list):
        return False
    return any("sessionID" in mapping(mapping(entry).get("info")) for entry in messages[:5])


def _documents(path: Path, problems: ProblemSink) -> Iterator[Call]:
    raw = document(path, problems, msgspec.Raw)
    if raw is None:
        return
    export = decode(raw, str(path), problems, _Export)
    if export is None:
        return
    if export.info is None and not export.messages:
        message = decode(raw, str(path), problems, dict[str, Any])
        if message is not None and not _is_message(message):
            problems("unknown_format", str(path), "neither a message nor an exported session")
        elif message is not None:
            call = _Messages(path, problems, None, {}).take(message, str(path))
            if call is not None:
                yield call
        return
    session = text(mapping(export.info).get("id"))
    parent = text(mapping(export.info).get("parentID"))
    reader = _Messages(path, problems, session, {session: parent} if session and parent else {})
    version = text(mapping(export.info).get("version"))
    reader.client = f"opencode {version}" if version else "opencode"
    for position, entry in items(export.messages, f"{path}:messages", problems):
        where = f"{path}:messages[{position - 1}]"
        if not isinstance(entry.get("info"), dict):
            problems("wrong_type", where, "info is no object")
            continue
        call = reader.take(entry["info"], where)
        if call is not None:
            yield call


class _Messages:
    """Turns the messages of one session into calls."""

    def __init__(
        self, path: Path, problems: ProblemSink, thread: str | None, parents: Mapping[str, str]
    ) -> None:
        self.path, self.problems, self.thread, self.parents = path, problems, thread, parents
        self.client = "opencode"
        self.window = Window()
        self.boundaries: list[Boundary] = []
        self.prompt_size: int | None = None

    def take(self, message: Mapping[str, Any], where: str) -> Call | None:
        """Return the call behind an assistant message."""
        times = mapping(message.get("time"))
        started, ended = parse_time(times.get("created")), parse_time(times.get("completed"))
        if message.get("role") != "assistant":
            self.window.saw_input(started)
            return None
        usage = self._usage(message, where)
        thread = text(message.get("sessionID")) or self.thread or self.path.stem
        session = self._root(thread)
        # A summary is asked for with its own prompt; what follows starts from it.
        compacts = message.get("summary") is True or message.get("mode") == "compaction"
        provider, model = text(message.get("providerID")), text(message.get("modelID"))
        maker = provider_of_model(model) if provider in _RESELLERS else provider
        ident = text(message.get("id")) or f"{thread}:{started}"
        call = Call(
            id=ident,
            session=session,
            lane=thread if session != thread else "main",
            purpose="compaction" if compacts else "subagent" if session != thread else "main",
            provider=maker,
            surface=_SURFACES.get(provider, "other") if provider else None,
            model=model,
            started_at=started,
            ended_at=ended,
            usage=with_assumed_ttl(usage, None, maker, model),
            stop_reason=text(message.get("finish")),
            error=_error(message.get("error")),
            reported_cost=money(message.get("cost")),
            client=self.client,
            boundaries=tuple(self.boundaries),
            origin=Origin(str(self.path)),
            dedupe_key=f"opencode:{ident}",
        )
        self.boundaries.clear()
        if compacts:
            size = self.prompt_size
            self.boundaries.append(Boundary("compaction", at=ended or started, tokens_before=size))
        if usage is not None:
            self.prompt_size = usage.total_input
        return call

    def _root(self, thread: str) -> str:
        seen = {thread}
        while (above := self.parents.get(thread)) is not None and above not in seen:
            seen.add(above)
            thread = above
        return thread

    def _usage(self, message: Mapping[str, Any], where: str) -> Usage | None:
        raw = message.get("tokens")
        if not isinstance(raw, dict):
            kind = "missing_usage" if raw is None else "wrong_type"
            self.problems(kind, where, "no tokens that can be read")
            return None
        reader = Reader()
        cache = reader.section(raw, "cache")
        fresh, read = reader.count(raw.get("input")), reader.count(cache.get("read"))
        write, answer = reader.count(cache.get("write")), reader.aside(raw.get("output"))
        reasoning, total = reader.aside(raw.get("reasoning")), reader.aside(raw.get("total"))
        without = add(fresh, read, write, answer)
        inside = total is not None and total == without
        if total is not None and total not in (without, add(without, reasoning)):
            reader.flags.add(FLAG_TOTAL)
        usage = beside(
            "opencode",
            reader,
            fresh=fresh,
            read=read,
            write=write,
            output=answer if inside else add(answer, reasoning),
            reasoning=reasoning,
        )
        count_flags(usage, self.problems, where)
        return usage


def _error(value: object) -> CallError | None:
    if not isinstance(value, dict):
        return None
    status = mapping(value.get("data")).get("statusCode")
    return CallError(
        type=text(value.get("name")), status=status if isinstance(status, int) else None
    )


SOURCE = OpenCode()

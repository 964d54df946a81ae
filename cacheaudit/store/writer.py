"""Writes batches of calls: all or nothing, any number of times, from any number of processes.

A batch and the cursors of the files it comes from are one transaction. A call that is there already
is replaced only by a better reading of it, and which is better does not depend on the order in
which they arrive; so every order, repetition and interruption ends in the same rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from cacheaudit.model.delta import settings
from cacheaudit.model.prompt import ContentBlock, Prompt, digest
from cacheaudit.store.engine import writing
from cacheaudit.store.lists import EMPTY, Listing, Lists, listing, node
from cacheaudit.store.records import Entry, FileCursor, WriteCount
from cacheaudit.store.rows import call_row, part_rows
from cacheaudit.store.tables import (
    block_lists,
    calls,
    content_blocks,
    content_texts,
    files,
    sessions,
    usage_parts,
)

_CHUNK = 500
_LANES_KEPT = 64
_DIGESTS_KEPT = 200_000

_old_columns = (
    calls.c.key,
    calls.c.output,
    calls.c.total_input,
    calls.c.block_list,
    calls.c.origin_file,
    calls.c.origin_line,
    calls.c.file,
    calls.c.source_version,
    calls.c.generation,
    calls.c.dedupe_key,
    calls.c.fingerprint,
)
_keys: sa.BindParameter[Any] = sa.bindparam("keys", expanding=True)
# Made once: to put a condition together takes longer than to run it.
_look_up = sa.select(*_old_columns).where(calls.c.key.in_(_keys))
_are_there = {
    column: sa.select(column).where(column.in_(_keys))
    for column in (content_blocks.c.digest, content_texts.c.digest, block_lists.c.key)
}
_replace = calls.update().where(calls.c.key == sa.bindparam("old_key"))


class _Lane:
    """The latest list of a lane and its prompt, and the latest that is in the database."""

    __slots__ = ("prompt", "seen", "stored")

    def __init__(self) -> None:
        self.seen = EMPTY
        self.prompt: Prompt | None = None
        self.stored: Listing | None = None


class _Pending:
    """A reading of a call on its way into the tables."""

    __slots__ = ("entry", "key", "lane", "listing", "parts", "row")

    def __init__(
        self,
        entry: Entry,
        key: bytes,
        row: dict[str, Any],
        parts: list[dict[str, Any]],
        listed: Listing | None,
        lane: tuple[str, str, str],
    ) -> None:
        self.entry = entry
        self.key = key
        self.row = row
        self.parts = parts
        self.listing = listed
        self.lane = lane


class Writer:
    """Writes to one database. One writer belongs to one thread."""

    def __init__(self, engine: Engine, *, with_text: bool = False) -> None:
        self._engine = engine
        self._with_text = with_text
        self._sessions: dict[tuple[str, str], int] = {}
        self._lanes: OrderedDict[tuple[str, str, str], _Lane] = OrderedDict()
        self._known: dict[str, set[bytes]] = {"blocks": set(), "texts": set(), "lists": set()}

    def write(self, batch: Sequence[Entry], cursors: Iterable[FileCursor] = ()) -> WriteCount:
        """Write readings of calls, and how far their files have been read, in one transaction."""
        prepared = [self._prepare(entry) for entry in batch]
        try:
            with writing(self._engine) as connection:
                count = self._write(connection, prepared)
                for cursor in cursors:
                    _put_cursor(connection, cursor)
        except BaseException:
            # What was remembered of this transaction is not in the database.
            self._forget()
            raise
        self._bound()
        return count

    def _prepare(self, entry: Entry) -> _Pending:
        call = entry.call
        key = identity(entry)
        row = call_row(call, with_text=self._with_text)
        parts = part_rows(key, call.usage)
        lane_name = (entry.source, call.session, call.lane)
        listed = own = None
        if call.prompt is not None:
            lane = self._lane(lane_name)
            listed = lane.seen = listing(call.prompt, lane.seen, lane.prompt)
            lane.prompt = call.prompt if entry.tokens else None
            own = self._settings(call.prompt, entry.tokens)
        row["key"] = key
        row["block_list"] = None if listed is None else listed.key
        row["prompt"] = own
        row["fingerprint"] = _fingerprint(row, parts, call.session)
        row["source_version"] = entry.source_version
        row["file"] = entry.file
        row["generation"] = entry.generation
        return _Pending(entry, key, row, parts, listed, lane_name)

    def _settings(self, prompt: Prompt, tokens: tuple[int, ...]) -> bytes:
        if not tokens:
            return msgspec.msgpack.encode(settings(prompt, with_text=self._with_text))
        # What the content blocks have to say is known: they need not be gone through.
        bare = msgspec.structs.replace(prompt, blocks=(), prefix_digests=())
        blocks = prompt.blocks
        markers = ((index, blocks[index].marker) for index in prompt.marked)
        own = msgspec.structs.replace(
            settings(bare, with_text=self._with_text),
            markers=tuple((index, mark.ttl) for index, mark in markers if mark is not None),
            tokens=tokens,
            origins=((len(tokens), "estimated"),),
        )
        return msgspec.msgpack.encode(own)

    def _write(self, connection: Connection, prepared: list[_Pending]) -> WriteCount:
        best: dict[bytes, _Pending] = {}
        for pending in prepared:
            rival = best.get(pending.key)
            if rival is None or is_better(pending.row, rival.row):
                best[pending.key] = pending
        old = _lookup(connection, list(best))
        new = [p for p in best.values() if p.key not in old]
        changed = [p for p in best.values() if p.key in old and is_better(p.row, old[p.key])]
        same = [
            p
            for p in best.values()
            if p.key in old and p.row["fingerprint"] == old[p.key].fingerprint
        ]
        self._put_sessions(connection, (*new, *changed))
        self._put_prompts(connection, (*new, *changed))
        if self._with_text:
            self._put_texts(connection, (*new, *changed, *same))
        _put_calls(connection, new, changed)
        _touch(connection, [p for p in same if p.row["generation"] > old[p.key].generation])
        return WriteCount(len(new), len(changed), len(prepared) - len(new) - len(changed))

    def _put_sessions(self, connection: Connection, pending: Iterable[_Pending]) -> None:
        for one in pending:
            name = (one.entry.source, one.entry.call.session)
            number = self._sessions.get(name)
            if number is None:
                number = _session(connection, *name, one.entry.project)
                self._sessions[name] = number
            one.row["session_id"] = number

    def _put_prompts(self, connection: Connection, pending: Iterable[_Pending]) -> None:
        lists: dict[bytes, dict[str, Any]] = {}
        blocks: dict[bytes, dict[str, Any]] = {}
        for one in pending:
            prompt = one.entry.call.prompt
            if one.listing is None or prompt is None:
                continue
            lane = self._lane(one.lane)
            if lane.stored is None:
                lane.stored = _latest(connection, one.row["session_id"], one.entry.call.lane)
            row = node(one.listing, lane.stored)
            lane.stored = one.listing
            lists.setdefault(one.listing.key, row)
            start = row["shared"]
            sizes = one.entry.tokens[start:]
            for block, size in zip_longest(prompt.blocks[start:], sizes):
                blocks.setdefault(block.digest, _block_row(block, size))
        self._insert_missing(connection, "blocks", content_blocks.c.digest, blocks)
        self._insert_missing(connection, "lists", block_lists.c.key, lists)

    def _put_texts(self, connection: Connection, pending: Iterable[_Pending]) -> None:
        texts = {
            block.digest: {"digest": block.digest, "canonical": block.canonical}
            for one in pending
            if one.entry.call.prompt is not None
            for block in one.entry.call.prompt.blocks
            if block.canonical and block.digest not in self._known["texts"]
        }
        self._insert_missing(connection, "texts", content_texts.c.digest, texts)

    def _insert_missing(
        self,
        connection: Connection,
        kind: str,
        column: sa.Column[bytes],
        rows: dict[bytes, dict[str, Any]],
    ) -> None:
        known = self._known[kind]
        wanted = [key for key in rows if key not in known]
        there: set[bytes] = set()
        for chunk in _chunks(wanted):
            there.update(connection.scalars(_are_there[column], {"keys": chunk}))
        missing = [rows[key] for key in wanted if key not in there]
        if missing:
            connection.execute(column.table.insert(), missing)
        known.update(wanted)

    def _lane(self, name: tuple[str, str, str]) -> _Lane:
        lane = self._lanes.setdefault(name, _Lane())
        self._lanes.move_to_end(name)
        return lane

    def _forget(self) -> None:
        self._lanes.clear()
        self._sessions.clear()
        for known in self._known.values():
            known.clear()

    def _bound(self) -> None:
        while len(self._lanes) > _LANES_KEPT:
            self._lanes.popitem(last=False)
        if len(self._sessions) > _DIGESTS_KEPT:
            self._sessions.clear()
        for known in self._known.values():
            if len(known) > _DIGESTS_KEPT:
                known.clear()


def identity(entry: Entry) -> bytes:
    """Return what makes two readings readings of one call: the dedupe key, else the place."""
    call = entry.call
    if call.dedupe_key is not None:
        parts: tuple[str, ...] = ("key", call.dedupe_key)
    else:
        origin = call.origin
        file = entry.file or (origin.file if origin else "")
        place = f"{origin.line if origin else 0} {call.attempt} {entry.ordinal}"
        parts = ("place", file, place, call.session, call.lane, call.id)
    return digest("\0".join(parts).encode(errors="surrogatepass"))


def is_better(new: Any, old: Any) -> bool:
    """Whether a reading of a call replaces another one.

    A call without a dedupe key is known by its place alone, so what stands there now counts. A
    newer version of the reading code replaces what the older one made of the same file. Else the
    most output tokens win, then the most input, then the one with a prompt, then the first place;
    from the same place the later content wins.
    """
    mine, theirs = _view(new), _view(old)
    if mine["fingerprint"] == theirs["fingerprint"]:
        return False
    if mine["dedupe_key"] is None:
        return True
    if mine["file"] == theirs["file"] and mine["source_version"] != theirs["source_version"]:
        return bool(mine["source_version"] > theirs["source_version"])
    if (a := _rank(mine)) != (b := _rank(theirs)):
        return a > b
    here, there = _place(mine), _place(theirs)
    return here <= there


def _view(row: Any) -> Any:
    return row if isinstance(row, dict) else row._mapping


def _rank(row: Any) -> tuple[int, int, bool]:
    output, total = row["output"], row["total_input"]
    return (
        -1 if output is None else output,
        -1 if total is None else total,
        row["block_list"] is not None,
    )


def _place(row: Any) -> tuple[bool, bool, str, int, str]:
    """Order places; one that was read itself comes before a copy of it in another form."""
    origin, file = row["origin_file"], row["file"]
    return (
        origin is None,
        origin != file,
        origin or "",
        row["origin_line"] or 0,
        file or "",
    )


def _fingerprint(row: dict[str, Any], parts: list[dict[str, Any]], session: str) -> bytes:
    """Identify what is said of the call, however it came here."""
    named = (row, parts, session)
    try:
        return digest(msgspec.msgpack.encode(named))
    except (UnicodeEncodeError, OverflowError):
        return digest(repr(named).encode(errors="surrogatepass"))


def _lookup(connection: Connection, keys: list[bytes]) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for chunk in _chunks(keys):
        rows = connection.execute(_look_up, {"keys": chunk})
        found.update((bytes(row.key), row) for row in rows)
    return found


def _put_calls(connection: Connection, new: list[_Pending], changed: list[_Pending]) -> None:
    if new:
        connection.execute(calls.insert(), [one.row for one in new])
    if changed:
        gone = [one.key for one in changed]
        for chunk in _chunks(gone):
            connection.execute(usage_parts.delete().where(usage_parts.c.call.in_(chunk)))
        connection.execute(_replace, [{**one.row, "old_key": one.key} for one in changed])
    parts = [part for one in (*new, *changed) for part in one.parts]
    if parts:
        connection.execute(usage_parts.insert(), parts)


def _touch(connection: Connection, pending: list[_Pending]) -> None:
    """Note that calls without a key of their own still stand in the file."""
    by_generation: dict[int, list[bytes]] = {}
    for one in pending:
        if one.entry.call.dedupe_key is None:
            by_generation.setdefault(one.entry.generation, []).append(one.key)
    for generation, keys in by_generation.items():
        for chunk in _chunks(keys):
            statement = calls.update().where(calls.c.key.in_(chunk))
            connection.execute(statement.values(generation=generation))


def _session(connection: Connection, source: str, name: str, project: str | None) -> int:
    known = connection.scalar(
        sa.select(sessions.c.id).where(sessions.c.name == name, sessions.c.source == source)
    )
    if known is not None:
        return int(known)
    made = connection.execute(
        sessions.insert().values(source=source, name=name, project=project)
    ).inserted_primary_key
    return int(made[0]) if made else 0


def _latest(connection: Connection, session: int, lane: str) -> Listing:
    """Return the last list that a lane has in the database, for the next to build on."""
    key = connection.scalar(
        sa.select(calls.c.block_list)
        .where(calls.c.session_id == session, calls.c.lane == lane, calls.c.block_list.is_not(None))
        .order_by(calls.c.id.desc())
        .limit(1)
    )
    return EMPTY if key is None else Lists(connection).get(bytes(key))


def _block_row(block: ContentBlock, size: int | None) -> dict[str, Any]:
    return {
        "digest": block.digest,
        "kind": block.kind,
        "size": block.size,
        "media_bytes": block.media_bytes,
        "tokens": block.tokens if size is None else size,
        "tokens_origin": block.tokens_origin if size is None else "estimated",
    }


def _put_cursor(connection: Connection, cursor: FileCursor) -> None:
    row = msgspec.structs.asdict(cursor)
    row["problems"] = msgspec.to_builtins(cursor.problems) or None
    if cursor.finished and cursor.generation > 1:
        _drop_stale(connection, cursor.path, cursor.generation)
    old = connection.scalar(sa.select(files.c.generation).where(files.c.path == cursor.path))
    if old is None:
        connection.execute(files.insert(), row)
        return
    row["generation"] = max(old, cursor.generation)
    connection.execute(files.update().where(files.c.path == cursor.path).values(**row))


def _drop_stale(connection: Connection, path: str, generation: int) -> None:
    """Delete calls without a key of their own that a rewritten file no longer holds."""
    connection.execute(
        calls.delete().where(
            calls.c.file == path, calls.c.dedupe_key.is_(None), calls.c.generation < generation
        )
    )


def _chunks(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))

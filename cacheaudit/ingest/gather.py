"""Sorts a stream of calls into sessions with bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from cacheaudit.model.call import Call, Session
from cacheaudit.model.order import in_order

if TYPE_CHECKING:
    import sqlite3

IN_MEMORY = 20_000
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Call)


def gather(
    calls: Iterable[Call], source: str, project: str | None = None, in_memory: int = IN_MEMORY
) -> Iterator[Session]:
    """Group calls by session, in order of each session's first call.

    Calls keep their order within a lane by time, and by position where times are missing or the
    source appends what happens.
    Beyond ``in_memory`` calls they wait in a temporary database, so that a log of any size that
    mixes its sessions needs no more memory than its longest session.
    """
    held: dict[str, list[Call]] = {}
    count = 0
    disk: sqlite3.Connection | None = None
    order: dict[str, int] = {}
    name: str | None = None
    members: list[Call] = []
    for call in calls:
        if call.session != name:  # most calls are of the session of the one before
            name = call.session
            order.setdefault(name, len(order))
            members = held.setdefault(name, [])
        members.append(call)
        count += 1
        if count >= in_memory:
            disk = disk or _open()
            _spill(disk, held, order)
            held.clear()
            name, count = None, 0
    if disk is not None:
        _spill(disk, held, order)
        yield from _from_disk(disk, order, source, project)
        disk.close()
        return
    for session, members in held.items():
        yield _session(session, members, source, project)


def _session(session: str, calls: list[Call], source: str, project: str | None) -> Session:
    return Session(id=session, source=source, calls=in_order(calls, source), project=project)


def _open() -> sqlite3.Connection:
    import sqlite3  # few groups of files are that large

    disk = sqlite3.connect("")
    disk.execute("PRAGMA cache_size = -16384")
    disk.execute("CREATE TABLE waiting (session INTEGER, call BLOB)")
    return disk


def _spill(disk: sqlite3.Connection, held: dict[str, list[Call]], order: dict[str, int]) -> None:
    disk.executemany(
        "INSERT INTO waiting VALUES (?, ?)",
        (
            (order[session], _encoder.encode(call))
            for session, calls in held.items()
            for call in calls
        ),
    )


def _from_disk(
    disk: sqlite3.Connection, order: dict[str, int], source: str, project: str | None
) -> Iterator[Session]:
    disk.execute("CREATE INDEX by_session ON waiting (session)")
    for session, number in order.items():
        rows = disk.execute("SELECT call FROM waiting WHERE session = ? ORDER BY rowid", (number,))
        yield _session(session, [_decoder.decode(row[0]) for row in rows], source, project)

"""The store: one SQL database with sessions, calls, findings and decisions."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from cacheaudit.errors import StoreError
from cacheaudit.model.call import Call, Session
from cacheaudit.model.finding import Finding
from cacheaudit.store import history, ledger
from cacheaudit.store.engine import (
    make_engine,
    parse_url,
    reading,
    shown,
    sqlite_file,
    writing,
)
from cacheaudit.store.reader import Reader
from cacheaudit.store.records import Decision, Entry, FileCursor, WriteCount
from cacheaudit.store.schema import upgrade
from cacheaudit.store.tables import calls, files, sessions
from cacheaudit.store.writer import Writer

BATCH = 1000


def open_store(url: str, *, create: bool = True, store_text: bool = False) -> Store:
    """Open a store and bring its schema up to date.

    Args:
        url: SQLAlchemy URL, or the name of a SQLite file.
        create: Make the database where there is none.
        store_text: Keep the text of prompts with what is written.

    Raises:
        SchemaVersionError: A newer version wrote the database.
        StoreError: The database cannot be used, or there is none and ``create`` is false.
        MissingExtraError: The driver of the database is not installed.
    """
    parsed = parse_url(url)
    file = sqlite_file(parsed)
    if file is not None and not file.exists():
        if not create:
            raise StoreError(f"There is no store at {file}.", "Fill one first: cacheaudit import")
        _make_file(file)
    engine = make_engine(parsed)
    try:
        upgrade(engine, create=create)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, store_text=store_text)


class Store:
    """A database of sessions. Use it as a context manager, or call :meth:`close`."""

    def __init__(self, engine: Engine, *, store_text: bool = False) -> None:
        self._engine = engine
        self._writer = Writer(engine, with_text=store_text)
        self.store_text = store_text

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return shown(self._engine.url)

    @property
    def file(self) -> Path | None:
        """The file of a SQLite store; ``None`` for others."""
        return sqlite_file(self._engine.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def write(self, made: Iterable[Call], *, source: str, project: str | None = None) -> WriteCount:
        """Write calls that come from no file, or from one that needs no cursor.

        A call with the dedupe key of one that is there replaces it when it has more output tokens.
        """
        total = WriteCount()
        batch: list[Entry] = []
        seen: Counter[tuple[object, ...]] = Counter()
        for call in made:
            place = (call.origin, call.session, call.lane, call.id, call.attempt)
            ordinal = 0
            if call.dedupe_key is None:
                ordinal = seen[place]
                seen[place] += 1
            batch.append(Entry(call=call, source=source, project=project, ordinal=ordinal))
            if len(batch) >= BATCH:
                total += self.commit(batch)
                batch.clear()
        return total + self.commit(batch) if batch else total

    def commit(self, batch: Sequence[Entry], cursors: Iterable[FileCursor] = ()) -> WriteCount:
        """Write readings of calls and the cursors of their files in one transaction."""
        return self._writer.write(batch, cursors)

    def forget_behind(self, path: str, line: int) -> None:
        """Drop the calls without a key of their own that were read behind a line of a file.

        They come from a line that was not complete yet, and may turn out to be others.
        """
        with writing(self._engine) as connection:
            connection.execute(
                calls.delete().where(
                    calls.c.file == path, calls.c.dedupe_key.is_(None), calls.c.origin_line > line
                )
            )

    def cursor(self, path: str) -> FileCursor | None:
        """Return how far a file was imported; ``None`` where it never was."""
        return next(iter(list(self.cursors([path]))), None)

    def cursors(self, paths: Sequence[str] | None = None) -> Iterator[FileCursor]:
        """Yield the cursors of files that were imported, of all or of those given."""
        query = sa.select(files).order_by(files.c.path)
        if paths is not None:
            query = query.where(files.c.path.in_(paths))
        with reading(self._engine) as connection:
            for row in connection.execute(query).mappings():
                yield _cursor(row)

    def sessions(self, names: Sequence[str] | None = None) -> Iterator[Session]:
        """Yield sessions one at a time; ``names`` limits them to some ids.

        The text of a prompt is there only where it was stored.
        """
        with reading(self._engine) as connection:
            yield from Reader(connection).sessions(names)

    def counts(self) -> tuple[int, int]:
        """Return the number of sessions that have calls, and of calls."""
        with reading(self._engine) as connection:
            row = connection.execute(
                sa.select(sa.func.count(sa.distinct(calls.c.session_id)), sa.func.count())
            ).one()
            return int(row[0]), int(row[1])

    def has_session(self, name: str) -> bool:
        """Whether a session of that id was ever written."""
        with reading(self._engine) as connection:
            found = sa.select(sessions.c.id).where(sessions.c.name == name).limit(1)
            return connection.scalar(found) is not None

    def record_prices(self, cards: Mapping[str, Any]) -> None:
        """Remember the rate cards that a result rests on, by id."""
        with writing(self._engine) as connection:
            ledger.put_prices(connection, cards)

    def prices(self) -> list[tuple[str, Any]]:
        """Return (id, rate card) of every card that was ever used."""
        with reading(self._engine) as connection:
            return list(ledger.get_prices(connection))

    def replace_findings(self, found: Iterable[Finding], about: Sequence[str]) -> None:
        """Put findings in place of those of the sessions ``about`` and of no session."""
        with writing(self._engine) as connection:
            ledger.put_findings(connection, found, about)

    def findings(self, session: str | None = None) -> list[Finding]:
        """Return findings, those of one session or all."""
        with reading(self._engine) as connection:
            return list(ledger.get_findings(connection, session))

    def record_decisions(self, made: Iterable[Decision]) -> None:
        """Append decisions with both their prices."""
        with writing(self._engine) as connection:
            ledger.put_decisions(connection, made)

    def recent_starts(self, most: int) -> list[history.Start]:
        """Return session, lane, start and stop reason of the latest requests, in order of time."""
        with reading(self._engine) as connection:
            return history.recent_starts(connection, most)

    def marked_totals(self, source: str) -> list[history.Totals]:
        """Sum what was billed, by model, for requests whose markers a planner placed."""
        with reading(self._engine) as connection:
            return history.marked_totals(connection, source)

    def set_outcome(self, session: str, outcome: str | None, task: str | None = None) -> bool:
        """Write the outcome of a task on its last call; whether there is one."""
        with writing(self._engine) as connection:
            return history.set_outcome(connection, session, outcome, task)

    def spent(self, kind: str, since: float) -> Decimal:
        """Sum what decisions of one kind have cost since a moment."""
        with reading(self._engine) as connection:
            return history.spent(connection, kind, since)

    def decisions(self, session: str | None = None) -> list[Decision]:
        """Return decisions, those of one session or all."""
        with reading(self._engine) as connection:
            return list(ledger.get_decisions(connection, session))


def _make_file(file: Path) -> None:
    """Make an empty file that only its owner can read: sessions are private."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"Cannot create {file}: {reason}.", "Name another database with --db."
        ) from error


def _cursor(row: Any) -> FileCursor:
    fields = {str(name): value for name, value in row.items()}
    fields["problems"] = fields["problems"] or ()
    return msgspec.convert(fields, FileCursor, builtin_types=(bytes,))

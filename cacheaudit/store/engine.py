"""Opens databases: where the default one lies, how each kind is set up, one writer at a time."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from cacheaudit._lazy import need
from cacheaudit.errors import StoreError

DB_VARIABLE = "CACHEAUDIT_DB"
BUSY_SECONDS = 60
_FILE_NAME = "cacheaudit.db"
# Key of the advisory lock that writers of one PostgreSQL database take in turn.
_WRITER_LOCK = 0x6361636865617564


def default_url(environment: Mapping[str, str], home: Path, platform: str = sys.platform) -> str:
    """Return where the store lies when the user names none.

    ``CACHEAUDIT_DB`` comes first; else it is a SQLite file in the folder where the platform keeps
    a user's data (``XDG_DATA_HOME`` wins everywhere).
    """
    if named := environment.get(DB_VARIABLE):
        return named
    if xdg := environment.get("XDG_DATA_HOME"):
        folder = Path(xdg)
    elif platform == "darwin":
        folder = home / "Library" / "Application Support"
    elif platform == "win32":
        local = environment.get("LOCALAPPDATA")
        folder = Path(local) if local else home / "AppData" / "Local"
    else:
        folder = home / ".local" / "share"
    return sqlite_url(folder / "cacheaudit" / _FILE_NAME)


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def parse_url(text: str) -> URL:
    """Read an SQLAlchemy URL, or the path of a SQLite file.

    Raises:
        StoreError: The text is neither.
    """
    if "://" not in text:
        return make_url(sqlite_url(Path(text).expanduser()))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise StoreError(
            "The database URL cannot be read.",
            "Use sqlite:///usage.db, postgresql://user@host/name, or a file name.",
        ) from error
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    return url


def shown(url: URL) -> str:
    """Write a URL for messages, without its password."""
    return url.render_as_string(hide_password=True)


def make_engine(url: URL) -> Engine:
    """Create the engine for a URL, set up for its kind of database.

    Raises:
        MissingExtraError: The driver is not installed.
        StoreError: No such kind of database is known.
    """
    if url.drivername == "postgresql+psycopg":
        need("psycopg", "postgres")
    try:
        if url.get_backend_name() == "sqlite":
            return _sqlite(url)
        return sa.create_engine(url, pool_pre_ping=True)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise StoreError(
            f"No driver for {url.drivername!r} databases is installed: {error}.",
            "Install the driver's package, or use a sqlite:/// or postgresql:// URL.",
        ) from error


def sqlite_file(url: URL) -> Path | None:
    """Return the file of a SQLite URL; ``None`` for memory and for other databases."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database))


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that no other writer of the database shares time with.

    What is read inside it therefore still holds when it is written upon.
    """
    with engine.connect() as plain, explained(engine.url):
        connection = plain.execution_options(cacheaudit_writer=True)
        with connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_WRITER_LOCK)))
            yield connection


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a transaction for reading; it sees one state of the database throughout."""
    with explained(engine.url), engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


@contextlib.contextmanager
def explained(url: URL) -> Iterator[None]:
    """Turn the database's errors into :class:`StoreError` with the remedy, without its data."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(
            f"Database {shown(url)}: {_reason(error)}", _remedy(str(error).lower())
        ) from error


_REMEDIES = (
    ("locked", "Another program holds the database; close it or try again."),
    ("not a database", "The file is something else; name another file with --db."),
    ("malformed", "The file is damaged; restore a copy, or import again into a new file."),
    ("unable to open", "Check that the folder exists and can be written, or use --db."),
    ("readonly", "The file cannot be written; check its permissions, or use --db."),
    ("full", "Free some disk space and run the command again; nothing was lost."),
    ("connection", "Check that the server runs and that host, port, user and password are right."),
)


def _remedy(text: str) -> str | None:
    return next((remedy for word, remedy in _REMEDIES if word in text), None)


def _reason(error: SQLAlchemyError) -> str:
    """Return the driver's first line: statement and values are left out, they may be private."""
    cause = getattr(error, "orig", None) or error
    lines = str(cause).strip().splitlines()
    return (lines[0] if lines else type(cause).__name__).rstrip(".") + "."


def _write_ahead(cursor: Any) -> None:
    """Turn the write-ahead log on; SQLite refuses at once, without the wait for others, here."""
    for left in reversed(range(BUSY_SECONDS * 20)):
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not left or "locked" not in str(error):
                raise
            time.sleep(0.05)
        else:
            return


def _sqlite(url: URL) -> Engine:
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        # The driver would begin transactions on its own and too late; see _begin.
        connection.isolation_level = None
        cursor = connection.cursor()
        try:
            cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
            cursor.execute("PRAGMA foreign_keys = ON")
            if sqlite_file(url) is not None:
                _write_ahead(cursor)
            cursor.execute("PRAGMA synchronous = NORMAL")
        finally:
            cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later could not wait for another writer.
        is_writer = connection.get_execution_options().get("cacheaudit_writer", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")

    return engine

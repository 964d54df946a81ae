"""Brings a database to the schema of this version."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from cacheaudit.errors import SchemaVersionError, StoreError
from cacheaudit.store.engine import explained, reading, shown, writing

if TYPE_CHECKING:
    from alembic.config import Config

REVISION = "0002"
"""The newest migration; a test holds it equal to the files."""

# Alembic keeps the migration that runs in module variables: two at once in one process break both.
_ONE_AT_A_TIME: Final = threading.Lock()

_versions = sa.table("alembic_version", sa.column("version_num", sa.String))


def current(connection: Connection) -> str | None:
    """Return the revision of a database, ``None`` where it has no schema yet."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.scalar(sa.select(_versions.c.version_num))


def upgrade(engine: Engine, *, create: bool = True, revision: str = REVISION) -> None:
    """Bring the database up to ``revision``; safe in several processes and threads at once.

    Args:
        engine: The database.
        create: Make the schema where there is none.
        revision: Where to stop; for tests of migrations.

    Raises:
        SchemaVersionError: A newer version wrote the database.
        StoreError: There is no schema and ``create`` is false.
    """
    with reading(engine) as connection:
        found = current(connection)
    if found == revision:
        return
    if found is None and not create:
        raise StoreError(
            f"Database {shown(engine.url)} holds no store.",
            "Fill it first: cacheaudit import --db URL",
        )
    with _ONE_AT_A_TIME, explained(engine.url), writing(engine) as connection:
        _migrate(connection, shown(engine.url), revision)


def config() -> Config:
    """Return the configuration of the migrations, which lie inside the package."""
    from alembic.config import Config

    settings = Config()
    folder = Path(__file__).with_name("migrations")
    settings.set_main_option("script_location", str(folder).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    return settings


def _migrate(connection: Connection, name: str, revision: str) -> None:
    from alembic import command
    from alembic.script import ScriptDirectory

    settings = config()
    known = {script.revision for script in ScriptDirectory.from_config(settings).walk_revisions()}
    found = current(connection)  # another process may have been faster
    if found is not None and found not in known:
        raise SchemaVersionError(
            f"Database {name} has schema {found}; this version knows {REVISION} at most.",
            "Upgrade: pip install --upgrade cacheaudit (or name another database with --db).",
        )
    settings.attributes["connection"] = connection
    command.upgrade(settings, revision)

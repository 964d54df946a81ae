"""Opening: where the store lies, its migrations, and what is said when it cannot be used."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from cacheaudit.errors import SchemaVersionError, StoreError
from cacheaudit.model.call import Call
from cacheaudit.store import default_url, open_store
from cacheaudit.store.engine import make_engine, parse_url, shown
from cacheaudit.store.schema import REVISION, config, upgrade
from cacheaudit.store.tables import metadata


def test_the_code_knows_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(config()).get_heads() == [REVISION]


def test_migrations_make_what_the_code_expects(url: str) -> None:
    open_store(url).close()
    engine = make_engine(parse_url(url))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        inspector = sa.inspect(connection)
        for table in metadata.tables.values():
            wanted = {constraint.name for constraint in table.foreign_key_constraints}
            assert {key["name"] for key in inspector.get_foreign_keys(table.name)} == wanted
            uniques = {c.name for c in table.constraints if isinstance(c, sa.UniqueConstraint)}
            found = {key["name"] for key in inspector.get_unique_constraints(table.name)}
            assert found == uniques
    engine.dispose()


def test_every_older_revision_is_upgraded_with_its_rows(url: str) -> None:
    engine = make_engine(parse_url(url))
    upgrade(engine, revision="0001")
    with engine.begin() as connection:
        assert not sa.inspect(connection).has_table("findings")
        connection.execute(
            sa.text("insert into sessions (id, source, name) values (7, 'toy', 's')")
        )
        connection.execute(
            metadata.tables["calls"].insert(),
            {
                "key": b"k" * 16,
                "session_id": 7,
                "name": "old call",
                "lane": "main",
                "purpose": "main",
                "relative_time": False,
                "attempt": 0,
                "requests": 1,
                "has_usage": False,
                "has_error": False,
                "currency": "USD",
                "source_version": 1,
                "generation": 1,
                "fingerprint": b"f" * 16,
            },
        )
    engine.dispose()
    with open_store(url) as store:
        (session,) = store.sessions()
        assert session.calls == (Call(id="old call", session="s"),)
        assert store.findings() == []
    engine = make_engine(parse_url(url))
    with engine.connect() as connection:
        assert connection.scalar(sa.text("select version_num from alembic_version")) == REVISION
    engine.dispose()


def test_a_newer_database_is_refused_and_left_alone(url: str) -> None:
    open_store(url).close()
    engine = make_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text("update alembic_version set version_num = '9999'"))
    with pytest.raises(SchemaVersionError, match="9999") as caught:
        open_store(url)
    assert caught.value.hint is not None
    assert "pip install --upgrade" in caught.value.hint
    with engine.connect() as connection:
        assert connection.scalar(sa.text("select version_num from alembic_version")) == "9999"
    engine.dispose()


def test_a_database_without_a_store_is_not_made_where_none_is_wanted(url: str) -> None:
    with pytest.raises(StoreError, match="store"):
        open_store(url, create=False)
    if url.startswith("sqlite"):
        assert not Path(parse_url(url).database or "").exists()
    open_store(url).close()
    open_store(url, create=False).close()


def test_sqlite_is_set_up_for_several_processes(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "a.db")) as store, store._engine.connect() as connection:
        pragma = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragma == {
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "busy_timeout": 60_000,
    }


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "notes.db"
    file.write_text("these are notes, and quite a few of them " * 100)
    with pytest.raises(StoreError, match="not a database") as caught:
        open_store(str(file))
    assert "--db" in str(caught.value.hint)
    assert file.read_text().startswith("these are notes")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Cannot create"):
        open_store(str(tmp_path / "file" / "a.db"))


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with open_store(str(file)) as store:
        store.write([Call(id="c")], source="t")
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes["a.db"] == 0o600
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("text", ["nosuch://host/db", "mysql+nosuch://h/d", "://", "a://b:c/d"])
def test_urls_that_cannot_be_used(text: str) -> None:
    with pytest.raises(StoreError):
        open_store(text)


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(f"postgresql://u:secret@/db?host={tmp_path}")
    assert "secret" not in str(caught.value)
    assert "server runs" in str(caught.value.hint)


def test_passwords_are_not_shown() -> None:
    assert "secret" not in shown(parse_url("postgresql://u:secret@host/db"))


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("postgres://h/d", "postgresql+psycopg"),
        ("postgresql://h/d", "postgresql+psycopg"),
        ("postgresql+pg8000://h/d", "postgresql+pg8000"),
        ("sqlite:///a.db", "sqlite"),
        ("a.db", "sqlite"),
    ],
)
def test_short_forms_of_urls(text: str, driver: str) -> None:
    assert parse_url(text).drivername == driver


HOME = Path("/home/u")


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({}, "linux", "/home/u/.local/share/cacheaudit/cacheaudit.db"),
        ({}, "darwin", "/home/u/Library/Application Support/cacheaudit/cacheaudit.db"),
        ({}, "win32", "/home/u/AppData/Local/cacheaudit/cacheaudit.db"),
        ({"LOCALAPPDATA": "/l"}, "win32", "/l/cacheaudit/cacheaudit.db"),
        ({"XDG_DATA_HOME": "/x"}, "linux", "/x/cacheaudit/cacheaudit.db"),
        ({"XDG_DATA_HOME": "/x"}, "darwin", "/x/cacheaudit/cacheaudit.db"),
    ],
)
def test_the_default_lies_in_the_users_data_folder(
    environment: dict[str, str], platform: str, expected: str
) -> None:
    assert parse_url(default_url(environment, HOME, platform)).database == expected


def test_the_variable_names_the_store() -> None:
    assert default_url({"CACHEAUDIT_DB": "sqlite:///mine.db"}, HOME) == "sqlite:///mine.db"


@pytest.mark.parametrize("name", ["with space.db", "ä #?%.db"])
def test_file_names_of_any_kind(tmp_path: Path, name: str) -> None:
    with open_store(str(tmp_path / name)) as store:
        store.write([Call(id="c")], source="t")
        assert store.file == tmp_path / name
    assert (tmp_path / name).exists()


def test_a_reader_sees_one_state_while_another_writes(url: str) -> None:
    with open_store(url) as writer, open_store(url) as reader:
        writer.write([Call(id=f"a{n}", session=f"s{n}") for n in range(3)], source="t")
        stream = reader.sessions()
        first = next(stream)
        writer.write([Call(id="b", session="s9"), Call(id="c", session="s2")], source="t")
        rest = list(stream)
        assert [len(session.calls) for session in itertools.chain([first], rest)] == [1, 1, 1]
        assert [len(session.calls) for session in reader.sessions()] == [1, 1, 2, 1]

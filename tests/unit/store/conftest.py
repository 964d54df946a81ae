"""A fresh database for every test, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_url(root: Path) -> str:
    file = root / ".cache" / "postgres.url"
    url = os.environ.get("CACHEAUDIT_TEST_POSTGRES", "")
    if not url and file.is_file():
        url = file.read_text().strip()
    why = "tests/services.sh has started none (CACHEAUDIT_TEST_POSTGRES names another)"
    if url:
        engine = sa.create_engine(url)
        try:
            engine.connect().close()
        except sa.exc.OperationalError as error:
            url, why = "", f"it does not answer: {str(error).splitlines()[0]}"
        finally:
            engine.dispose()
    if not url:
        message = f"no PostgreSQL server: {why}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return url


@pytest.fixture
def postgres_db(postgres_url: str) -> Iterator[str]:
    """The URL of an empty schema of its own."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    engine = sa.create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema(name))
    url = sa.make_url(postgres_url).update_query_dict({"options": f"-csearch_path={name}"})
    yield url.render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(sa.schema.DropSchema(name, cascade=True))
    engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_db"))
    return f"sqlite:///{tmp_path / 'store.db'}"

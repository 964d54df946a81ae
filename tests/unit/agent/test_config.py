"""Arguments before variables before the file; what is wrong is said with its place."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit import CacheAudit
from cacheaudit.agent.config import Config, load_config
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.errors import ConfigError
from tests.unit.agent.servers import MODEL, Script, client

FILE = """
[tool.cacheaudit]
db = "runs/usage.db"
mode = "observe"
store-text = true
project = "from-file"
backend = "local"
telemetry = false

[tool.cacheaudit.keep-alive]
mode = "idle"
min-savings = 0.1
budget_per_day = 2
"""


def file(folder: Path, text: str = FILE) -> Path:
    (folder / "pyproject.toml").write_text(text)
    inner = folder / "a" / "b"
    inner.mkdir(parents=True, exist_ok=True)
    return inner


def test_nothing_said() -> None:
    assert load_config({}, {}, Path("/")) == Config()
    assert Config().mode == "auto"
    assert Config().keep_alive.mode == "off"
    assert Config().telemetry is False


def test_the_nearest_file_upwards(tmp_path: Path) -> None:
    found = load_config({}, {}, file(tmp_path))
    assert found == Config(
        db=str(tmp_path / "runs" / "usage.db"),
        mode="observe",
        store_text=True,
        project="from-file",
        backend="local",
        keep_alive=KeepAlive(mode="idle", min_savings=Decimal("0.1"), budget_per_day=Decimal(2)),
    )


def test_variables_go_before_the_file(tmp_path: Path) -> None:
    environment = {
        "CACHEAUDIT_DB": "postgresql://h/n",
        "CACHEAUDIT_MODE": "auto",
        "CACHEAUDIT_STORE_TEXT": "no",
        "CACHEAUDIT_KEEP_ALIVE": "running",
        "CACHEAUDIT_PROJECT": "",
    }
    found = load_config({}, environment, file(tmp_path))
    assert (found.db, found.mode, found.store_text) == ("postgresql://h/n", "auto", False)
    assert found.keep_alive == KeepAlive(mode="running")
    assert found.project == "from-file"  # an empty variable says nothing


def test_arguments_go_before_all(tmp_path: Path) -> None:
    said = {"db": "x.db", "mode": "auto", "keep_alive": "off", "store_text": False, "project": None}
    environment = {"CACHEAUDIT_DB": "y.db", "CACHEAUDIT_STORE_TEXT": "1"}
    found = load_config(said, environment, file(tmp_path))
    assert (found.db, found.mode, found.store_text) == ("x.db", "auto", False)
    assert found.keep_alive.mode == "off"
    assert found.project == "from-file"


@pytest.mark.parametrize(
    "text", ["", "[tool.other]\nx = 1", "[tool]\ncacheaudit = 3", "not toml ["]
)
def test_files_of_others_are_no_trouble(tmp_path: Path, text: str) -> None:
    assert load_config({}, {}, file(tmp_path, text)) == Config()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('mod = "auto"', "Did you mean 'mode'"),
        ('mode = "fast"', "no mode 'fast'"),
        ("mode = 3", "no mode 3"),
        ('store_text = "perhaps"', "Give true or false"),
        ("project = 7", "is no text"),
        ('keep_alive = "always"', "no mode 'always'"),
        ("keep_alive = { tokens = 3 }", "has no tokens"),
        ("keep_alive = { idle_prior = 3 }", "no probability"),
        ('keep_alive = { idle_prior = "x" }', "keep_alive"),
        ("keep_alive = 3", "is no setting"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config({}, {}, file(tmp_path, f"[tool.cacheaudit]\n{line}\n"))


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="CACHEAUDIT_TELEMETRY"):
        load_config({}, {"CACHEAUDIT_TELEMETRY": "sometimes"}, Path("/"))


values: dict[str, st.SearchStrategy[Any]] = {
    "db": st.sampled_from(["a.db", "b.db"]),
    "mode": st.sampled_from(["auto", "observe"]),
    "project": st.sampled_from(["p", "q"]),
    "backend": st.sampled_from(["local", "openai"]),
}


@given(st.fixed_dictionaries({}, optional=values), st.fixed_dictionaries({}, optional=values))
def test_each_setting_by_itself(said: dict[str, str], variables: dict[str, str]) -> None:
    environment = {f"CACHEAUDIT_{name.upper()}": value for name, value in variables.items()}
    found = load_config(said, environment, Path("/"))
    for name in values:
        expected = said.get(name, variables.get(name, getattr(Config(), name)))
        assert getattr(found, name) == expected


def test_an_audit_goes_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file(tmp_path, '[tool.cacheaudit]\ndb = "here.db"\nmode = "observe"\n'))
    monkeypatch.setenv("CACHEAUDIT_PROJECT", "mine")
    with CacheAudit() as audit:
        assert audit.mode == "observe"
        wrapped = audit.wrap(client(Script()))
        wrapped.messages.create(
            model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "hi"}]
        )
        assert audit.flush()
        (session,) = audit.sessions()
    assert session.project == "mine"
    assert (tmp_path / "here.db").exists()

"""Command lines that make a result again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.jobs.command import Commands, without_password
from cacheaudit.jobs.inputs import Inputs


def commands(*paths: str, **more: Any) -> Commands:
    named = tuple(Path(path) for path in paths)
    return Commands(Inputs(paths=named, environment={}, home=Path("home"), **more))


def test_paths_stand_as_they_were_given() -> None:
    assert commands("logs/a.jsonl", "b c.csv").audit() == "cacheaudit audit logs/a.jsonl 'b c.csv'"
    assert commands().audit() == "cacheaudit audit"


def test_everything_that_changes_the_result_is_named() -> None:
    made = commands(
        "a", prices=(Path("my prices.toml"),), since=1_795_000_000.0, until=1_795_086_400.5
    )
    assert made.audit(show_text=True) == (
        "cacheaudit audit a --since 2026-11-18T11:06:40.000Z --until 2026-11-19T11:06:40.500Z"
        " --show-text --prices 'my prices.toml'"
    )
    assert made.backtest("5m+keep-alive").startswith("cacheaudit backtest a --since ")


def test_a_path_that_looks_like_an_option() -> None:
    assert commands("-x.jsonl").audit() == "cacheaudit audit -- -x.jsonl"


@given(
    st.lists(
        st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1),
        max_size=3,
    )
)
def test_a_shell_reads_the_same_words(names: list[str]) -> None:
    paths = [str(Path(name)) for name in names]
    words = shlex.split(commands(*names).audit())
    assert [word for word in words[2:] if word != "--"] == [path for path in paths if path != "--"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///calls.db", "sqlite:///calls.db"),
        ("postgresql+psycopg://ann:s3cret@host:5432/calls", "postgresql+psycopg://ann:***@host:5432/calls"),
        ("postgresql://ann@host/calls", "postgresql://ann@host/calls"),
        ("mysql://h/c?user=a&password=s3cret&ssl=1", "mysql://h/c?user=a&password=***&ssl=1"),
    ],
)  # fmt: skip
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert "s3cret" not in commands(db=url).audit()


def test_edits_are_quoted_and_options_repeated() -> None:
    made = Commands(
        Inputs(paths=(Path("a"),), environment={}, home=Path("home")), ["--switch", "speed=tools"]
    )
    assert made.simulate(["ttl", "model:to=x y,lanes=main"]) == (
        "cacheaudit simulate a --edit ttl --edit 'model:to=x y,lanes=main' --switch speed=tools"
    )


def test_simulate_knows_neither_periods_nor_stores() -> None:
    assert commands("a", since=1.0).simulate(["ttl"]) is None
    assert commands("a", until=1.0).simulate(["ttl"]) is None
    assert commands(db="sqlite:///calls.db").simulate(["ttl"]) is None
    assert commands().simulate(["ttl"]) is None

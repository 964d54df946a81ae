from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cacheaudit.jobs.doctor import doctor, extras, scanner_check
from cacheaudit.model.clock import FixedClock
from tests.unit.cli.helpers import NOW, run


def rows(home: Path, *args: str) -> list[dict[str, object]]:
    result = run(home, "prices", *args, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "cacheaudit.prices/1"
    found: list[dict[str, object]] = document["rows"]
    return found


def test_every_price_has_a_date_and_a_source(tmp_path: Path) -> None:
    found = rows(tmp_path)
    assert len(found) > 1_000
    for row in found:
        assert row["source"]
        assert len(str(row["checked"])) == 10
    assert len({str(row["id"]) for row in found}) == len(found)


def test_a_model_in_the_form_that_records_have(tmp_path: Path) -> None:
    found = rows(tmp_path, "claude-sonnet-4-5-20250929", "--at", "2026-11-03")
    first = found[0]
    assert (first["provider"], first["model"]) == ("anthropic", "claude-sonnet-4-5")
    assert first["rates"]["uncached"] == "3"
    assert first["rates"]["read"] == "0.3"
    assert first["rates"]["write_5m"] == "3.75"
    assert first["rates"]["write_1h"] == "6"


def test_at_keeps_only_what_holds_then(tmp_path: Path) -> None:
    every = rows(tmp_path, "claude-opus-4-6", "--provider", "anthropic")
    early = rows(tmp_path, "claude-opus-4-6", "--provider", "anthropic", "--at", "2026-02-10")
    late = rows(tmp_path, "claude-opus-4-6", "--provider", "anthropic", "--at", "2026-11-03")
    assert len(early) < len(every)
    assert {r["above"] for r in early if r["variant"] == "standard"} == {0, 200_000}
    assert {r["above"] for r in late if r["variant"] == "standard"} == {0}


def test_a_part_of_a_name_lists_all_that_contain_it(tmp_path: Path) -> None:
    names = {row["model"] for row in rows(tmp_path, "claude-haiku", "--provider", "anthropic")}
    assert len(names) >= 2
    assert all("claude-haiku" in str(name) for name in names)


@pytest.mark.parametrize("args", [("no-such-model",), ("x", "--provider", "no-such-provider")])
def test_what_no_table_knows(tmp_path: Path, args: tuple[str, ...]) -> None:
    result = run(tmp_path, "prices", *args)
    assert result.exit_code == 2
    assert "no-such" in result.stderr


def test_the_table_fits_the_terminal(tmp_path: Path) -> None:
    text = run(tmp_path, "prices", "claude-opus-4-6", env={"COLUMNS": "80"}).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "checked 20" in text


def test_doctor_as_json(tmp_path: Path) -> None:
    sessions = tmp_path / ".claude" / "projects"
    sessions.mkdir(parents=True)
    result = run(tmp_path, "doctor", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "cacheaudit.doctor/1"
    assert document["ok"] is True
    checks = {(c["group"], c["name"]): c for c in document["checks"]}
    assert checks["agent", "Claude Code"]["state"] == "ok"
    assert str(sessions) in checks["agent", "Claude Code"]["detail"]
    assert checks["database", "Store"]["state"] == "info"
    assert {c["group"] for c in document["checks"]} == {
        "python",
        "scanner",
        "extra",
        "encodings",
        "database",
        "prices",
        "agent",
    }
    assert not (tmp_path / ".local").exists(), "looking must not make a database"


def test_a_missing_part_comes_with_the_command_that_installs_it(tmp_path: Path) -> None:
    result = doctor({}, tmp_path, FixedClock(NOW), installed=lambda _: None)
    missing = {c.name: c for c in result.checks if c.group == "extra"}
    assert set(missing) == set(extras())
    assert {"anthropic", "postgres", "tokens", "zstd"} <= set(missing)
    for name, check in missing.items():
        assert check.state == "missing"
        command = f"pip install 'cacheaudit[{name}]'"
        if name in ("all", "local"):  # they hold the second wheel, a folder of the checkout
            command += f" (in a checkout: pip install '.[{name}]' ./local_backend)"
        assert check.remedy == command


def load_nothing() -> None:
    raise ImportError("no module of that name")


def load_it() -> None:
    pass


def test_a_compiled_scanner_in_use_is_said(tmp_path: Path) -> None:
    (tmp_path / "_lines.abi3.so").touch()
    check = scanner_check(tmp_path, load_it)
    assert (check.group, check.state, check.detail) == ("scanner", "ok", "in use")
    assert check.remedy is None


def test_without_a_compiled_scanner_doctor_says_what_to_install(tmp_path: Path) -> None:
    check = scanner_check(tmp_path, load_nothing)
    assert check.state == "missing"
    assert "same results" in check.detail
    assert check.remedy is not None
    assert "C compiler" in check.remedy


def test_a_python_that_cannot_load_one_is_told_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cacheaudit.jobs.doctor.EXTENSION_SUFFIXES", [".pyd"])
    check = scanner_check(tmp_path, load_nothing)
    assert (check.state, check.remedy) == ("info", None)


def test_a_scanner_that_does_not_load_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "_lines.abi3.so").write_text("no library")
    check = scanner_check(tmp_path, load_nothing)
    assert check.state == "problem"
    assert "no module of that name" in check.detail
    assert check.remedy


@pytest.mark.parametrize("name", ["_lines.c", "_json.h"])
@pytest.mark.parametrize(("age", "state"), [(-1, "ok"), (0, "ok"), (1, "info")])
def test_a_scanner_older_than_its_source_is_pointed_out(
    tmp_path: Path, name: str, age: int, state: str
) -> None:
    for file, at in (("_lines.abi3.so", 1_000), (name, 1_000 + age)):
        (tmp_path / file).touch()
        os.utime(tmp_path / file, (at, at))
    check = scanner_check(tmp_path, load_it)
    assert check.state == state
    assert bool(check.remedy) == (state == "info")


def test_doctor_tells_of_the_scanner_in_text_too(tmp_path: Path) -> None:
    check = next(c for c in doctor({}, tmp_path, FixedClock(NOW)).checks if c.group == "scanner")
    text = run(tmp_path, "doctor", env={"COLUMNS": "200"}).stdout
    assert "Reading of transcripts" in text
    assert f"Compiled scanner    {check.detail}" in text


def test_old_price_tables_are_pointed_out(tmp_path: Path) -> None:
    year = 365 * 86_400
    result = doctor({}, tmp_path, FixedClock(NOW + year))
    check = next(c for c in result.checks if c.group == "prices")
    assert check.state == "info"
    assert check.remedy


def test_a_store_that_cannot_be_reached_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_text("this is no database, whatever its name says" * 50)
    result = run(tmp_path, "doctor", "--json", "--db", f"sqlite:///{tmp_path}/bad.db")
    document = json.loads(result.stdout)
    assert document["ok"] is False
    check = next(c for c in document["checks"] if c["group"] == "database")
    assert check["state"] == "problem"


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/none"
    result = run(tmp_path, "doctor", "--db", url)
    assert "hunter2" not in result.output


def test_rows_that_own_ones_replace_are_not_listed(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'checked = 2026-11-15\nsource = "contract 17"\n[[prices]]\nprovider = "anthropic"\n'
        'model = "claude-opus-5-5"\nuncached = 3.6\noutput = 18\n'
    )
    found = rows(tmp_path, "claude-opus-5-5", "--provider", "anthropic", "--prices", str(own))
    assert [(row["variant"], row["source"]) for row in found] == [("standard", "contract 17")]
    other = rows(tmp_path, "claude-opus-5", "--provider", "anthropic", "--prices", str(own))
    assert "contract 17" not in {row["source"] for row in other}

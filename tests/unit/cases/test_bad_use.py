"""What cannot work is said at once: what, where, what to do; exit code 2 and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.helpers import log, process, run


def _refused(home: Path, *arguments: str) -> str:
    result = run(home, *arguments)
    assert result.exit_code == 2, result.output
    assert not result.stdout
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize("command", ["usage", "audit"])
def test_a_period_that_ends_before_it_begins(tmp_path: Path, command: str) -> None:
    file = log(tmp_path)
    for until in ("2025-01-01", "2026-01-01T00:00:00Z"):
        said = _refused(tmp_path, command, str(file), "--since", "2026-11-03", "--until", until)
        assert "The period is empty: it begins 2026-11-03T00:00:00.000Z" in said
        assert "--since" in said
    # A day given as the end is part of the period.
    options = ("--since", "2026-11-03", "--until", "2026-11-03")
    assert run(tmp_path, command, str(file), *options).exit_code == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x", "TOML"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"checked = 2026-11-30\n", "prices"),
        (b"[[prices]]\nprovider = 'a'\nmodel = 'b'\nuncached = 1\n", "checked"),
        (b"checked = 2026-11-30\n[[prices]]\nprovider='a'\nmodel='b'\nuncached=nan\n", "uncached"),
        (b"checked = 2026-11-30\n[[prices]]\nprovider='a'\nmodel='b'\nuncached=-1\n", "uncached"),
    ],
)
def test_a_wrong_price_file_names_itself_and_the_key(
    tmp_path: Path, content: bytes, said: str
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_bytes(content)
    stderr = _refused(tmp_path, "usage", str(log(tmp_path)), "--prices", str(prices))
    assert str(prices) in stderr
    assert said in stderr


def test_a_price_file_with_a_mark_in_front_is_read(tmp_path: Path) -> None:
    rows = "checked = 2026-11-30\n[[prices]]\nprovider = 'a'\nmodel = 'b'\nuncached = 1\n"
    prices = tmp_path / "prices.toml"
    prices.write_text(rows, encoding="utf-8-sig")
    result = run(tmp_path, "usage", str(log(tmp_path)), "--prices", str(prices))
    assert result.exit_code == 0, result.stderr


def test_a_price_file_without_end_is_refused(tmp_path: Path) -> None:
    done = process(tmp_path, "usage", str(log(tmp_path)), "--prices", "/dev/zero", timeout=60)
    assert done.returncode == 2
    assert b"16 MiB" in done.stderr

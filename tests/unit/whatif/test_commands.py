"""``simulate --edit`` and ``backtest`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cacheaudit.simulate.edit import edit_types
from tests.unit.cli.helpers import ROOT, run

EXERCISE = str(ROOT / "fixtures" / "sessions" / "exercise-14.session.jsonl")
LOG = str(ROOT / "fixtures" / "sessions" / "exercise-14.csv")
FIXES = ("late-tools", "keep-alive", "auto-tool-choice", "mark-previous", "fan-out")


def test_simulate_with_edits(tmp_path: Path) -> None:
    options = [part for name in FIXES for part in ("--edit", name)]
    result = run(tmp_path, "simulate", EXERCISE, "--json", *options)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    every = found["what_if"]["all_fixes"]
    assert every["input_equivalents"] == found["totals"]["input_equivalents"] == "158018.5"
    assert (every["calls"], every["cache_write"], every["cache_read"]) == (15, 82_770, 545_560)
    assert found["reported"]["input_equivalents"] == "381701"
    alone = {s["name"]: s["saves"]["input_equivalents"] for s in found["what_if"]["scenarios"]}
    assert alone["fan-out"] == "69690"
    assert alone["keep-alive"] == "37957.5"
    steps = [step["saves"]["input_equivalents"] for step in found["what_if"]["waterfall"]]
    assert steps == ["69690", "40020", "38295", "37957.5", "37720"]


def test_simulate_with_edits_as_text(tmp_path: Path) -> None:
    result = run(tmp_path, "simulate", EXERCISE, "--edit", "fan-out", "--edit", "keep-alive")
    assert result.exit_code == 0, result.stderr
    assert "One after another" in result.stdout
    assert "all-fixes" in result.stdout


def test_paths_of_a_forced_tool(tmp_path: Path) -> None:
    result = run(tmp_path, "simulate", EXERCISE, "--json", "--edit", "auto-tool-choice")
    found = json.loads(result.stdout)["forced"]
    assert (found["forced"], found["complies"], found["retry"]) == ("50025", "11730", "54090")
    assert found["break_even"] == round(4_065 / 42_360, 6)
    shown = run(tmp_path, "simulate", EXERCISE, "--edit", "auto-tool-choice").stdout
    assert "9.6 % compliance" in " ".join(shown.split())


def test_a_probability_of_compliance(tmp_path: Path) -> None:
    edit = "auto-tool-choice:compliance=0.25"
    result = run(tmp_path, "simulate", EXERCISE, "--json", "--edit", edit)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["forced"]
    # A quarter of 11,730 and three of 54,090.
    assert (found["compliance"], found["expected"]) == (0.25, "43500")
    assert found["saves"] == str(50_025 - 43_500)
    shown = " ".join(run(tmp_path, "simulate", EXERCISE, "--edit", edit).stdout.split())
    assert "at 25% compliance 43,500 are to be expected, 6,525 saved" in shown
    assert run(tmp_path, "simulate", EXERCISE, "--edit", edit[:-4] + "1.2").exit_code == 2


def test_the_guide_describes_every_edit_and_option() -> None:
    guide = (ROOT / "docs" / "guide" / "what-if.md").read_text(encoding="utf-8")
    rows = [line for line in guide.splitlines() if line.startswith("|")]
    for name, kind in edit_types().items():
        (row,) = [line for line in rows if f"`{name}`" in line.split("|")[1]]
        for field in kind.__struct_fields__:
            option = field.replace("_", "-")
            assert field in ("calls", "book") or f"`{option}" in row, f"{option} of {name}"


def test_a_refused_edit_says_why_and_the_others_are_played(tmp_path: Path) -> None:
    options = ("--edit", "sort-tools", "--edit", "keep-alive:at=06:50", "--json")
    result = run(tmp_path, "simulate", LOG, *options)
    assert result.exit_code == 2
    assert "--edit sort-tools was left out" in result.stderr
    assert "no requests" in result.stderr
    found = json.loads(result.stdout)
    assert found["edits"] == ["keep-alive"]
    assert list(found["refused"]) == ["sort-tools"]
    every = found["what_if"]["all_fixes"]
    assert every["saves"]["input_equivalents"] == "37957.5"
    shown = run(tmp_path, "simulate", LOG, *options[:-1])
    assert shown.exit_code == 2
    assert "37,958" in shown.stdout


def test_edits_of_a_log_of_sizes(tmp_path: Path) -> None:
    names = ("keep-prefix", "fan-out", "keep-alive:at=06:50", "ttl")
    options = [part for name in names for part in ("--edit", name)]
    result = run(tmp_path, "simulate", LOG, "--json", *options)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["what_if"]
    assert found["baseline"]["input_equivalents"] == "381701"
    saved = {s["name"]: s["saves"] for s in found["scenarios"]}
    told = {name: row["input_equivalents"] for name, row in saved.items() if row is not None}
    # Rows 5, 9 with 10, and 11; the smaller write of the siblings is all that sizes tell of them.
    assert told["keep-prefix"] == str(37_720 + 38_295 + 40_020)
    assert told["fan-out"] == str(2 * 30_500 * 115 // 100)
    assert told["keep-alive"] == "37957.5"
    assert told["ttl"] == "-141630"


@pytest.mark.parametrize("edit", ["nonsense", "ttl:ttl=2h"])
def test_a_wrong_edit_is_bad_use(tmp_path: Path, edit: str) -> None:
    result = run(tmp_path, "simulate", EXERCISE, "--edit", edit)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_backtest_of_a_log(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        "backtest",
        EXERCISE,
        "--json",
        "--policy",
        "1h",
        "--policy",
        "5m+keep-alive-known",
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["schema"] == "cacheaudit.backtest/1"
    assert found["judged_calls"] == 14
    hour, known = found["policies"]
    assert hour["saves"]["input_equivalents"] == "-141630"
    assert (hour["lost_sessions"], hour["lost_sessions_share"]) == (1, 1.0)
    assert known["saves"]["input_equivalents"] == "37957.5"
    assert found["best"] is None


def test_backtest_as_text(tmp_path: Path) -> None:
    result = run(tmp_path, "backtest", EXERCISE)
    assert result.exit_code == 0, result.stderr
    assert "would have saved" in result.stdout or "No other setting" in result.stdout
    assert "as billed" in result.stdout


def test_a_wrong_policy_is_bad_use(tmp_path: Path) -> None:
    result = run(tmp_path, "backtest", EXERCISE, "--policy", "2h")
    assert result.exit_code == 2
    assert "no policy" in result.stderr

"""``cacheaudit simulate``: its JSON is a contract, its mistakes are explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.helpers import run


def simulated(home: Path, *args: str) -> dict[str, Any]:
    result = run(home, "simulate", *args, "--json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_the_json_has_the_fields_of_the_contract(root: Path, tmp_path: Path) -> None:
    found = simulated(tmp_path, str(root / "fixtures/sessions/exercise-14.session.jsonl"))
    assert found["schema"] == "cacheaudit.simulation/1"
    assert len(found["calls"]) == 14
    for call in found["calls"]:
        assert {"id", "predicted", "reported"} <= call.keys()
        for side in (call["predicted"], call["reported"]):
            assert {"cache_read", "cache_write", "uncached_input"} <= side.keys()
        assert call["predicted"]["cache_read"] == call["reported"]["cache_read"]
        assert call["predicted"]["cache_write"] == call["reported"]["cache_write"]
    assert found["totals"] == {
        "calls": 14,
        "total_input": 592_180,
        "uncached_input": 0,
        "cache_read": 311_760,
        "cache_write": {"5m": 280_420},
        "hit_ratio": "0.5265",
        "input_equivalents": "381701",
        "cost": found["reported"]["cost"],
        "currency": "USD",
        "unknown_calls": {},
    }
    assert found["switches"] == {}
    assert found["rules_version"] == "2026-11-30"
    assert found["accuracy"]["exact_calls"] == 14


def test_what_cannot_be_predicted_is_null_with_a_reason(root: Path, tmp_path: Path) -> None:
    found = simulated(tmp_path, str(root / "fixtures/sessions/exercise-14.csv"))
    first = found["calls"][0]
    assert (first["predicted"], first["refused"]) == (None, "first_of_lane")
    assert found["accuracy"]["refused"] == {"first_of_lane": 1}


_LONE = (
    "timestamp,model,session,input_tokens,cache_read_input_tokens,cache_creation_input_tokens\n"
    "2026-11-03T10:00:00Z,claude-sonnet-4-6,s1,100,5000,0\n"
)


def test_sums_over_nothing_are_unknown(tmp_path: Path) -> None:
    log = tmp_path / "lone.csv"
    log.write_text(_LONE, encoding="utf-8")

    found = simulated(tmp_path, str(log))
    shown = run(tmp_path, "simulate", str(log)).stdout

    for side in (found["totals"], found["reported"]):
        assert side["calls"] == 0
        parts = ("total_input", "uncached_input", "cache_read", "cache_write", "cost")
        assert [side[part] for part in (*parts, "input_equivalents")] == [None] * 6
    assert found["accuracy"]["mean_abs_error_tokens"] is None
    assert "$0" not in shown
    assert "Nothing could be predicted." in shown


def test_writes_that_no_call_tells_are_unknown(tmp_path: Path) -> None:
    log = tmp_path / "quiet.csv"
    lines = [
        f"2026-11-03T10:00:{seconds:02},openai,gpt-5.4,s1,{read + 576},{read},"
        for seconds, read in ((0, 0), (20, 4_096), (40, 4_608))
    ]
    head = "timestamp,provider,model,session,prompt_tokens,cached_tokens,completion_tokens"
    log.write_text("\n".join([head, *(f"{line}5" for line in lines), ""]), encoding="utf-8")

    found = simulated(tmp_path, str(log))

    assert found["reported"]["calls"] == found["totals"]["calls"] > 0
    assert found["reported"]["cache_write"] is None
    assert found["reported"]["unknown_calls"] == {"cache_write": found["reported"]["calls"]}
    assert found["totals"]["cache_write"] == {}
    shown = run(tmp_path, "simulate", str(log)).stdout
    sums = next(line for line in shown.splitlines() if line.startswith(" reported"))
    assert sums.split()[3] == "–"  # noqa: RUF001


def test_what_is_known_besides_completes_a_usage_log(root: Path, tmp_path: Path) -> None:
    folder = root / "fixtures/sessions"
    found = simulated(
        tmp_path, str(folder / "exercise-14.csv"), "--known", str(folder / "exercise-14.known.json")
    )
    assert found["accuracy"]["exact_calls"] == 14
    assert found["accuracy"]["exact_writes"] == 14


def test_switches_are_set_and_told(root: Path, tmp_path: Path) -> None:
    path = str(root / "fixtures/sessions/exercise-14.session.jsonl")
    found = simulated(tmp_path, path, "--switch", "tool-choice=nothing")
    assert found["switches"] == {"tool_choice": "nothing"}
    assert found["calls"][8]["predicted"]["cache_read"] == 39_150


def test_another_lifetime_is_an_edit(root: Path, tmp_path: Path) -> None:
    """With an hour row 7 reads what the pause had cost: 36,150 tokens."""
    path = str(root / "fixtures/sessions/exercise-14.session.jsonl")
    found = simulated(tmp_path, path, "--ttl", "1h")
    assert found["edits"] == ["ttl"]
    assert found["calls"][6]["predicted"]["cache_read"] == 36_150
    assert found["totals"]["cache_write"] == {"1h": 280_420 - 36_150}


def test_the_text_says_the_verdict_first_and_what_it_rests_on(root: Path, tmp_path: Path) -> None:
    path = str(root / "fixtures/sessions/exercise-14.csv")
    result = run(tmp_path, "simulate", path, "--switch", "lookback_runs=each")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("9 of 13 predicted reads exact (69.2 %)")
    assert "+32,800" in result.stdout
    assert "Provider rules as of 2026-11-30." in lines
    assert "Disputed rules set: lookback_runs=each." in lines
    assert "Without a prediction: first_of_lane 1." in lines


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--switch", "lookbak_runs=one"), "Did you mean 'lookback_runs'"),
        (("--switch", "lookback_runs=3"), "Allowed: auto, one, each"),
        (("--known", "KNOWN"), "does not say what is known"),
        (("--known", "STRANGER"), "no call of what was read"),
    ],
)
def test_mistakes(root: Path, tmp_path: Path, args: tuple[str, ...], said: str) -> None:
    (tmp_path / "KNOWN").write_text('{"exercise-14#2": {"statik": 1}}')
    (tmp_path / "STRANGER").write_text('{"nobody": {"static": 1}}')
    path = str(root / "fixtures/sessions/exercise-14.csv")
    given = [str(tmp_path / arg) if arg.isupper() else arg for arg in args]
    result = run(tmp_path, "simulate", path, *given)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_missing_file_is_bad_use(tmp_path: Path) -> None:
    result = run(tmp_path, "simulate", str(tmp_path / "none.jsonl"))
    assert result.exit_code == 2
    assert "none.jsonl" in result.stderr

"""Exit codes: 0 fine, 1 a gate failed, 2 bad use or unreadable input; errors say what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.helpers import LOG, ROOT, log, process, run


def test_an_audit_that_works(tmp_path: Path) -> None:
    result = run(tmp_path, "audit", str(log(tmp_path)))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("4 calls · 1 session")


@pytest.mark.parametrize(
    ("limit", "code"),
    [("1usd", 0), ("0.01usd", 1), ("$0.01", 1), ("0.01", 1), ("99%", 0), ("1%", 1), ("0 %", 1)],
)
def test_the_gate(tmp_path: Path, limit: str, code: int) -> None:
    result = run(tmp_path, "audit", str(log(tmp_path)), "--fail-over", limit, "--json")
    assert result.exit_code == code, result.stderr
    assert ("Gate failed" in result.stderr) == (code == 1)
    losses = [f for f in json.loads(result.stdout)["findings"] if f["kind"] == "loss"]
    assert losses, "the log loses its cache at r3; without a loss the gate is not tested"


def test_a_gate_that_cannot_be_judged_does_not_pass(tmp_path: Path) -> None:
    file = log(tmp_path, LOG.replace("claude-sonnet-4-6", "unheard-of"))
    result = run(tmp_path, "audit", str(file), "--fail-over", "5usd")
    assert result.exit_code == 2
    assert "--prices FILE" in result.stderr


def test_a_share_without_the_weight_of_a_loss_is_not_judged(tmp_path: Path) -> None:
    unknown = """\
u1,s2,unheard-of,openai,2026-11-03T10:00:00Z,90000,,0,300,
u2,s2,unheard-of,openai,2026-11-03T10:00:30Z,90500,,89984,300,
u3,s2,unheard-of,openai,2026-11-03T10:01:00Z,91000,,0,300,
u4,s2,unheard-of,openai,2026-11-03T10:01:30Z,91500,,90880,300,
"""
    result = run(tmp_path, "audit", str(log(tmp_path, LOG + unknown)), "--fail-over", "99%")
    assert result.exit_code == 2
    assert "1 loss without a price or a weight" in result.stderr
    assert "--prices FILE" in result.stderr


@pytest.mark.parametrize("command", ["audit", "usage"])
def test_a_span_of_time_without_calls_is_named(tmp_path: Path, command: str) -> None:
    file = str(log(tmp_path))
    empty = run(tmp_path, command, file, "--since", "7d")
    assert empty.exit_code == 0
    assert "--since and --until" in empty.stderr
    assert "--since" not in run(tmp_path, command, file, "--since", "2026-11-01").stderr
    assert run(tmp_path, command, file, "--since", "7d", "--quiet").stderr == ""


@pytest.mark.parametrize("limit", ["many", "5 5", "-1usd", "%", "5usdollars"])
def test_a_bad_limit(tmp_path: Path, limit: str) -> None:
    result = run(tmp_path, "audit", str(log(tmp_path)), f"--fail-over={limit}")
    assert result.exit_code == 2
    assert "5usd or 10%" in result.stderr


@pytest.mark.parametrize("command", ["audit", "usage"])
def test_a_file_that_is_not_there(tmp_path: Path, command: str) -> None:
    result = run(tmp_path, command, str(tmp_path / "missing.jsonl"))
    assert result.exit_code == 2
    assert "missing.jsonl" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["audit", "usage", "simulate", "import"])
@pytest.mark.parametrize("kind", ["pipe", "dangling", "loop"])
def test_what_is_no_file_is_unreadable_input(tmp_path: Path, command: str, kind: str) -> None:
    path = tmp_path / "x.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if kind == "loop" else tmp_path / "gone.jsonl")
    store = ["--db", f"sqlite:///{tmp_path / 'store.db'}"] if command == "import" else []
    result = run(tmp_path, command, str(path), *store)
    assert result.exit_code == 2
    assert "Nothing readable was found" in result.stderr


@pytest.mark.parametrize("command", ["audit", "usage"])
def test_a_file_of_no_known_format(tmp_path: Path, command: str) -> None:
    file = tmp_path / "notes.json"
    file.write_text('{"shopping": ["milk"]}')
    result = run(tmp_path, command, str(file))
    assert result.exit_code == 2
    assert "notes.json" in result.stderr


def test_a_bad_line_never_stops_a_run(tmp_path: Path) -> None:
    good = '{"schema":"cacheaudit.call/1","id":"a","session":"s","model":"claude-sonnet-4-6",'
    good += '"provider":"anthropic","started_at":"2026-11-03T10:00:00Z","response":{"usage":'
    good += '{"input_tokens":5,"output_tokens":1,"cache_read_input_tokens":0,'
    good += '"cache_creation_input_tokens":0}}}'
    file = tmp_path / "x.session.jsonl"
    file.write_text(f'{good}\n{{"schema":"cacheaudit.call/1","id":"b","sess\n')
    result = run(tmp_path, "audit", str(file), "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["scope"]["calls"] == 1
    row = next(r for r in document["data_quality"] if r["kind"] == "truncated_line")
    assert row["count"] == 1
    assert row["examples"][0].startswith(f"{file}:2")


def test_no_agent_here(tmp_path: Path) -> None:
    result = run(tmp_path, "audit")
    assert result.exit_code == 2
    assert "cacheaudit doctor" in result.stderr


def test_contradicting_options(tmp_path: Path) -> None:
    result = run(tmp_path, "audit", str(log(tmp_path)), "--json", "--format", "csv")
    assert result.exit_code == 2
    assert "contradict" in result.stderr


def test_a_misspelt_command(tmp_path: Path) -> None:
    result = run(tmp_path, "audti")
    assert result.exit_code == 2
    assert "Did you mean 'audit'?" in result.stderr


def test_a_path_instead_of_a_command(tmp_path: Path) -> None:
    file = log(tmp_path)
    result = run(tmp_path, str(file))
    assert result.exit_code == 2
    assert f"cacheaudit audit {file}" in result.stderr


def test_a_store_and_files_at_once(tmp_path: Path) -> None:
    result = run(tmp_path, "audit", str(log(tmp_path)), "--db", "sqlite:///x.db")
    assert result.exit_code == 2
    assert "cacheaudit import" in result.stderr


def test_since_and_until_bound_the_calls(tmp_path: Path) -> None:
    file = str(log(tmp_path))

    def calls(*options: str) -> int:
        document = json.loads(run(tmp_path, "audit", file, "--json", *options).stdout)
        count: int = document["scope"]["calls"]
        return count

    assert calls("--until", "2026-11-03") == 3
    assert calls("--since", "2026-11-04") == 1
    assert calls("--since", "2026-11-03T10:00:30Z", "--until", "2026-11-03T10:10:00Z") == 1
    assert calls("--since", "4w") == 4
    assert calls("--since", "26d") == 1


def test_a_bad_time(tmp_path: Path) -> None:
    result = run(tmp_path, "usage", "--since", "yesteryear")
    assert result.exit_code == 2
    assert "2026-11-03" in result.stderr


def test_a_price_file_prices_what_the_tables_do_not_know(tmp_path: Path) -> None:
    file = log(tmp_path, LOG.replace("claude-sonnet-4-6", "unheard-of"))
    prices = tmp_path / "prices.toml"
    prices.write_text(
        "checked = 2026-11-01\nsource = 'ours'\n"
        "[[prices]]\nprovider = 'anthropic'\nmodel = 'unheard-of'\nuncached = 1\nread = 0.1\n"
        "write_5m = 1.25\noutput = 5\n"
    )
    before = json.loads(run(tmp_path, "usage", str(file), "--json").stdout)["totals"]["cost"]
    assert before["computed"] is None
    assert before["unpriced_calls"] == 4
    result = run(tmp_path, "usage", str(file), "--json", "--prices", str(prices))
    assert result.exit_code == 0, result.stderr
    # 34,500 written at 1.25, 8,500 read at 0.1, 1,200 out at 5, for a million.
    cost = json.loads(result.stdout)["totals"]["cost"]
    assert cost["computed"] == "0.049975"


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    target = tmp_path / "no" / "such" / "folder.json"
    result = run(tmp_path, "audit", str(log(tmp_path)), "-o", str(target))
    assert result.exit_code == 2
    assert "folder.json" in result.stderr


def test_an_existing_report_is_replaced_whole_and_no_draft_stays(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    result = run(tmp_path, "audit", str(log(tmp_path)), "-o", str(target))
    assert result.exit_code == 0, result.stderr
    assert target.read_text().startswith("<!doctype html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.csv", "report.html"]
    assert str(target) in result.stderr
    assert run(tmp_path, "audit", str(tmp_path / "log.csv"), "-q", "-o", str(target)).stderr == ""


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("r.json", b'{"schema"'),
        ("r.md", b"# Cache audit"),
        ("r.csv", b"id,"),
        ("r.txt", b"4 calls"),
    ],
)
def test_the_ending_of_the_file_sets_the_format(tmp_path: Path, name: str, start: bytes) -> None:
    run(tmp_path, "audit", str(log(tmp_path)), "-o", str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "long.csv"
    head, first, *_ = LOG.splitlines()
    rows = (first.replace("r1", f"r{n}") for n in range(20_000))
    file.write_text("\n".join([head, *rows]))
    command = [sys.executable, "-m", "cacheaudit", "audit", str(file), "--format", "csv"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        errors = child.stderr.read()
        assert child.wait(120) == 0
    assert errors == b""


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_closed_standard_output(tmp_path: Path) -> None:
    file = log(tmp_path)
    line = f"'{sys.executable}' -m cacheaudit audit '{file}' --fail-over 1% >&-"
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"Gate failed" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = process(
            tmp_path, "audit", str(log(tmp_path)), capture_output=False, stdout=full, stderr=-1
        )
    assert done.returncode == 2
    assert b"standard output" in done.stderr


def test_width_and_colour_come_from_the_environment(tmp_path: Path) -> None:
    file = str(log(tmp_path))
    narrow = run(tmp_path, "audit", file, env={"COLUMNS": "80"}).stdout
    assert max(map(len, narrow.splitlines())) <= 80
    assert "\x1b[" not in narrow


def test_a_fault_of_ours_is_not_a_failed_gate(tmp_path: Path) -> None:
    script = (
        "import cacheaudit.jobs.audit as job, cacheaudit.cli as cli\n"
        "def broken(*_, **__): raise RuntimeError('boom')\n"
        "job.audit = broken\n"
        f"cli.main(['audit', {str(log(tmp_path))!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"boom" in done.stderr
    assert b"fault of cacheaudit" in done.stderr


def test_what_only_an_extra_can_read_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    cassette = tmp_path / "calls.yaml"
    cassette.write_text(
        "interactions:\n- request:\n    uri: https://api.anthropic.com/v1/messages\n"
        "    body: '{}'\n  response:\n    body: {string: '{}'}\nversion: 1\n"
    )
    for command in ("audit", "usage", "simulate", "backtest"):
        result = run(tmp_path, command, str(cassette))
        assert result.exit_code == 2, command
        assert "pip install 'cacheaudit[yaml]'" in result.stderr
    both = run(tmp_path, "audit", str(cassette), str(log(tmp_path)), "--json")
    assert both.exit_code == 0
    quality = {row["kind"]: row for row in json.loads(both.stdout)["data_quality"]}
    assert "cacheaudit[yaml]" in quality["missing_extra"]["examples"][0]


def test_a_switch_of_an_audit_is_in_force_and_in_its_command(tmp_path: Path) -> None:
    demo = str(ROOT / "fixtures" / "sessions" / "exercise-14.session.jsonl")
    usual = json.loads(run(tmp_path, "audit", demo, "--json").stdout)
    result = run(tmp_path, "audit", demo, "--json", "--switch", "lookback-positions=40")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["simulation"]["switches"]["lookback_positions"] == "40"
    assert "--switch lookback_positions=40" in found["command"]
    # With 40 positions the turn of 25 new ones would have read what came before.
    read = [row["predicted"]["cache_read"] for row in (usual["calls"][10], found["calls"][10])]
    assert read == [7_350, 42_150]
    assert run(tmp_path, "audit", demo, "--switch", "lookback=1").exit_code == 2

"""``cacheaudit tasks``: as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.helpers import log, run
from tests.unit.jobs.test_tasks import example


def test_text_says_what_a_completion_cost_and_for_what(tmp_path: Path) -> None:
    result = run(tmp_path, "tasks", str(example(tmp_path)), "-q", "-v", env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.stderr
    shown = result.stdout
    assert shown.startswith("2 tasks: 1 accepted, 1 rejected. An accepted task cost $0.0965")
    for piece in ("subagent", "keep_alive", "to the first token", "explorer/reader", "(no task)"):
        assert piece in shown
    assert "3.00 s" in shown


def test_json(tmp_path: Path) -> None:
    result = run(tmp_path, "tasks", str(example(tmp_path)), "--json", "-q")
    document = json.loads(result.stdout)
    assert document["schema"] == "cacheaudit.tasks/1"
    # 9 calls of 100 tokens put out, 17,500 written, 58,000 read.
    assert document["completions"]["cost"] == "0.096525"
    assert document["tasks"][0]["lanes"][0]["lane"] == "explorer"


def test_a_log_without_tasks(tmp_path: Path) -> None:
    result = run(tmp_path, "tasks", str(log(tmp_path)), "-q")
    assert result.exit_code == 0
    assert result.stdout.startswith("0 tasks: 0 accepted, 0 rejected. No cost of an accepted task")
    assert run(tmp_path, "tasks", "x", "--db", "y").exit_code == 2

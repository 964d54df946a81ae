"""The demo agent: scripted answers over real requests, real tools, and one run end to end."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.errors import UsageError
from cacheaudit.jobs.audit import audit
from cacheaudit.jobs.demo.agent import demo_agent
from cacheaudit.jobs.demo.course import Course
from cacheaudit.jobs.demo.project import Project, issues
from cacheaudit.jobs.demo.scripted import rewritten
from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.report.result import Totals
from tests.unit.agent.servers import events, frame
from tests.unit.cli.helpers import NOW, run

CALL = {"type": "tool_use", "id": "t1", "name": "read_log", "input": {"name": "a.lint"}}
SAID = [{"type": "text", "text": "let me look"}, CALL]


def parsed(data: bytes) -> list[Any]:
    lines = (line for line in data.split(b"\n") if line.startswith(b"data:"))
    return [json.loads(line[5:]) for line in lines]


@settings(max_examples=40)
@given(st.lists(st.integers(1, 400), max_size=12))
def test_a_stream_says_what_the_script_says_at_the_servers_pace(cuts: list[int]) -> None:
    data = b"".join(events(content=[{"type": "text", "text": "garbage out"}]))
    pieces = []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    found = parsed(b"".join(rewritten(iter([*pieces, data]), SAID)))
    kinds = [event["type"] for event in found]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", "ping", *block, *block, "message_delta", "message_stop"]
    deltas = [event["delta"] for event in found if event["type"] == "content_block_delta"]
    assert deltas[0]["text"] == "let me look"
    assert json.loads(deltas[1]["partial_json"]) == CALL["input"]
    assert found[-2]["delta"]["stop_reason"] == "tool_use"
    # Usage is the server's own.
    assert found[-2]["usage"] == {"output_tokens": 12}
    assert found[0]["message"]["usage"]["cache_read_input_tokens"] == 2_000


def test_an_answer_without_text_is_replaced_too() -> None:
    bare = [frame("message_start", {"type": "message_start", "message": {}})]
    bare.append(frame("message_delta", {"type": "message_delta", "delta": {}, "usage": {}}))
    found = parsed(b"".join(rewritten(iter(bare), [{"type": "text", "text": "x"}])))
    assert [event["type"] for event in found][1] == "content_block_start"
    assert found[-1]["delta"]["stop_reason"] == "end_turn"


def test_the_tools_are_real_and_stay_in_the_project(tmp_path: Path) -> None:
    waited: list[float] = []
    work = issues(4)
    project = Project(tmp_path / "p", work, waited.append)
    project.queue_seconds = 7.0
    for issue in work:
        assert project.run_tests(issue.test).endswith("exit status 1")
        assert "FAIL" in project.read_log(f"{issue.name}.unit")
        assert "FAIL" not in project.read_log(f"{issue.name}.lint")
        project.write_file(issue.source, issue.module(issue.right))
        assert project.run_tests(issue.test) == "1 passed\nexit status 0"
    assert waited == [7.0] * 8
    (tmp_path / "secret").write_text("x")
    for path in ("../secret", str(tmp_path / "secret"), "a/../../secret"):
        with pytest.raises(ValueError, match="outside"):
            project.read_file(path)
    assert [issue.number for issue in issues(24) if not issue.solvable] == [11, 23]


@pytest.mark.parametrize("scripts", [True, False])
def test_the_course_of_an_issue(scripts: bool) -> None:
    course = Course()
    (issue,) = issues(1)
    course.plan(issue, scripts=scripts)

    def asked(text: str) -> Any:
        return course({"messages": [{"role": "user", "content": text}]})

    assert asked("You are a reviewer. Look at style only.")[0]["text"].endswith("No objection.")
    assert asked("Pause the work here and write a summary that …")[0]["text"].startswith("## Goal")
    steps = list(iter(lambda: asked("go"), None))
    assert len(steps) == (3 if scripts else 5)
    names = [b["name"] for step in steps for b in step if b["type"] == "tool_use"]
    assert set(names) == (
        {"run_code"} if scripts else {"read_log", "read_file", "write_file", "run_tests"}
    )
    ids = [b["id"] for step in steps for b in step if b["type"] == "tool_use"]
    assert len(set(ids)) == len(ids)
    assert steps[-1][0]["text"].startswith("Issue 1 is repaired")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of one conversation of two issues, both ways."""
    for name in ("torch", "uvicorn", "anthropic", "pydantic_monty"):
        pytest.importorskip(name)
    home = tmp_path_factory.mktemp("demo")
    result = run(
        home, "demo", "agent", "--folder", str(home / "out"), "--sessions", "1", "--issues", "2",
        "--json", "-q",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (home / "out" / "result.json").write_text(result.stdout)
    return home / "out"


def totals_of(file: Path) -> Totals:
    inputs = Inputs(paths=(file,), environment={}, home=Path("/x"), quick=True)
    return audit(inputs, silent).totals


def test_end_to_end(folder: Path) -> None:
    document = json.loads((folder / "result.json").read_text())
    assert document["schema"] == "cacheaudit.demo/1"
    before, after = (document[side]["ledger"] for side in ("before", "after"))
    # Both ways do the work; one reads from the cache and costs a fraction.
    assert before["completions"]["accepted"] == after["completions"]["accepted"] == 2
    assert before["totals"]["hit_ratio"] == 0
    assert after["totals"]["hit_ratio"] > 0.6
    assert Decimal(after["totals"]["cost"]["computed"]) * 2 < Decimal(
        before["totals"]["cost"]["computed"]
    )
    purposes = {group["key"]: group["totals"]["calls"] for group in after["by_purpose"]}
    refreshes = purposes.pop("keep_alive")
    assert purposes == {"main": 6, "subagent": 4, "compaction": 1}
    assert document["refreshes"] == refreshes >= 1
    assert document["decisions"]["standalone (cold)"] == 1
    assert {g["key"] for g in before["by_purpose"]} == {"main", "subagent"}
    # Four rounds of tools and an answer before, two scripts and an answer after.
    assert before["totals"]["calls"] == 2 * (5 + 2)
    # What the agents waited for their tests is told from the tool calls.
    assert after["times"]["tool"]["total"] > 420
    assert after["times"]["first_response"]["calls"] >= 6
    assert document["compared"]["pairing"]["by"] == "task"
    kinds = {warning["kind"] for warning in document["compared"]["warnings"]}
    assert "too_few_pairs" in kinds


def test_the_ledgers_reconcile_with_audits_of_the_recordings(folder: Path) -> None:
    document = json.loads((folder / "result.json").read_text())
    for side in ("before", "after"):
        whole = totals_of(folder / f"{side}.session.jsonl")
        assert document[side]["ledger"]["totals"]["cost"]["computed"] == whole.cost.computed
        assert document[side]["ledger"]["totals"]["total_input"] == whole.total_input


def test_recordings_are_not_overwritten(folder: Path) -> None:
    inputs = Inputs(paths=(), environment={}, home=Path("/x"))
    with pytest.raises(UsageError, match="there already"):
        demo_agent(folder, inputs, silent, start=NOW)
    with pytest.raises(UsageError, match="needs a session"):
        demo_agent(folder, inputs, silent, start=NOW, sessions=0)

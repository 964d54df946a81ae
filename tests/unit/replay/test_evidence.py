"""Replays as evidence in an audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheaudit.errors import UsageError
from cacheaudit.jobs.replaying.evidence import Replays
from cacheaudit.model.finding import CallLoss, Finding
from cacheaudit.report.replay import ReplayResult
from tests.unit.cli.helpers import run
from tests.unit.replay.builders import SESSIONS
from tests.unit.replay.results import call, parts, result

EXERCISE = SESSIONS / "exercise-14.session.jsonl"


def replays(folder: Path, *results: ReplayResult) -> Replays:
    files = []
    for number, found in enumerate(results):
        files.append(folder / f"{number}.json")
        files[-1].write_bytes(msgspec.json.encode(found))
    return Replays(files)


def loss(**more: Any) -> Finding:
    fields: dict[str, Any] = {"calls": ("a", "b"), "evidence": "body_diff", "session": "s", **more}
    return Finding(id="f", rule="TTL101", name="ttl-expired", title="t", verdict="proved", **fields)


SAME, OTHER = parts(5, 10), parts(0, 15)


@pytest.mark.parametrize("evidence", ["body_diff", "simulated", "usage"])
def test_a_loss_that_was_reproduced(tmp_path: Path, evidence: str) -> None:
    found = replays(tmp_path, result(call("a", SAME, SAME), call("b", OTHER, OTHER)))
    confirmed = found.confirm(loss(evidence=evidence))
    assert confirmed.evidence == "replayed"
    assert confirmed.established == (
        "Replayed on an engine: 2 calls read and wrote what was billed.",
    )


def test_only_calls_that_lost_have_to_be_reproduced(tmp_path: Path) -> None:
    found = replays(tmp_path, result(call("a", SAME, OTHER), call("b", OTHER, OTHER)))
    assert found.confirm(loss()).evidence == "body_diff"
    assert found.confirm(loss(places=(CallLoss("b", 7),))).evidence == "replayed"


def test_several_replays_add_up(tmp_path: Path) -> None:
    one, two = result(call("a", SAME, SAME)), result(call("b", SAME, SAME))
    assert replays(tmp_path, one).confirm(loss()).evidence == "body_diff"
    assert replays(tmp_path, one, two).confirm(loss()).evidence == "replayed"


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        (result(call("a", SAME, None), call("b", SAME, SAME)), loss()),
        (result(call("a", SAME, SAME, basis="usage"), call("b", SAME, SAME)), loss()),
        (result(call("a", SAME, SAME, session="t"), call("b", SAME, SAME)), loss()),
        (result(call("a", SAME, SAME), call("b", SAME, SAME), clock="fast"), loss()),
        (result(call("a", SAME, SAME), call("b", SAME, SAME), edits=["ttl"]), loss()),
        (result(call("a", SAME, SAME), call("b", SAME, SAME)), loss(evidence="reported")),
        (result(call("a", SAME, SAME), call("b", SAME, SAME)), loss(kind="note")),
        (result(call("a", SAME, SAME), call("b", SAME, SAME)), loss(session=None)),
        (result(call("a", SAME, SAME)), loss(calls=())),
    ],
    ids=["failed", "drawn", "other", "timeless", "edited", "said", "note", "several", "none"],
)
def test_what_is_no_evidence(tmp_path: Path, found: ReplayResult, finding: Finding) -> None:
    assert replays(tmp_path, found).confirm(finding) is finding


def test_writes_that_the_record_does_not_tell_are_not_compared(tmp_path: Path) -> None:
    found = replays(tmp_path, result(call("a", parts(5, None), parts(5, 10))))
    assert found.confirm(loss(calls=("a",))).evidence == "replayed"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "is no result of a replay"),
        ('{"schema":"cacheaudit.simulation/1","calls":[]}', "is no result of a replay"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=said):
        Replays([file])


def test_a_later_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has the schema 'cacheaudit\.replay/2'"):
        replays(tmp_path, result(schema="cacheaudit.replay/2"))


def test_an_audit_with_a_replay(tmp_path: Path) -> None:
    """All five losses of the exercise, by a result written by hand."""
    records = [json.loads(line) for line in EXERCISE.read_text().splitlines()]
    calls = []
    for record in records:
        usage = record["response"]["usage"]
        side = parts(usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"])
        calls.append(call(record["id"], side, side, session=record["session"]))
    file = tmp_path / "replayed.json"
    file.write_bytes(msgspec.json.encode(result(*calls)))
    answer = run(tmp_path, "audit", str(EXERCISE), "--replayed", str(file), "--json")
    assert answer.exit_code == 0, answer.stderr
    document = json.loads(answer.stdout)
    lost = {f["rule"]: f["evidence"] for f in document["findings"] if f["tokens_lost"]}
    assert len(lost) >= 5
    assert set(lost.values()) == {"replayed"}
    assert f"--replayed {file}" in document["command"]

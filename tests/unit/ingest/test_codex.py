"""Codex rollouts: totals of real sessions, replayed history, both kinds of usage records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.sources.codex import SOURCE
from cacheaudit.model.call import Boundary, Span
from tests.unit.ingest.agent_samples import (
    SAMPLES,
    assert_claims,
    assert_sound,
    damaged,
    kinds,
    lines_of,
    parts,
    read,
    write_lines,
)

FOLDER = SAMPLES / "codex"
MAY_1 = 1777629600.0  # 2026-05-01T10:00:00Z


def _total(*paths: Path) -> int:
    """Input and output of all calls, each key counted once, as a corpus does it."""
    seen: dict[str, int] = {}
    for path in paths:
        for call in read(SOURCE, path)[0]:
            assert call.usage is not None
            assert call.dedupe_key is not None
            seen[call.dedupe_key] = (call.usage.total_input or 0) + (call.usage.output or 0)
    return sum(seen.values())


@pytest.mark.shared
@pytest.mark.parametrize("name", ["a", "b"])
def test_real_rollouts_total_as_expected(shared: Path, name: str) -> None:
    key = f"sessions/codex/{name}.jsonl"
    expected = json.loads((shared / "data" / "expected.json").read_text())["files"][key]
    calls, problems = read(SOURCE, shared / "data" / key)
    assert not problems
    assert len(calls) == expected["calls"]
    assert sum(parts(call)[0] or 0 for call in calls) == expected["uncached_input"]
    assert sum(parts(call)[1] or 0 for call in calls) == expected["cache_read"]
    assert sum(parts(call)[3] or 0 for call in calls) == expected["output"]
    assert all(call.usage is not None and call.usage.cache_write is None for call in calls)
    events = [
        line["payload"]
        for line in lines_of(shared / "data" / key)
        if line["payload"].get("type") == "token_count"
    ]
    assert len(events) == expected["events"]
    assert len(events) - len(calls) == expected.get("re_emitted", 0)
    # The other rule gives the same: the last running total.
    last = events[-1]["info"]["total_token_usage"]
    assert sum(call.usage.total_input or 0 for call in calls if call.usage) == last["input_tokens"]


@pytest.mark.shared
def test_real_rollout_compacts_twice(shared: Path) -> None:
    calls, _ = read(SOURCE, shared / "data" / "sessions" / "codex" / "b.jsonl")
    marks = [boundary for call in calls for boundary in call.boundaries]
    assert [mark.kind for mark in marks] == ["compaction", "compaction"]
    assert [mark.tokens_before for mark in marks] == [87_590, 95_727]
    after = [call for call in calls if call.boundaries]
    assert all((call.usage.total_input or 0) < 30_000 for call in after if call.usage)


@pytest.mark.shared
def test_real_rollout_says_who_and_when(shared: Path) -> None:
    calls, _ = read(SOURCE, shared / "data" / "sessions" / "codex" / "a.jsonl")
    first = calls[0]
    assert (first.provider, first.model, first.lane) == ("openai", "gpt-5.4", "main")
    # User message at 00:57:07.657, first output at 00:57:11.647, count logged at 00:57:17.554.
    assert first.started_at is None
    assert first.start_span == Span(1781744227.658, 1781744231.647)
    assert first.ended_at == 1781744237.554
    # The next request cannot start before this one ended.
    assert calls[1].start_span is not None
    assert calls[1].start_span.low == first.ended_at


def test_a_fork_is_counted_once_with_its_parent() -> None:
    parent, fork = FOLDER / "parent.jsonl", FOLDER / "fork.jsonl"
    assert _total(parent) == 100
    assert _total(fork) == 150
    assert _total(parent, fork) == _total(fork, parent) == 150
    calls, problems = read(SOURCE, fork)
    assert not problems
    assert [call.session for call in calls] == ["thread-a", "thread-a", "thread-b"]


def test_an_archived_copy_is_the_same_session(tmp_path: Path) -> None:
    copy = tmp_path / "archived.jsonl"
    copy.write_bytes((FOLDER / "parent.jsonl").read_bytes())
    assert _total(FOLDER / "parent.jsonl", copy) == 100


def test_a_fork_without_times_is_counted_once(tmp_path: Path) -> None:
    def bare(path: Path) -> Path:
        lines = lines_of(path)
        for line in lines:
            del line["timestamp"]
            line["payload"].pop("timestamp", None)
        return write_lines(tmp_path / path.name, lines)

    parent, fork = bare(FOLDER / "parent.jsonl"), bare(FOLDER / "fork.jsonl")
    assert _total(parent) == 100
    assert _total(parent, fork) == 150


def test_a_subagent_does_not_bill_the_history_that_it_was_given() -> None:
    calls, problems = read(SOURCE, FOLDER / "subagent.jsonl")
    assert [(call.session, call.lane, call.purpose) for call in calls] == [
        ("thread-a", "thread-s", "subagent")
    ]
    assert parts(calls[0]) == (20, 0, None, 3)
    assert calls[0].model == "gpt-5.4-mini"
    assert calls[0].start_span == Span(MAY_1 + 2401.6, MAY_1 + 2404)
    assert kinds(problems) == {"replayed_history": 2}


def test_response_records_and_counts_are_one_call() -> None:
    calls, problems = read(SOURCE, FOLDER / "records.jsonl")
    assert not problems
    assert [call.id for call in calls] == ["resp_1", "resp_2", "resp_c", "resp_3"]
    assert [parts(call) for call in calls] == [
        (100, 0, 900, 50),
        (50, 900, 250, 20),
        (1300, 0, 0, 80),
        (20, 0, 380, 9),
    ]
    assert [call.purpose for call in calls] == ["main", "main", "compaction", "main"]
    assert calls[3].boundaries == (Boundary("compaction", at=MAY_1 + 3061, tokens_before=1300),)
    assert calls[0].usage is not None
    assert calls[0].usage.write_other_ttl == "30m"
    assert len({call.dedupe_key for call in calls}) == 4


def test_old_rollouts_without_model_and_single_usage() -> None:
    calls, problems = read(SOURCE, FOLDER / "totals_only.jsonl")
    assert not problems
    assert [parts(call) for call in calls] == [(400, 100, None, 20), (100, 500, None, 30)]
    assert [call.model for call in calls] == [None, None]


def test_lost_lines_show_as_a_gap_in_the_running_total(tmp_path: Path) -> None:
    lines = lines_of(FOLDER / "parent.jsonl")
    del lines[5]  # the first count
    calls, problems = read(SOURCE, write_lines(tmp_path / "cut.jsonl", lines))
    assert [parts(call) for call in calls] == [(4, 30, None, 2)]
    (row,) = problems.items()
    assert row[0] == "counter_gap"
    assert "60 input tokens" in row[2][0]


def test_contradictions_are_flagged_and_not_clamped(tmp_path: Path) -> None:
    lines = lines_of(FOLDER / "parent.jsonl")
    usage = lines[5]["payload"]["info"]["last_token_usage"]
    usage["cached_input_tokens"] = 90
    lines[7]["payload"]["info"]["last_token_usage"]["cached_input_tokens"] = -3
    calls, problems = read(SOURCE, write_lines(tmp_path / "bad.jsonl", lines))
    assert [call.usage.flags for call in calls if call.usage] == [
        ("cache_exceeds_input",),
        ("cache_split_unknown", "negative_part"),
    ]
    assert calls[0].usage is not None
    assert calls[0].usage.uncached_input is None
    assert kinds(problems)["cache_exceeds_input"] == 1
    assert kinds(problems)["negative_part"] == 1


def test_truncated_and_foreign_lines_are_counted_where_they_stand(tmp_path: Path) -> None:
    data = (FOLDER / "parent.jsonl").read_bytes()
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b'[1]\n{"type":"event_msg","payload":7}\n' + data[:-20])
    calls, problems = read(SOURCE, path)
    assert len(calls) == 1
    assert kinds(problems) == {"wrong_type": 2, "truncated_line": 1}
    examples = {kind: where for kind, _, where in problems.items()}
    assert examples["wrong_type"][0].startswith(f"{path}:1")
    assert examples["truncated_line"][0].startswith(f"{path}:10")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["parent", "fork", "subagent", "records", "totals_only"]))
    lines = data.draw(damaged(lines_of(FOLDER / f"{name}.jsonl")))
    calls, _ = read(SOURCE, write_lines(tmp_path / "damaged.jsonl", lines))
    assert_sound(calls)


def test_detection_takes_rollouts_only() -> None:
    assert_claims(SOURCE, *FOLDER.glob("*.jsonl"))


def test_a_long_first_line_is_recognised(tmp_path: Path) -> None:
    lines = lines_of(FOLDER / "parent.jsonl")
    lines[0]["payload"]["base_instructions"] = {"text": "x" * 100_000}
    assert_claims(SOURCE, write_lines(tmp_path / "long.jsonl", lines))


def test_no_text_of_a_session_is_kept(tmp_path: Path) -> None:
    lines = lines_of(FOLDER / "parent.jsonl")
    lines[2]["payload"]["content"] = [{"type": "input_text", "text": "SECRET-TEXT"}]
    lines.append({"type": "event_msg", "payload": {"type": "token_count", "info": "SECRET-TEXT"}})
    calls, problems = read(SOURCE, write_lines(tmp_path / "secret.jsonl", lines))
    assert "SECRET" not in repr(calls) + repr(problems.items())


def test_usual_places_honour_the_override(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert list(SOURCE.usual_places({}, home)) == [
        home / ".codex" / "sessions",
        home / ".codex" / "archived_sessions",
    ]
    assert list(SOURCE.usual_places({"CODEX_HOME": "/x,/y"}, home)) == [
        Path("/x/sessions"),
        Path("/x/archived_sessions"),
        Path("/y/sessions"),
        Path("/y/archived_sessions"),
    ]

"""The ledger of whole tasks: by hand, in every split, and against an audit of the same records."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.errors import UnknownFormatError, UsageError
from cacheaudit.jobs.audit import audit
from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.jobs.tasking.times import call_times, spread
from cacheaudit.jobs.tasks import tasks
from cacheaudit.model.call import PURPOSES, Call
from cacheaudit.report.result import Totals
from cacheaudit.report.tasks import TaskRow, TasksResult
from tests.unit.jobs.test_compare import START, call, write
from tests.unit.jobs.transcripts import line


def run(*paths: Path, **more: Any) -> TasksResult:
    return tasks(Inputs(paths=paths, environment={}, home=Path("/nowhere"), **more), silent)


def money(totals: Totals) -> Decimal:
    return Decimal(totals.cost.computed or 0)


def task(result: TasksResult, name: str | None) -> TaskRow:
    return next(row for row in result.tasks if row.task == name)


def example(folder: Path) -> Path:
    """One accepted task with everything, one that was rejected, and a call of neither."""
    named = {"session": "s", "task": "fix"}
    lines = [
        call(1, START, 0, 10_000, **named, first_token_at=START + 2),
        call(2, START + 20, 10_000, 1_000, **named, first_token_at=START + 24, tool_seconds=8.0),
        call(3, START + 40, 0, 4_000, **named, lane="explorer", purpose="subagent"),
        call(4, START + 50, 4_000, 500, **named, lane="explorer/reader", purpose="subagent"),
        call(5, START + 60, 11_000, 0, **named, purpose="compaction"),
        call(6, START + 70, 11_000, 0, **named, purpose="keep_alive"),
        call(7, START + 80, 11_000, 0, **named, purpose="retry", attempt=1),
        call(8, START + 90, 11_000, 0, **named, outcome="accepted", tool_seconds=2.0),
        call(9, START + 500, 0, 2_000, session="u", task="try", outcome="rejected"),
        call(10, START + 900, 0, 1_000, session="v"),
    ]
    return write(folder, "example", lines)


# Sonnet 4.6: read 0.3, written 3.75, put out 15 a million; each call puts 100 out.
def price(calls: int, read: int, written: int) -> Decimal:
    micro = read * Decimal("0.3") + written * Decimal("3.75") + calls * 100 * 15
    return micro / 1_000_000


def test_a_task_is_everything_that_was_spent_on_it(tmp_path: Path) -> None:
    result = run(example(tmp_path))
    mine = task(result, "fix")
    assert (mine.calls, mine.retries, mine.failed, mine.without_usage) == (8, 1, 0, 0)
    assert mine.outcome == "accepted"
    assert money(mine.totals) == price(8, 58_000, 15_500)
    assert mine.seconds == 100
    purposes = {group.key: money(group.totals) for group in mine.by_purpose}
    assert purposes == {
        "main": price(3, 21_000, 11_000),
        "subagent": price(2, 4_000, 4_500),
        "compaction": price(1, 11_000, 0),
        "keep_alive": price(1, 11_000, 0),
        "retry": price(1, 11_000, 0),
    }
    assert [row.task for row in result.tasks] == ["fix", "try", None]
    assert task(result, None).seconds is None


def test_lanes_hold_those_that_they_opened(tmp_path: Path) -> None:
    lanes = {row.lane: row for row in task(run(example(tmp_path)), "fix").lanes}
    assert {name: row.depth for name, row in lanes.items()} == {
        "main": 0,
        "explorer": 0,
        "explorer/reader": 1,
    }
    outer = lanes["explorer"]
    assert money(outer.totals) == price(1, 0, 4_000)
    assert money(outer.whole) == price(2, 4_000, 4_500)
    assert lanes["explorer/reader"].whole == lanes["explorer/reader"].totals
    assert lanes["main"].purposes == {"compaction": 1, "keep_alive": 1, "main": 3, "retry": 1}


def test_the_cost_of_an_accepted_task_holds_the_failures(tmp_path: Path) -> None:
    found = run(example(tmp_path)).completions
    assert (found.accepted, found.rejected, found.undecided) == (1, 1, 0)
    whole = price(9, 58_000, 17_500)
    assert Decimal(found.cost or 0) == whole
    assert Decimal(found.per_accepted or 0) == whole
    assert Decimal(found.undecided_cost or 0) == price(1, 0, 1_000)
    lines = [call(n, START + n, 0, 1_000, task=f"t{n}", session=f"s{n}") for n in range(4)]
    for number, outcome in ((0, "accepted"), (1, "accepted"), (2, "rejected")):
        lines[number]["outcome"] = outcome
    found = run(write(tmp_path, "b", lines)).completions
    assert Decimal(found.per_accepted or 0) == price(3, 0, 3_000) / 2
    assert found.undecided == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"outcome": None}, "no task has an outcome"),
        ({"outcome": "rejected"}, "no task was accepted"),
        ({"outcome": "accepted", "model": "a-model-without-a-price"}, "no price or no usage"),
    ],
    ids=["none", "rejected", "unpriced"],
)
def test_why_there_is_no_cost_of_a_completion(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    found = run(write(tmp_path, "a", [call(1, START, 0, 1, task="t") | change])).completions
    assert found.per_accepted is None
    assert found.reason is not None
    assert reason in found.reason


def test_where_the_time_went(tmp_path: Path) -> None:
    result = run(example(tmp_path))
    times = task(result, "fix").times
    assert (times.first_response.calls, times.first_response.total) == (2, 6)
    assert (times.first_response.p50, times.first_response.p95) == (3, 3.9)
    assert (times.generation.total, times.generation.p50) == (8 + 6, 7)
    assert (times.whole.calls, times.whole.total) == (8, 80)
    assert (times.tool.calls, times.tool.total) == (2, 10)
    assert result.times.whole.calls == 10
    # Tasks of 100 and of 10 seconds.
    assert (result.task_seconds.p50, result.task_seconds.p95) == (55, 95.5)


def test_what_is_not_recorded_or_wrong_is_unknown() -> None:
    found = call_times(Call(id="a", started_at=10, first_token_at=9, ended_at=12, tool_seconds=-1))
    assert (found.first_response, found.generation, found.whole, found.tool) == (None, 3, 2, None)
    assert spread([]).total is None
    assert spread([]).p95 is None


def test_a_session_of_one_task_is_all_that_tasks(tmp_path: Path) -> None:
    lines = [
        call(1, START, 0, 1_000, session="s", task="t"),
        call(2, START + 9, 0, 1_000, session="s", lane="a", purpose="subagent"),
        call(3, START, 0, 1_000, session="two", task="t"),
        call(4, START, 0, 1_000, session="two", task="u"),
        call(5, START, 0, 1_000, session="two"),
    ]
    result = run(write(tmp_path, "a", lines))
    assert {row.task: row.calls for row in result.tasks} == {"t": 3, "u": 1, None: 1}
    assert task(result, "t").sessions == ["s", "two"]


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from(["s1", "s2"]),
        st.sampled_from(["main", "x", "x/y", "xy"]),
        st.sampled_from(PURPOSES),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
        st.sampled_from(["claude-sonnet-4-6", "claude-haiku-5-5", "no-such-model"]),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=40)
@given(drawn=CALLS)
def test_every_split_adds_up_to_the_audit_of_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Any]
) -> None:
    lines = [
        call(n, START + n, read, wrote, session=s, lane=lane, purpose=why, model=model)
        | ({} if name is None else {"task": name})
        for n, (name, s, lane, why, read, wrote, model) in enumerate(drawn)
    ]
    path = write(tmp_path_factory.mktemp("t"), "a", lines)
    result = run(path)
    whole = audit(Inputs(paths=(path,), environment={}, home=Path("/x"), quick=True), silent).totals
    assert result.totals == whole
    splits = [
        [row.totals for row in result.tasks],
        [group.totals for group in result.by_purpose],
        [group.totals for row in result.tasks for group in row.by_purpose],
        [lane.totals for row in result.tasks for lane in row.lanes],
        [lane.whole for row in result.tasks for lane in row.lanes if not lane.depth],
    ]
    for split in splits:
        assert sum(map(money, split)) == money(whole)
        assert sum(part.total_input or 0 for part in split) == whole.total_input
        assert sum(part.cost.unpriced_calls for part in split) == whole.cost.unpriced_calls


def test_recorded_sessions_reconcile_with_their_audit(shared: Path) -> None:
    inputs = Inputs(
        paths=(shared / "data" / "sessions",), environment={}, home=Path("/x"), quick=True
    )
    mine, theirs = tasks(inputs, silent), audit(inputs, silent)
    assert mine.totals == theirs.totals
    assert money(mine.totals) > 100
    assert {g.key: g.totals.cost for g in mine.by_purpose} == {
        g.key: g.totals.cost for g in theirs.by_purpose
    }
    assert (mine.scope.calls, mine.scope.sessions) == (theirs.scope.calls, theirs.scope.sessions)


def test_later_copies_of_a_call_correct_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line("m1", 3) + "\n")
    (tmp_path / "b.jsonl").write_text(line("m1", 300) + "\n" + line("m2", 5, second=1) + "\n")
    inputs = Inputs(paths=(tmp_path,), environment={}, home=Path("/x"), quick=True)
    result = tasks(inputs, silent)
    assert result.totals == audit(inputs, silent).totals
    assert result.totals.output == 305


def test_a_period_and_a_store(tmp_path: Path) -> None:
    from cacheaudit.ingest.corpus import Corpus
    from cacheaudit.ingest.problems import Problems
    from cacheaudit.store import open_store

    path = example(tmp_path)
    early = run(path, until=START + 100)
    assert [row.task for row in early.tasks] == ["fix"]
    url = str(tmp_path / "u.db")
    with open_store(url) as store:
        for session in Corpus([path], Problems(), silent).sessions():
            store.write(session.calls, source="native")
    stored = run(db=url)
    assert stored.totals == run(path).totals
    assert stored.completions == run(path).completions


def test_unusable_input(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run(tmp_path / "nowhere")
    (tmp_path / "note.txt").write_text("hello")
    with pytest.raises(UnknownFormatError):
        run(tmp_path / "note.txt")


def test_the_result_is_json(tmp_path: Path) -> None:
    import msgspec

    document = json.loads(msgspec.json.encode(run(example(tmp_path))))
    assert document["schema"] == "cacheaudit.tasks/1"
    assert document["tasks"][0]["by_purpose"][0]["key"] == "main"


def test_what_a_program_records_is_charged_to_its_task(tmp_path: Path) -> None:
    """Session, lanes inside lanes, purposes and a retry, from the recorder to the ledger."""
    from cacheaudit import CacheAudit
    from tests.unit.agent.servers import Reply, Script, client, message

    body: dict[str, Any] = {
        "model": "claude-sonnet-4-6",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "go"}],
    }
    busy = Reply({"type": "error", "error": {"type": "overloaded_error"}}, 529)
    url = str(tmp_path / "u.db")
    with CacheAudit(url, "observe") as recorder:
        script = Script(Reply(message(1)), busy)
        bare = client(script, max_retries=1)
        wrapped = recorder.wrap(bare)
        with recorder.session("s", task="fix") as session:
            wrapped.messages.create(**body)
            wrapped.messages.create(**body)  # refused once
            with recorder.session("explorer"):
                wrapped.messages.create(**body)
                with recorder.session("reader"):
                    wrapped.messages.create(**body)
            for purpose in ("compaction", "keep_alive", "warm_up", "probe"):
                with recorder.purpose(purpose):
                    wrapped.messages.create(**body)
            assert recorder.flush()
            assert session.outcome("accepted")
    result = run(db=url)
    mine = task(result, "fix")
    counts = {group.key: group.totals.calls for group in mine.by_purpose}
    assert counts == {
        "main": 1,
        "retry": 1,
        "subagent": 2,
        "compaction": 1,
        "keep_alive": 1,
        "warm_up": 1,
        "probe": 1,
    }
    # What the server refused was not billed.
    assert (mine.calls, mine.failed, mine.retries, mine.without_usage) == (9, 1, 1, 0)
    depths = {row.lane: row.depth for row in mine.lanes}
    assert depths == {"main": 0, "explorer": 0, "explorer/reader": 1}
    # Each read 2,000, wrote 300, sent 40 and put 12 out, at 0.3, 3.75, 3 and 15 a million.
    each = 2_000 * Decimal("0.3") + 300 * Decimal("3.75") + 40 * 3 + 12 * 15
    assert Decimal(result.completions.per_accepted or 0) == 8 * each / 1_000_000


def test_a_call_that_broke_off_may_have_been_billed(tmp_path: Path) -> None:
    broken = {"task": "t", "error": {"type": "connection"}, "response": {}}
    lines = [call(1, START, 0, 10, task="t", outcome="accepted"), call(2, START, 0, 0) | broken]
    result = run(write(tmp_path, "a", lines))
    assert task(result, "t").without_usage == 1
    assert result.completions.per_accepted is None
    lines[1] |= {"error": {"type": "overloaded_error", "status": 529}}
    result = run(write(tmp_path, "b", lines))
    assert task(result, "t").without_usage == 0
    assert result.completions.per_accepted is not None

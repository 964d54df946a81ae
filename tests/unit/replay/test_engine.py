"""Sessions on the real engine: every figure of the published exercises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.jobs.replay import ReplayOptions, replay
from cacheaudit.jobs.replaying.body import Writer
from cacheaudit.jobs.replaying.client import Client
from cacheaudit.jobs.replaying.plan import Step, steps
from cacheaudit.report.replay import ReplayResult
from cacheaudit.simulate.edit import parse_edit
from cacheaudit.simulate.switches import Switches
from tests.unit.replay.builders import SESSIONS, calls_of
from tests.unit.replay.conftest import Replay
from tests.unit.replay.ticking import Ticking

EXERCISE = SESSIONS / "exercise-14.session.jsonl"
FIXES = ("late-tools", "keep-alive", "auto-tool-choice", "mark-previous:over=20", "fan-out")
# Written and read, row by row.
TABLE = [
    (8_500, 0), (1_500, 8_500), (1_500, 10_000), (21_300, 11_500), (34_650, 0), (1_500, 34_650),
    (37_650, 0), (1_500, 37_650), (33_300, 7_350), (3_000, 39_150), (44_520, 7_350),
    (30_500, 51_870), (30_500, 51_870), (30_500, 51_870),
]  # fmt: skip
REVISED: dict[str, dict[int, tuple[int, int]]] = {
    "late-tools": {5: (1_850, 32_800), 9: (33_650, 7_000), 11: (44_870, 7_000)},
    "keep-alive": {7: (1_500, 36_150)},
    "auto-tool-choice": {9: (1_500, 39_150), 10: (1_500, 40_650)},
    "mark-previous:over=20": {11: (9_720, 42_150)},
    "fan-out": {13: (200, 82_170), 14: (200, 82_170)},
}
ALL_FIXED = [
    (8_500, 0), (1_500, 8_500), (1_500, 10_000), (21_300, 11_500), (1_850, 32_800),
    (1_500, 34_650), (0, 36_150), (1_500, 36_150), (1_500, 37_650), (1_500, 39_150),
    (1_500, 40_650), (9_720, 42_150), (30_500, 51_870), (200, 82_170), (200, 82_170),
]  # fmt: skip


def written_read(result: ReplayResult) -> list[tuple[int | None, int | None]]:
    assert all(call.replayed is not None for call in result.calls), result.calls
    sides = [call.replayed for call in result.calls if call.replayed is not None]
    return [(side.cache_write, side.cache_read) for side in sides]


def recorded_rows(result: ReplayResult) -> list[tuple[int | None, int | None]]:
    """Leave out what an edit added."""
    rows = written_read(result)
    return [r for r, call in zip(rows, result.calls, strict=True) if call.reported is not None]


def test_the_fourteen_rows(replayed: Replay) -> None:
    result = replayed(EXERCISE)
    assert written_read(result) == TABLE
    assert [call.why for call in result.calls] == [[]] * 14
    totals = result.totals
    assert (totals.equal_calls, totals.reproduced_calls, totals.failed_calls) == (14, 14, 0)
    assert (totals.replayed.cache_read, totals.replayed.cache_write) == (311_760, 280_420)
    assert totals.replayed.uncached_input == 0
    assert {call.basis for call in result.calls} == {"request"}
    assert (result.backend.rules, result.backend.content) == ({"anthropic": 14}, "filler")


def test_the_server_counts_every_content_block_as_recorded(engine: str) -> None:
    """At full size, without computing anything."""
    writer = Writer()
    with closing(Client(engine, Ticking())) as client:
        for step in steps(calls_of(EXERCISE), Switches()):
            assert isinstance(step, Step)
            body = writer.write(step.prompt, step.blocks, step.sizes, step.model)
            counted = client.count(body.json, {})
            assert counted == list(step.sizes)
            assert sum(counted) == step.sums[-1]


@pytest.mark.parametrize("fix", FIXES)
def test_each_fix_alone(replayed: Replay, fix: str) -> None:
    result = replayed(EXERCISE, edits=(parse_edit(fix),))
    wanted = [REVISED[fix].get(row, figures) for row, figures in enumerate(TABLE, 1)]
    assert recorded_rows(result) == wanted
    assert result.totals.equal_calls == len(result.calls)


def test_all_fixes_together(replayed: Replay) -> None:
    result = replayed(EXERCISE, edits=tuple(map(parse_edit, FIXES)))
    assert written_read(result) == ALL_FIXED
    assert result.edits == [
        "late-tools",
        "keep-alive",
        "auto-tool-choice",
        "mark-previous",
        "fan-out",
    ]


def test_the_four_requests_of_the_probe(replayed: Replay) -> None:
    result = replayed(SESSIONS / "probe.session.jsonl")
    assert written_read(result) == [(6_000, 0), (0, 6_000), (0, 6_000), (6_000, 0)]
    assert result.totals.reproduced_calls == 4
    assert result.totals.replayed.uncached_input == 160


def test_the_four_ways_of_a_fan_out(replayed: Replay) -> None:
    """The common end marked or not, the others waiting or not: only both together help."""
    result = replayed(SESSIONS / "fan-out.session.jsonl")
    rows = dict(zip((c.id for c in result.calls), written_read(result), strict=True))

    def cell(family: str) -> Sequence[tuple[int | None, int | None]]:
        return [rows[f"msg_{family}_{n}"] for n in (1, 2, 3)]

    writes_all, reads_common = (30_500, 51_870), (200, 82_170)
    assert cell("plain") == cell("marked") == cell("waiting") == [writes_all] * 3
    assert cell("both") == [writes_all, reads_common, reads_common]


def test_usage_alone_is_drawn_and_reproduced(replayed: Replay) -> None:
    result = replayed(SESSIONS / "exercise-14.csv")
    assert written_read(result) == TABLE
    assert {call.basis for call in result.calls} == {"usage"}
    # From sizes alone row 5 is predicted to read; what differs says that it was drawn.
    (row,) = [call for call in result.calls if call.id == "exercise-14#6"]
    assert [reason.kind for reason in row.why] == ["sketched"]


def test_a_recorded_trace_of_block_hashes(replayed: Replay, shared: Path) -> None:
    trace = shared / "data" / "traces" / "agentic" / "trace_0462.json"
    result = replayed(trace)
    assert result.totals.calls == result.totals.equal_calls == 31
    assert all(call.reported is not None for call in result.calls)
    assert result.totals.reported_calls == 0
    # The second request shares nothing with the first; the others go on from the second.
    first, second, *others = written_read(result)
    assert (first, second) == ((9_691, 0), (10_024, 0))
    sizes = [sum(figures or 0 for figures in row) for row in (second, *others)]
    assert [row[1] for row in others] == sizes[:-1]


def test_without_time_nothing_expires(replayed: Replay) -> None:
    result = replayed(EXERCISE, clock="fast")
    wanted = [(1_500, 36_150) if row == 7 else figures for row, figures in enumerate(TABLE, 1)]
    assert written_read(result) == wanted
    (row,) = [call for call in result.calls if call.why]
    assert [reason.kind for reason in row.why] == ["clock"]


def test_a_cache_too_small_is_told_apart_from_a_broken_prefix(tmp_path: Path) -> None:
    """A second text pushes the first one out; by the rules it would be read again."""
    pytest.importorskip("torch")
    lines = (SESSIONS / "probe.session.jsonl").read_text().splitlines()
    records = [json.loads(lines[place]) for place in (0, 3, 1)]
    for number, record in enumerate(records):
        record |= {"id": f"c{number}", "started_at": 100 + number, "first_token_at": 100.5 + number}
        record |= {"ended_at": 100.75 + number}
    session = tmp_path / "three.session.jsonl"
    session.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    inputs = Inputs(paths=(session,), environment={}, home=tmp_path)
    result = replay(
        inputs, silent, ReplayOptions(scale=10, pages=900), tick=Ticking(), name="small"
    )
    first, second, (written, read) = written_read(result)
    assert first == second == (6_000, 0)
    # The end of the first text went first, and its beginning is still there.
    assert written is not None
    assert read is not None
    assert 0 < read < 6_000 == read + written
    last = result.calls[2]
    assert last.predicted is not None
    assert last.predicted.cache_read == 6_000
    assert [reason.kind for reason in last.why] == ["evicted"]

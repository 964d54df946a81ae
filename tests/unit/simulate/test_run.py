"""Whole sessions: predicted against reported, and what a result says of itself."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from cacheaudit.ingest.detect import detect, head_of
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage, UsagePart
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers.facts import RULES_VERSION
from cacheaudit.simulate.request import Outcome
from cacheaudit.simulate.run import accuracy, run, usage_of
from cacheaudit.simulate.sizes import Known
from cacheaudit.simulate.switches import Switches
from tests.unit.simulate.builders import body, call


def read(path: Path) -> list[Call]:
    source = detect(head_of(path))
    assert source is not None
    return list(source.read(path, Problems()))


READS = (
    0,
    8_500,
    10_000,
    11_500,
    0,
    34_650,
    0,
    37_650,
    7_350,
    39_150,
    7_350,
    51_870,
    51_870,
    51_870,
)
WRITES = (
    8_500, 1_500, 1_500, 21_300, 34_650, 1_500, 37_650, 1_500, 33_300, 3_000, 44_520,
    30_500, 30_500, 30_500,
)  # fmt: skip


def test_the_exercise_with_bodies(root: Path) -> None:
    found = run(read(root / "fixtures/sessions/exercise-14.session.jsonl"), PriceBook())
    outcomes = [row.predicted for row in found.calls]
    assert all(outcome is not None for outcome in outcomes)
    assert tuple(o.read for o in outcomes if o) == READS
    assert tuple(o.written for o in outcomes if o) == WRITES
    assert (found.accuracy.calls, found.accuracy.exact_calls, found.accuracy.exact_writes) == (
        14,
        14,
        14,
    )
    assert found.totals.input_equivalents == Decimal(381_701)
    assert (found.totals.cache_read, found.totals.cache_write) == (311_760, {"5m": 280_420})
    assert found.totals.hit_ratio == Decimal("0.5265")
    assert found.totals == found.reported


def test_the_exercise_from_usage_and_what_is_known(root: Path) -> None:
    folder = root / "fixtures/sessions"
    known = msgspec.json.decode(
        (folder / "exercise-14.known.json").read_bytes(), type=dict[str, Known]
    )
    found = run(read(folder / "exercise-14.csv"), known=known)
    outcomes = [row.predicted for row in found.calls]
    assert tuple(o.read for o in outcomes if o) == READS
    assert tuple(o.written for o in outcomes if o) == WRITES


def test_the_exercise_from_usage_alone_is_wrong_where_causes_are_hidden(root: Path) -> None:
    """Rows 5, 9, 10 and 11: the tool, the forced choice and its return, the 25 positions."""
    found = run(read(root / "fixtures/sessions/exercise-14.csv"))
    off = [n for n, row in enumerate(found.calls, start=1) if row.error_tokens]
    assert off == [5, 9, 10, 11]
    assert found.calls[0].refused == "first_of_lane"
    assert found.accuracy.exact_calls == 9


def test_the_exercise_file_is_what_its_script_writes(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "made.jsonl"
    script = root / "fixtures/make/make_exercise.py"
    subprocess.run([sys.executable, str(script), str(target)], check=True)
    assert (
        target.read_bytes() == (root / "fixtures/sessions/exercise-14.session.jsonl").read_bytes()
    )


def test_the_counting_rule_of_runs_does_not_matter_to_the_exercise(root: Path) -> None:
    calls = read(root / "fixtures/sessions/exercise-14.session.jsonl")
    each = run(calls, switches=Switches(lookback_runs="each"))
    assert each.accuracy.exact_calls == 14
    assert each.switches == {"lookback_runs": "each"}


def test_switches_change_what_is_predicted(root: Path) -> None:
    calls = read(root / "fixtures/sessions/exercise-14.session.jsonl")
    wrong = run(calls, switches=Switches(tool_choice="nothing"))
    assert [row.id for row in wrong.calls if not row.exact] == [
        "msg_exercise_09",
        "msg_exercise_10",
    ]
    far = run(calls, switches=Switches(lookback_positions="26"))
    assert [row.id for row in far.calls if not row.exact] == ["msg_exercise_11"]


def test_the_bundled_session_is_exact(root: Path) -> None:
    found = run(read(root / "fixtures/sessions/demo.session.jsonl"))
    assert (found.accuracy.calls, found.accuracy.exact_writes) == (49, 49)
    assert found.accuracy.mean_abs_error_tokens == 0
    assert found.accuracy.refused == {}


def test_a_result_says_what_it_rests_on() -> None:
    found = run([call("1", body("q"), at=0, sizes=[2_000, 1_000])])
    assert found.rules_version == RULES_VERSION
    assert found.switches == {}
    assert found.assumed == ("claude-opus-5: drops.beta_headers",)
    assert found.by_id()["1"].mode == "bodies"


def test_errors_are_counted_by_their_direction() -> None:
    def told(identity: str, at: float, reads: int) -> Call:
        usage = Usage(total_input=3_000, uncached_input=3_000 - reads, cache_read=reads, write_5m=0)
        return call(identity, body("q"), at=at, sizes=[2_000, 1_000], usage=usage)

    found = run([told("1", 0, 500), told("2", 60, 2_000), told("3", 120, 3_000)])
    assert [row.error_tokens for row in found.calls] == [-500, 1_000, 0]
    assert found.accuracy.exact_calls == 1
    assert found.accuracy.mean_abs_error_tokens == 500.0
    assert (found.accuracy.unexplained_tokens, found.accuracy.surplus_tokens) == (1_000, 500)
    assert accuracy([]).mean_abs_error_tokens is None


def test_a_request_that_would_be_refused_is_not_compared() -> None:
    made = body("a", "b", "c", "d", "e", system="")
    for message in made["messages"]:
        message["content"][0]["cache_control"] = {"type": "ephemeral"}
    usage = Usage(total_input=9, uncached_input=9, cache_read=0)
    row = run([call("1", made, at=0, usage=usage)]).calls[0]
    assert row.error_tokens is None
    assert not row.exact


def test_a_sum_over_several_passes_is_not_compared() -> None:
    part = UsagePart(kind="message", uncached_input=9, cache_read=0)
    usage = Usage(total_input=9, uncached_input=9, cache_read=0, parts=(part,))
    row = run([call("1", body("q"), at=0, usage=usage)]).calls[0]
    assert row.predicted is not None
    assert row.error_tokens is None


def test_a_prediction_as_usage() -> None:
    outcome = Outcome(read=100, writes={"1h": 20, "5m": 3}, uncached=4)
    usage = usage_of(outcome, Usage(total_input=1, output=77, speed="fast", write_other=9))
    assert usage == Usage(
        total_input=127,
        uncached_input=4,
        cache_read=100,
        write_5m=3,
        write_1h=20,
        write_30m=0,
        write_12h=0,
        write_other=0,
        output=77,
        speed="fast",
    )


def test_totals_are_unknown_where_no_price_is() -> None:
    one = call("1", body("q", model="claude-opus-99"), at=0, sizes=[2_000, 1_000])
    found = run([one], PriceBook())
    assert found.totals.cost is None
    assert found.totals.total_input == 3_000


@pytest.mark.shared
def test_real_sessions(shared: Path) -> None:
    """Usage alone: at least nine of ten predicted reads are exact, over all recorded sessions."""
    exact = told = 0
    for path in sorted((shared / "data" / "sessions").glob("*/*.jsonl")):
        found = run(read(path)).accuracy
        exact, told = exact + found.exact_calls, told + found.calls
        print(f"{path.parent.name}/{path.name}: {json.dumps(msgspec.to_builtins(found))}")
    assert told >= 1_600
    assert exact / told >= 0.9


@pytest.mark.shared
def test_every_expiry_of_the_recorded_sessions_is_predicted(shared: Path) -> None:
    """Session b: eleven rewrites after a pause read nothing, and none of them is expected to."""
    calls = read(shared / "data" / "sessions" / "claude_code" / "b.jsonl")
    rows = run(calls).by_id()
    lost = [
        rows[one.id]
        for one in calls
        if one.usage is not None
        and one.usage.cache_read == 0
        and (one.usage.cache_write or 0) > 40_000
    ]
    predicted = [row for row in lost if row.predicted is not None]
    assert len(predicted) >= 10
    assert all(row.exact for row in predicted)

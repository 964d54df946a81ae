"""The reason of each difference."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cacheaudit.jobs.replaying.client import Failure
from cacheaudit.jobs.replaying.measure import Measured
from cacheaudit.jobs.replaying.plan import Step, steps
from cacheaudit.jobs.replaying.why import Compared, Setting, why
from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage
from cacheaudit.report.simulation import Parts
from cacheaudit.simulate.request import Outcome
from cacheaudit.simulate.run import SimCall
from cacheaudit.simulate.switches import Switches
from tests.unit.replay.builders import MARK, prompt_of, text, user

PLAIN = Setting(clock="recorded", scale=1, switches={}, is_edited=False)


def step(**more: Any) -> Step:
    prompt = prompt_of({"messages": [user(text("a" * 4_000, cache_control=MARK))]})
    usage = Usage(total_input=1_000, uncached_input=0, cache_read=0, write_5m=1_000)
    call = Call(
        id="c", provider="anthropic", model="claude-opus-5", started_at=5.0, usage=usage,
        prompt=prompt,
    )  # fmt: skip
    (found,) = steps([call], Switches())
    assert isinstance(found, Step)
    return msgspec.structs.replace(found, **more)


def engine(read: int, write: int, **more: Any) -> Measured:
    parts = Parts(cache_read=read, cache_write=write, uncached_input=0)
    fields: dict[str, Any] = {"is_whole": True, "first_token_s": 0.1, **more}
    return Measured(parts=parts, sent=parts, **fields)


def rules(read: int, write: int, *notes: str) -> Outcome:
    return Outcome(read=read, writes={"5m": write}, uncached=0, notes=notes)


def row(predicted: Outcome | None, read: int | None = None, write: int = 0, **more: Any) -> SimCall:
    usage = None if read is None else Usage(cache_read=read, write_5m=write, total_input=9)
    error = None if predicted is None or read is None else predicted.read - read
    return SimCall(id="c", predicted=predicted, reported=usage, error_tokens=error, **more)


def kinds(
    simulated: SimCall, found: Measured | Failure, setting: Setting = PLAIN, **more: Any
) -> list[str]:
    fields: dict[str, Any] = {"step": step(), "rules": "anthropic", **more}
    compared = Compared(row=simulated, found=found, **fields)
    reasons = why(compared, setting)
    assert all(reason.text for reason in reasons)
    return [reason.kind for reason in reasons]


def test_nothing_to_explain() -> None:
    assert kinds(row(rules(5, 10), 5, 10), engine(5, 10)) == []


def test_a_failure_says_what_the_server_said() -> None:
    compared = Compared(
        step=step(), row=row(rules(5, 10), 5, 10), found=Failure("bad", 400, "no"), rules=None
    )
    (reason,) = why(compared, PLAIN)
    assert reason.kind == "failed"
    assert reason.text == "the request failed with bad (HTTP 400): no"


def test_what_rules_and_server_refuse_is_no_failure() -> None:
    refused = Outcome(read=0, writes={}, uncached=9, refused="five markers")
    assert kinds(row(refused), Failure("invalid_request_error", 400, "no")) == ["refused"]
    assert kinds(row(refused), Failure("api_error", 500)) == ["failed"]


@pytest.mark.parametrize(
    ("found", "more", "setting", "wanted"),
    [
        (engine(0, 15, evicted=5), {}, {}, ["evicted"]),
        (engine(4, 11, is_whole=False), {}, {}, ["granularity"]),
        (engine(0, 15), {"after": "b", "is_failed": True}, {}, ["after_failure"]),
        (engine(0, 15), {"after": "b"}, {}, ["after_difference"]),
        (engine(0, 15), {"rules": "implicit"}, {}, ["other_rules"]),
        (engine(0, 15, miss="below_minimum"), {}, {"scale": 10}, ["below_minimum"]),
        (engine(0, 15), {}, {"switches": {"speed": "tools"}}, ["switch"]),
        (engine(0, 15), {"unsent": ("context_management",)}, {}, ["setting_not_sent"]),
        (engine(0, 15, miss="expired"), {}, {}, ["engine_rules"]),
        (engine(0, 15, miss="nothing_stored"), {}, {}, ["engine_rules"]),
        (engine(0, 15), {}, {}, ["unexplained"]),
        (engine(9, 6), {}, {}, ["unexplained"]),
        (engine(0, 15), {"step": step(is_sketch=True)}, {}, ["sketched"]),
        (engine(0, 15, evicted=5), {"rules": "deepseek"}, {}, ["evicted", "other_rules"]),
    ],
    ids=[
        "evicted", "pages", "failed", "after", "rules", "minimum", "switch", "unsent", "expired",
        "stored", "less", "more", "drawn", "two",
    ],
)  # fmt: skip
def test_engine_against_rules(
    found: Measured, more: dict[str, Any], setting: dict[str, Any], wanted: list[str]
) -> None:
    chosen = msgspec.structs.replace(PLAIN, **setting)
    assert kinds(row(rules(5, 10)), found, chosen, **more) == wanted


def test_json_that_carries_a_prefix_over_the_minimum() -> None:
    found = row(rules(0, 15, "below_minimum"))
    assert kinds(found, engine(5, 10), is_floored=True) == ["above_minimum"]
    assert kinds(found, engine(5, 10)) == ["unexplained"]


def test_a_read_that_succeeded_owes_nothing_to_an_earlier_difference() -> None:
    assert kinds(row(rules(5, 10)), engine(5, 9), after="b") == ["unexplained"]


def test_an_engine_without_marker_rules_reads_what_it_holds() -> None:
    local = step(rules="implicit")
    assert kinds(row(rules(5, 10)), engine(7, 8), step=local, rules="implicit") == ["other_rules"]


@pytest.mark.parametrize("note", ["expired", "not_yet_readable"])
def test_a_clock_that_stood_still(note: str) -> None:
    fast = msgspec.structs.replace(PLAIN, clock="fast")
    assert kinds(row(rules(0, 15, note)), engine(5, 10), fast) == ["clock"]


def test_no_prediction_has_its_reason() -> None:
    found = row(None, refused="no_start_time", detail="the start is not known")
    assert kinds(found, engine(5, 10)) == ["not_predicted"]


def test_the_provider_did_something_else() -> None:
    assert kinds(row(rules(5, 10), 0, 15), engine(5, 10)) == ["provider"]
    assert kinds(row(rules(5, 10), 0, 15), engine(5, 10), by_switch="images=nothing") == [
        "rule_version"
    ]


def test_estimated_sizes_are_said() -> None:
    estimated = step(sized="estimated")
    assert kinds(row(rules(5, 10), 4, 11), engine(5, 10), step=estimated) == [
        "size_unrecorded",
        "provider",
    ]


def test_a_fix_is_not_compared_with_what_was_billed() -> None:
    edited = msgspec.structs.replace(PLAIN, is_edited=True)
    assert kinds(row(rules(5, 10), 0, 15), engine(5, 10), edited) == []


def test_writes_that_the_record_does_not_tell_are_not_compared() -> None:
    usage = Usage(cache_read=5, total_input=9)
    found = SimCall(id="c", predicted=rules(5, 10), reported=usage, error_tokens=0)
    assert kinds(found, engine(5, 10)) == []

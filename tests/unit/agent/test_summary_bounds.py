"""The report of a session on calls of which some do not tell what they wrote."""

from __future__ import annotations

from cacheaudit.agent.recorder import RecorderState
from cacheaudit.agent.summary import summary
from cacheaudit.diagnose.examples import Script


def said(*writes: int | None) -> str:
    script = Script(ttl="5m")
    for number, write in enumerate(writes):
        script.call(30.0 * number, 0, write, uncached=1_000 - (write or 0))
    state = RecorderState(
        written=0, waiting=0, dropped_calls=0, dropped_bodies=0, lost=0, faults={}
    )
    return summary("s", [script.session()], state)


def test_a_part_that_some_calls_do_not_tell_is_a_lower_bound() -> None:
    assert ", at least 25.0 % written" in said(500, None)


def test_a_part_that_no_call_tells_is_unknown() -> None:
    assert ", an unknown part written" in said(None, None)


def test_a_part_that_all_calls_tell_is_exact() -> None:
    assert ", 50.0 % written" in said(500, 500)

"""Calls beside a conversation: what follows them is measured against what it extends."""

from __future__ import annotations

import pytest

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.diagnose.scenes import Scene, request
from cacheaudit.model.call import Session
from tests.unit.diagnose.bodies import TALK, losses

SIDE = ["keep_alive", "warm_up", "probe"]


def around(purpose: str, side: tuple[str, ...]) -> Session:
    """A conversation with a request beside it, then its next turn."""
    scene = Scene().send(request(*TALK[:3]))
    scene.send(request(*side), purpose=purpose)
    return scene.send(request(*TALK[:5])).session()


@pytest.mark.parametrize("purpose", SIDE)
def test_a_side_call_that_says_more_is_not_what_the_next_turn_changes(purpose: str) -> None:
    session = around(purpose, (*TALK[:3], "are you there", "say yes"))
    ctx = Context(session)
    assert ctx.changes == {}
    assert losses(session) == []


@pytest.mark.parametrize("purpose", SIDE)
def test_a_lost_turn_behind_a_side_call_is_compared_with_the_turn_before(purpose: str) -> None:
    scene = Scene().send(request(*TALK[:3]))
    scene.send(request(*TALK[:3], "are you there", "say yes"), purpose=purpose)
    scene.send(request("other task", *TALK[1:5]))
    (event,) = Context(scene.session()).events
    assert (event.previous.id, event.call.id) == ("call-1", "call-3")
    assert event.change is not None
    assert event.change.path == "messages[0].content[0]"
    # Two tools of 1,500, the system prompt of 4,000, three turns of 2,500; the front was read.
    assert (event.expected, event.read, event.lost) == (14_500, 7_000, 7_500)


@pytest.mark.parametrize("purpose", SIDE)
def test_sizes_are_measured_against_the_turn_before(purpose: str) -> None:
    script = Script().call(0, 0, 30_000).call(60, 30_000, 4_000, purpose=purpose)
    assert diagnose(script.call(90, 30_000, 700).session()).tokens_lost == 0
    lost = Script().call(0, 0, 30_000).call(60, 30_000, 4_000, purpose=purpose)
    assert diagnose(lost.call(90, 8_000, 27_000).session()).tokens_lost == 22_000


@pytest.mark.parametrize("purpose", SIDE)
def test_the_clock_runs_from_the_side_call(purpose: str) -> None:
    script = Script().call(0, 0, 30_000).call(280, 30_000, 0, purpose=purpose)
    (event,) = Context(script.call(560, 0, 31_000).session()).events
    assert event.previous.id == "call-1"
    assert (event.timing.low, event.timing.state) == (280.0, "under")


def test_a_lane_of_probes_is_compared_probe_by_probe() -> None:
    script = Script().call(0, 0, 20_000, purpose="probe").call(10, 20_000, 0, purpose="probe")
    script.call(20, 20_000, 900, purpose="probe").call(30, 4_000, 17_000, purpose="probe")
    (event,) = Context(script.session()).events
    assert (event.previous.id, event.lost) == ("call-3", 16_900)

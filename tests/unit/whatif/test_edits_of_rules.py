"""Edits that stand for the fixes of single rules: exact figures."""

from __future__ import annotations

import msgspec
import pytest

from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import find_rule
from cacheaudit.diagnose.scenes import Scene, image, request
from cacheaudit.model.call import Call, Session
from cacheaudit.simulate.edit import EditRefused, parse_edit
from cacheaudit.simulate.run import run
from cacheaudit.simulate.sketch import sketched
from cacheaudit.simulate.switches import Switches

# Two tools of 1,500, a system prompt of 4,000; texts have 2,500, pictures 1,600 tokens.
FRONT, TEXT, PICTURE = 7_000, 2_500, 1_600


def reads(calls: object, **switches: str) -> list[int]:
    found = run(calls, switches=Switches.parse(switches)).calls  # type: ignore[arg-type]
    return [row.predicted.read for row in found if row.predicted is not None]


def bad(name: str) -> Session:
    rule = find_rule(name)
    assert rule is not None
    return rule.bad()


def edited(session: Session, text: str) -> list[Call]:
    return list(parse_edit(text).apply(session.calls))


def test_a_picture_shown_from_the_beginning() -> None:
    session = bad("image-presence-changed")
    assert reads(session, images="messages") == [0, FRONT]
    early = edited(session, "early-media")
    assert reads(early, images="messages") == [0, FRONT + PICTURE + 3 * TEXT]
    sizes = [call.prompt.tokens for call in early if call.prompt is not None]
    assert sizes == [FRONT + PICTURE + 3 * TEXT, FRONT + 2 * PICTURE + 5 * TEXT]


def test_a_conversation_that_always_showed_pictures_needs_none_early() -> None:
    scene = Scene().send(request([image(), "task"])).send(request([image(), "task"], "yes", "go"))
    with pytest.raises(EditRefused, match="no picture comes late"):
        edited(scene.session(), "early-media")


def test_one_set_of_features_for_all_requests() -> None:
    session = bad("beta-headers-changed")
    assert reads(session, beta_headers="tools") == [0, 0]
    same = edited(session, "steady-betas")
    assert reads(same, beta_headers="tools") == [0, FRONT + 3 * TEXT]
    assert {tuple(call.extra["betas"]) for call in same} == {("a-2026-01-01", "b-2026-02-02")}


def test_one_set_of_features_in_headers_as_they_are_recorded() -> None:
    session = bad("beta-headers-changed")
    calls = tuple(
        msgspec.structs.replace(call, extra={"anthropic-beta": ",".join(call.extra["betas"])})
        for call in session.calls
    )
    session = msgspec.structs.replace(session, calls=calls)
    assert reads(session, beta_headers="tools") == [0, 0]
    same = edited(session, "steady-betas")
    assert reads(same, beta_headers="tools") == [0, FRONT + 3 * TEXT]
    assert {call.extra["anthropic-beta"] for call in same} == {"a-2026-01-01,b-2026-02-02"}


def test_what_was_cleared_is_carried_on() -> None:
    session = bad("cleared-by-context-editing")
    (_, cleared) = run(session.calls).calls
    assert cleared.refused == "context_cleared"
    assert reads(edited(session, "no-clearing")) == [0, 60_000]


def test_the_turn_that_is_gone_back_to_is_marked() -> None:
    session = bad("conversation-rewound")
    assert reads(session) == [0, FRONT]
    assert reads(edited(session, "mark-common")) == [0, FRONT + 2 * TEXT]


@pytest.mark.parametrize(("seconds", "start"), [("2", 3.0), ("10", 11.0)])
def test_a_request_that_comes_too_soon_waits(seconds: str, start: float) -> None:
    script = Script(model="claude-opus-5").call(0, 0, 9_000, duration=1)
    calls = sketched(script.call(1.2, 0, 9_000, duration=1).call(60, 9_000, 500).session().calls)
    # The sketch has the first entry readable just after the second request began.
    assert reads(calls) == [0, 0, 9_000]
    moved = list(parse_edit(f"wait:seconds={seconds}").apply(calls))
    assert reads(moved) == [0, 9_000, 9_000]
    assert moved[1].started_at == pytest.approx(start + 0.201)
    with pytest.raises(EditRefused, match="waits long enough"):
        parse_edit("wait:seconds=0").apply(calls[:1])


def test_one_surface_for_a_conversation() -> None:
    calls = sketched(bad("service-changed").calls)
    assert reads(calls) == [0, 0, 31_000]
    one = list(parse_edit("one-route:surface=yes").apply(calls))
    assert {call.surface for call in one} == {"bedrock"}
    assert reads(one) == [0, 30_000, 31_000]
    with pytest.raises(EditRefused, match="one route only"):
        parse_edit("one-route").apply(calls)


def test_a_summary_can_be_sent_behind_what_it_stands_for() -> None:
    session = bad("history-summarised")
    assert reads(session) == [0, FRONT]
    with pytest.raises(EditRefused, match="no earlier message"):
        edited(session, "append-only")
    kept = edited(session, "append-only:summaries=yes")
    assert reads(kept) == [0, FRONT + 9 * TEXT]
    assert [call.prompt.tokens for call in kept if call.prompt] == [29_500, 34_500]


def test_a_side_call_of_another_conversation_gets_the_tools_back() -> None:
    session = bad("tools-changed")
    assert reads(session) == [0, 0]
    with pytest.raises(EditRefused, match="no request leaves out"):
        edited(session, "keep-front")
    assert reads(edited(session, "keep-front:others=yes")) == [0, FRONT]

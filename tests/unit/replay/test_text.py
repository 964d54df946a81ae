"""The text of a replay: what it says of what was sent, and of what differs."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest

from cacheaudit.report.renderer import View
from cacheaudit.report.renderers.text import emit
from cacheaudit.report.replay import BackendRow, Reason, ReplayResult
from cacheaudit.report.replay_text import replay_text
from tests.unit.replay.results import call, parts, result


def shown(found: ReplayResult) -> str:
    stream = io.BytesIO()
    emit(list(replay_text(found)), stream, View(width=120, color=False))
    return stream.getvalue().decode()


def totals(found: ReplayResult, **more: Any) -> ReplayResult:
    changed = msgspec.structs.replace(found.totals, **more)
    return msgspec.structs.replace(found, totals=changed)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "Time as recorded."),
        ({"clock": "fast"}, "Time stood still; no lifetime ended."),
        ({"scale": 20}, "One token sent stands for 20 of the record."),
        ({"edits": ["ttl"]}, "Changed before the replay: ttl."),
        ({"switches": {"speed": "tools"}}, "Disputed rules set for the prediction: speed=tools."),
        ({}, "Content was replaced by filler of its size; no recorded text was sent."),
    ],
    ids=["time", "still", "scale", "edits", "switches", "filler"],
)
def test_remarks(more: dict[str, Any], said: str) -> None:
    assert said in shown(result(call("a", parts(0, 5), parts(0, 5)), **more))


def test_servers_and_their_sizes() -> None:
    backend = BackendRow(
        url="http://x", model="m", rules={"anthropic": 1}, content="bodies", sizes="approximate"
    )
    text = shown(msgspec.structs.replace(result(), backend=backend))
    assert "Sent to http://x (m); cache rules: anthropic for 1 call." in text
    assert "sizes there are approximate" in text
    assert "filler" not in text


def test_a_reason_stands_in_a_word_beside_each_call_and_once_in_a_sentence() -> None:
    why = [Reason("below_minimum", "too short")]
    rows = [call(name, parts(5, 0), parts(0, 5), why=why) for name in ("a", "b")]
    text = shown(result(*rows))
    assert text.count("below minimum\n") == 2
    assert text.count("too short") == 1
    assert "below minimum, 2 calls: too short." in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "Nothing was replayed."),
        ({"replayed_calls": 1}, "1 call replayed."),
        (
            {"replayed_calls": 3, "compared_calls": 2, "equal_calls": 1, "failed_calls": 1},
            "3 calls replayed; 1 of 2 as predicted; 1 failed.",
        ),
        (
            {
                "replayed_calls": 3, "compared_calls": 3, "equal_calls": 3, "reported_calls": 2,
                "reproduced_calls": 1,
            },
            "3 calls replayed; 3 of 3 as predicted, 1 of 2 as reported.",
        ),
    ],
    ids=["none", "bare", "failed", "all"],
)  # fmt: skip
def test_the_first_line(more: dict[str, int], said: str) -> None:
    assert shown(totals(result(), **more)).splitlines()[0] == said


def test_lanes_are_shown_where_there_are_several() -> None:
    one, two = call("a", parts(0, 5), None), call("b", parts(0, 5), None, lane="reviewer")
    assert "reviewer" not in shown(result(one))
    assert "lane" in shown(result(one, two))


def test_control_characters_are_not_obeyed() -> None:
    assert "\x1b" not in shown(result(call("a\x1b[2J", parts(0, 5), None)))

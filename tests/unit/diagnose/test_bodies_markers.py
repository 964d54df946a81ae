"""Public cases of markers, lookback, side calls and late tools, with bodies."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.diagnose.runner import diagnose
from cacheaudit.diagnose.scenes import (
    Scene,
    chat,
    continued,
    function,
    request,
    result,
    use,
)

_spec = importlib.util.spec_from_file_location(
    "diagnose_bodies", Path(__file__).with_name("bodies.py")
)
assert _spec is not None
assert _spec.loader is not None
bodies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bodies)
FRONT = bodies.FRONT
TALK = bodies.TALK
losses = bodies.losses
only = bodies.only
pair = bodies.pair
shown = bodies.shown


def test_t09_a_keep_alive_without_tools_refreshes_nothing() -> None:
    scene = Scene().send(request(*TALK[:5], thinking={"type": "adaptive"}))
    scene.send(request(*TALK[:5], tools=(), max_tokens=1), purpose="keep_alive", after=240)
    finding = only(scene.session())
    assert (finding.name, finding.verdict) == ("tools-dropped-on-side-call", "proved")
    assert any("keeps nothing alive" in line for line in finding.established)


def fan_out(number: int) -> dict[str, Any]:
    calls, results = [use(n) for n in range(number)], [result(n) for n in range(number)]
    return request("task", calls, results)


def test_l01_twelve_parallel_calls_where_every_block_counts() -> None:
    scene = Scene(surface="bedrock").send(request("task"))
    finding = only(scene.send(fan_out(12), read=FRONT).session())
    assert (finding.name, finding.verdict) == ("marker-beyond-lookback", "proved")
    assert any("each block counted" in line for line in finding.established)


def test_l01_twelve_parallel_calls_are_two_positions_on_the_claude_api() -> None:
    assert losses(continued(request("task"), fan_out(12))) == []
    scene = Scene().send(request("task"))
    finding = only(scene.send(fan_out(12), read=FRONT).session())
    assert (finding.name, finding.verdict) == ("provider-side-suspected", "unknown")


@pytest.mark.parametrize(("rounds", "names"), [(9, []), (10, ["marker-beyond-lookback"])])
def test_sequential_rounds_against_the_lookback(rounds, names) -> None:
    talk: list[Any] = ["task"]
    for number in range(rounds):
        talk += [[use(number)], [result(number)]]
    session = continued(request("task"), request(*talk))
    assert [f.name for f in losses(session)] == names


def test_l04_markers_that_never_move() -> None:
    talk: list[Any] = ["task"]
    for number in range(12):
        talk += [[use(number)], [result(number)]]
    marks = ("system", 0, 4, 8)
    sizes = (9, 13, 17, 21)
    finding = only(continued(*(request(*talk[:n], mark=marks) for n in sizes)))
    assert (finding.name, finding.verdict) == ("markers-never-moved", "proved")
    assert finding.calls == ("call-3", "call-4")
    assert finding.tokens_lost == 2 * 6_300 + 4 * 6_300
    assert finding.fix is not None
    assert "last content block" in finding.fix.title


def test_l05_five_markers_are_refused_and_listed() -> None:
    body = request(*TALK[:5], system=("one", "two"), mark=("tools", "system", 2, "last"))
    body["system"][0]["cache_control"] = {"type": "ephemeral"}
    session = Scene().send(body, refused="A maximum of 4 blocks; found 5").session()
    (note,) = diagnose(session).findings
    assert (note.name, note.verdict, note.kind) == ("over-four-markers", "proved", "note")
    for path in ("tools[1]", "system[0]", "system[1]", "messages[2].content[0]"):
        assert path in note.established[0]
    assert "5 markers" in note.established[0]


def test_l07_an_hour_behind_five_minutes_is_refused() -> None:
    body = request("task", mark=("tools",))
    body["messages"][0]["content"][0]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    session = Scene().send(body, refused="ttl 1h must not come after 5m").session()
    (note,) = diagnose(session).findings
    assert (note.name, note.verdict) == ("short-lifetime-before-long", "proved")
    assert "messages[0].content[0]" in note.established[0]
    assert "tools[1]" in note.established[0]


def test_an_hour_in_front_of_five_minutes_is_allowed() -> None:
    body = request("task", mark=("last",))
    body["tools"][0]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    assert diagnose(Scene().send(body, refused="overloaded").session()).findings == ()


def test_c01_a_compaction_without_tools_and_system() -> None:
    scene = Scene(provider="openai", model="gpt-5.4").send(chat(*TALK[:5], tools=[function("go")]))
    # The history is as long as before, written out as one message.
    parts = [{"type": "text", "text": f"Summarise: {word}"} for word in TALK[:6]]
    body = {"messages": [{"role": "user", "content": parts}], "tools": []}
    finding = only(scene.send(body, purpose="compaction").session())
    assert finding.name == "tools-dropped-on-side-call"
    assert finding.verdict == "proved"
    assert finding.first_change is not None
    assert finding.first_change.level == "tools"


def test_c02_a_compaction_that_omits_the_tools_pays_for_everything() -> None:
    tools = [function(name) for name in ("open", "read")]
    scene = Scene(provider="openai", model="gpt-5.4").send(chat(*TALK[:5], tools=tools))
    scene.send(chat(*TALK[:6], "Summarise."), purpose="compaction", lane="compaction")
    finding = only(scene.session())
    assert finding.name == "tools-dropped-on-side-call"
    assert finding.tokens_lost == 19_500
    kept = Scene(provider="openai", model="gpt-5.4").send(chat(*TALK[:5], tools=tools))
    kept.send(chat(*TALK[:6], "Summarise.", tools=tools), purpose="compaction", lane="compaction")
    assert losses(kept.session()) == []


def test_m01_a_revealed_tool_leaves_the_list_in_the_system_prompt() -> None:
    head = "You help with code.\n<deferred>\n"
    tools = ("mail_send", "read_file")
    first = request("task", tools=tools, system=head + "mail_send\nmail_read\nfiles_share")
    second = request("task", "answer", "go on", tools=tools, system=head + "mail_read\nfiles_share")
    finding = pair(first, second)
    assert shown(finding) == ("deferred-list-in-system", "proved", "system", "system[0]")
    assert finding.fix is not None
    assert "message" in finding.fix.title


def test_m03_a_constant_bridge_keeps_reads_growing() -> None:
    bridge = ("tool_call", "tool_search")
    steps = ("task", [use(1, "tool_search", query="mail")], [result(1)])
    more = (*steps, [use(2, "tool_call", tool="mail_send")], [result(2)])
    session = continued(
        request(*steps[:1], tools=bridge),
        request(*steps, tools=bridge),
        request(*more, tools=bridge),
    )
    reads = [call.usage.cache_read for call in session.calls if call.usage is not None]
    assert reads == sorted(reads)
    assert losses(session) == []

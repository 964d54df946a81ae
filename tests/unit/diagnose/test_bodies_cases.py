"""Public cases of changed prefixes with the smallest bodies that show them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheaudit.diagnose.runner import Diagnosis, diagnose
from cacheaudit.diagnose.scenes import (
    MARKS,
    Scene,
    chat,
    continued,
    function,
    image,
    request,
    result,
    thinking,
    tool,
    use,
)
from cacheaudit.model.call import Session

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


def test_p01_an_injected_block_moves_on_resume() -> None:
    fresh = request(["attachments", "list of skills", "task"], "answer", "go on")
    resumed = request(
        ["attachments", "task"], "answer", "go on", "more", ["next", "list of skills"]
    )
    session = continued(fresh, resumed)
    assert session.calls[1].usage is not None
    assert session.calls[1].usage.cache_read == FRONT
    assert shown(only(session)) == (
        "injected-block-moved",
        "proved",
        "messages",
        "messages[0].content[1]",
    )


def test_p03_the_last_message_is_no_longer_marked() -> None:
    scene = Scene().send(request(*TALK[:3]))
    for size in (5, 7):
        scene.send(request(*TALK[:size], mark=("tools", "system")))
    finding = only(scene.session())
    assert (finding.name, finding.verdict) == ("last-message-unmarked", "proved")
    assert finding.calls == ("call-2", "call-3")
    # What each request repeats of the one before it; what is new is no loss.
    assert finding.tokens_lost == 3 * 2_500 + 5 * 2_500
    assert any("client program was updated" in line for line in finding.to_check)


def test_p03_writes_that_the_markers_do_not_allow_are_said() -> None:
    scene = Scene().send(request(*TALK[:3]))
    session = scene.send(request(*TALK[:5])).session()
    bare = Scene().send(request(*TALK[:3])).send(request(*TALK[:5], mark=("system",))).session()
    calls = (bare.calls[0], _with(bare.calls[1], read=FRONT, written=12_500))
    assert losses(session) == []
    finding = only(Session(id="x", source="t", calls=calls))
    assert (finding.name, finding.verdict) == ("last-message-unmarked", "consistent")
    assert any("disagrees with the body" in line for line in finding.established)


def _with(call: Any, *, read: int, written: int) -> Any:
    usage = msgspec.structs.replace(
        call.usage, cache_read=read, write_5m=written, uncached_input=0, total_input=read + written
    )
    return msgspec.structs.replace(call, usage=usage)


def test_p06_a_server_reconnects_and_its_tools_stand_at_the_end() -> None:
    first = request("task", tools=("a1", "a2", "b1"))
    second = request("task", "answer", "go on", tools=("b1", "a1", "a2"))
    session = continued(first, second)
    finding = only(session)
    assert shown(finding) == ("tools-reordered", "proved", "tools", "tools[0]")
    assert session.calls[1].usage is not None
    assert session.calls[1].usage.cache_read == 0
    assert finding.fix is not None
    assert "sort" in finding.fix.title.lower()


def test_p08_random_order_of_the_tool_map() -> None:
    names = [function(name) for name in ("open", "close", "read")]
    first = chat("task", tools=names)
    second = chat("task", "answer", "go on", tools=[names[2], names[0], names[1]])
    finding = pair(first, second, provider="openai", model="gpt-5.4")
    assert shown(finding) == ("tools-reordered", "proved", "tools", "tools[0]")


def test_p08_only_the_keys_of_a_schema_flip() -> None:
    a, b = {"type": "string"}, {"type": "integer"}
    first = request("task", tools=["read_file", tool("find", path=a, depth=b)])
    second = request("task", "answer", "go on", tools=["read_file", tool("find", depth=b, path=a)])
    finding = pair(first, second)
    assert finding.name == "tool-schema-key-order"
    assert finding.first_change is not None
    assert finding.first_change.path == "tools[1].input_schema"
    assert any("key order only" in line for line in finding.established)


HEADER = "x-anthropic-billing-header: cc_version=2.1.92; cc_entrypoint=cli; cch={};"


def nonce(*messages: str, value: str) -> dict[str, Any]:
    return request(*messages, system=(HEADER.format(value), "You help with code."))


@pytest.mark.parametrize(
    ("provider", "surface"), [("local", "local"), ("anthropic", "bedrock"), ("deepseek", None)]
)
def test_p10_a_field_of_five_digits_on_other_backends(provider, surface) -> None:
    first, second = nonce("task", value="1a2b3"), nonce("task", "answer", "go on", value="99871")
    finding = pair(first, second, provider=provider, surface=surface)
    assert finding.name == "random-id-in-prefix"
    assert finding.verdict == "proved"
    assert finding.first_change is not None
    assert (finding.first_change.path, finding.first_change.byte_offset) == (
        "system[0]",
        len(HEADER.partition("{}")[0]),
    )


def test_p10_on_the_providers_own_api_stays_open() -> None:
    first, second = nonce("task", value="1a2b3"), nonce("task", "answer", "go on", value="99871")
    finding = pair(first, second)
    assert (finding.name, finding.verdict) == ("random-id-in-prefix", "unknown")
    assert "disputed" in finding.title
    assert {"provider-side-suspected", "prefix-lost-inside-ttl"} <= {r.rule for r in finding.rivals}


def test_p10_what_differs_behind_the_field_is_the_cause_there() -> None:
    first = nonce("task", "answer", "go on", value="1a2b3")
    second = nonce("task", "another answer", "go on", "more", "next", value="99871")
    finding = pair(first, second)
    assert finding.name == "history-message-edited"
    assert finding.verdict == "consistent"
    assert any("disputed" in line for line in finding.established)


def test_p10_reads_in_spite_of_the_field_are_no_loss() -> None:
    scene = Scene().send(nonce("task", value="1a2b3"))
    scene.send(nonce("task", "answer", "go on", value="99871"), read=13_500)
    assert losses(scene.session()) == []


def test_p13_clock_time_with_seconds() -> None:
    def at(time: str, *messages: str) -> dict[str, Any]:
        return request(*messages, system=f"Current time: 2026-11-30 {time}. You help with code.")

    finding = pair(at("10:15:02", "task"), at("10:15:37", "task", "answer", "go on"))
    assert shown(finding) == ("clock-in-system", "proved", "system", "system[0]")
    assert finding.first_change is not None
    assert finding.first_change.byte_offset == len("Current time: 2026-11-30 10:15:")
    assert finding.fix is not None
    assert "newest user message" in finding.fix.title


def test_p13_day_precision_keeps_hits() -> None:
    day = "Today is 2026-11-30."
    session = continued(request("task", system=day), request("task", "answer", "go on", system=day))
    assert losses(session) == []


def test_a_date_that_changes_at_midnight_is_no_clock() -> None:
    first = request("task", system="Today is 2026-11-29.")
    second = request("task", "answer", "go on", system="Today is 2026-11-30.")
    assert pair(first, second).name == "system-changed"


def test_p15_git_status_behind_the_tools() -> None:
    head = "You help with code.\ngitStatus: snapshot at the start\nOn branch main\n"
    first = request("task", "answer", "go on", system=("rules", head + " M app.py"))
    second = request(*TALK[:5], system=("rules", head + " M app.py\n M test_app.py"))
    session = continued(first, second)
    finding = only(session)
    assert shown(finding) == ("git-status-in-system", "proved", "system", "system[1]")
    assert session.calls[1].usage is not None
    assert session.calls[1].usage.cache_read == 2 * 1_500  # the tools are still read


def test_p17_arguments_sent_back_with_another_key_order() -> None:
    first = request("task", [use(1, "weather", city="Oslo", unit="C")], [result(1)])
    again = use(1, "weather", unit="C", city="Oslo")
    finding = pair(first, request("task", [again], [result(1)], "so", "next"))
    assert shown(finding) == (
        "key-order-in-tool-input",
        "proved",
        "messages",
        "messages[1].content[0]",
    )
    assert any("key order only" in line for line in finding.established)


def test_p20_thinking_flips_on_a_tool_continuation() -> None:
    on = {"thinking": {"type": "adaptive"}}
    scene = Scene().send(request("task", **on))
    scene.send(request("task", [use(1)], [result(1)]), read=0)
    session = scene.send(request("task", [use(1)], [result(1)], "so", "next", **on)).session()
    found = {f.name: f for f in losses(session)}
    assert set(found) == {"thinking-toggled"}
    finding = found["thinking-toggled"]
    assert finding.verdict == "proved"
    assert finding.first_change is not None
    assert finding.first_change.path == "thinking"
    assert any("in front of the tools" in line for line in finding.established)


def test_p21_a_picture_becomes_a_text_pointer() -> None:
    shot = ("task", "answer", [image(), "what is this"], "a tree", "go on")
    text = ("task", "answer", ["[Image #1: pasted.png]", "what is this"], "a tree", "go on")
    finding = pair(request(*shot), request(*text, "more", "next"))
    assert shown(finding) == (
        "image-re-rendered",
        "proved",
        "messages",
        "messages[2].content[0]",
    )
    assert any("image, 5 bytes → text" in line for line in finding.established)


def test_p26_a_forced_tool_is_named_and_its_dispute_is_on_the_page() -> None:
    forced = {"type": "tool", "name": "run_tests"}
    finding = pair(request("task"), request("task", "answer", "go on", tool_choice=forced))
    assert (finding.name, finding.verdict) == ("tool-choice-toggled", "proved")
    # A keep-alive with another choice that read in full is left alone.
    scene = Scene().send(request("task"))
    scene.send(request("task", tool_choice=forced), read=9_500, purpose="keep_alive")
    assert losses(scene.session()) == []


def test_p27_a_warning_in_a_tool_description() -> None:
    plain, warned = tool("run", "Runs it."), tool("run", "Runs it. Warning: it failed last turn.")
    first = request("task", tools=["read_file", plain])
    finding = pair(first, request("task", "answer", "go on", tools=["read_file", warned]))
    assert shown(finding) == (
        "tool-description-volatile",
        "proved",
        "tools",
        "tools[1].description",
    )
    assert finding.tokens_lost == 9_500


def test_a_window_that_slides_every_turn() -> None:
    talk = tuple(f"turn {n}" for n in range(11))
    session = continued(*(request("task", *talk[n : n + 6]) for n in (0, 2, 4)))
    finding = only(session)
    assert (finding.name, finding.verdict) == ("history-trimmed-in-front", "proved")
    assert finding.calls == ("call-2", "call-3")


def test_thinking_that_the_client_leaves_out() -> None:
    first = request("task", [thinking("hm"), use(1)], [result(1)], "so", "go on")
    second = request("task", [use(1)], [result(1)], "so", "go on", "more", "next")
    assert shown(pair(first, second)) == (
        "thinking-block-dropped",
        "proved",
        "messages",
        "messages[1].content[0]",
    )


@pytest.mark.parametrize(
    ("reason", "verdict", "named"),
    [
        (None, "proved", None),
        ("system_changed", "proved", "The provider says `system_changed`."),
        ("unavailable", "proved", None),
        ("tools_changed", "consistent", "disagree"),
        ("none", "consistent", "disagree"),
    ],
)
def test_the_providers_word_beside_the_bodies(reason, verdict, named) -> None:
    scene = Scene().send(request("task", system="It is 10:15:02."))
    scene.send(request("task", "answer", "go on", system="It is 10:15:37."), reason=reason)
    finding = only(scene.session())
    assert (finding.name, finding.verdict) == ("clock-in-system", verdict)
    if named is not None:
        assert any(named in line for line in finding.established)
    assert ("tools-changed" in {r.rule for r in finding.rivals}) == (reason == "tools_changed")


def test_a_read_beyond_the_difference_contradicts_the_bodies() -> None:
    scene = Scene().send(request(*TALK[:3], system="It is 10:15:02."))
    scene.send(request(*TALK[:5], system="It is 10:15:37."), read=11_000)
    finding = only(scene.session())
    assert (finding.name, finding.verdict) == ("clock-in-system", "consistent")
    assert any("disagrees with the bodies" in line for line in finding.established)


def test_what_was_lost_in_front_of_the_difference_is_not_put_on_it() -> None:
    # Tools and system were marked and are not read either: the edit does not explain that.
    scene = Scene().send(request(*TALK[:5]))
    scene.send(request("task", "another answer", *TALK[2:7]), read=0)
    found = {f.name: f for f in losses(scene.session())}
    assert found["history-message-edited"].tokens_lost == 19_500 - FRONT
    assert found["history-message-edited"].verdict == "consistent"
    assert found["unexplained-loss"].tokens_lost == FRONT
    assert len(found) == 2


def test_a_front_without_a_marker_of_its_own_is_told_apart() -> None:
    tools = tuple(f"tool_{n}" for n in range(6))
    forced = {"type": "tool", "name": "tool_1"}
    first = request("task", tools=tools, mark=("last",))
    second = request("task", "answer", "go on", tools=tools, mark=("last",), tool_choice=forced)
    found = {f.name: f for f in losses(continued(first, second))}
    assert found["front-unmarked"].tokens_lost == 6 * 1_500 + 4_000
    assert found["tool-choice-toggled"].tokens_lost == 2_500
    assert {f.verdict for f in found.values()} == {"proved"}


def test_a_marked_question_behind_a_document_never_hits() -> None:
    bodies = [request(["document", f"question {n}"], mark=("last",)) for n in range(4)]
    finding = only(continued(*bodies))
    assert (finding.name, finding.verdict) == ("marker-on-volatile-block", "proved")
    assert len(finding.calls) == 3


def test_the_same_edit_under_three_providers_rules() -> None:
    # A date and a folder in the system prompt: one marker loses all, a second keeps the tools.
    line = "Today is 2026-11-30. cwd: /src/{}\nYou help with code."
    one = [
        request(*TALK[:n], system=line.format(w), mark=("last",)) for n, w in ((3, "a"), (5, "b"))
    ]
    two = [request(*TALK[:n], system=line.format(w), mark=MARKS) for n, w in ((3, "a"), (5, "b"))]
    for bodies, read in ((one, 0), (two, 3_000)):
        session = continued(*bodies)
        names = {f.name for f in losses(session)}
        assert session.calls[1].usage is not None
        assert session.calls[1].usage.cache_read == read
        assert "workspace-listing-in-system" in names
        assert ("front-unmarked" in names) == (read == 0)


def test_a_difference_that_lost_nothing_is_no_finding() -> None:
    scene = Scene().send(request(*TALK[:3], system="It is 10:15:02."))
    scene.send(request(*TALK[:5], system="It is 10:15:37."), read=14_500)
    diagnosis: Diagnosis = diagnose(scene.session())
    assert [f for f in diagnosis.findings if f.kind == "loss"] == []
    assert diagnosis.changes["call-2"].level == "system"


def test_expiry_comes_before_an_edit_of_the_history() -> None:
    scene = Scene().send(request(*TALK[:5]))
    scene.send(request("task", "another answer", *TALK[2:7]), after=900)
    assert [f.name for f in losses(scene.session())] == ["ttl-expired"]


def test_a_side_call_in_between_is_not_what_a_conversation_is_compared_with() -> None:
    title = request("Give this a title", system="You write short titles.")
    scene = Scene().send(request(*TALK[:3])).send(title)
    scene.send(request("task", "another answer", *TALK[2:5]), read=0)
    found = {f.name: f for f in diagnose(scene.session()).findings}
    side = found["side-call-with-own-prompt"]
    assert (side.kind, side.calls, side.tokens_lost) == ("note", ("call-2",), 0)
    edited = found["history-message-edited"]
    assert edited.calls == ("call-3",)
    # The side call left 9,500 tokens; what stands in front of the edit was lost by something else.
    assert edited.tokens_lost == 9_500 - FRONT
    assert "messages-changed" not in found


def test_digests_alone_still_name_what_structure_tells() -> None:
    first = request("task", tools=("a1", "a2", "b1"))
    session = continued(first, request("task", "answer", "go on", tools=("b1", "a1", "a2")))
    calls = []
    for call in session.calls:
        assert call.prompt is not None
        blocks = tuple(
            msgspec.structs.replace(b, canonical=b"", canonical_bytes=len(b.canonical))
            for b in call.prompt.blocks
        )
        prompt = msgspec.structs.replace(call.prompt, blocks=blocks)
        calls.append(msgspec.structs.replace(call, prompt=prompt))
    finding = only(Session(id="x", source="t", calls=tuple(calls)))
    assert finding.name == "tools-reordered"
    clock = continued(
        request("task", system="It is 10:15:02."),
        request("task", "answer", "go on", system="It is 10:15:37."),
    )
    bare = tuple(
        msgspec.structs.replace(
            c,
            prompt=msgspec.structs.replace(
                c.prompt,
                blocks=tuple(
                    msgspec.structs.replace(b, canonical=b"", canonical_bytes=len(b.canonical))
                    for b in c.prompt.blocks
                ),
            ),
        )
        for c in clock.calls
        if c.prompt is not None
    )
    assert only(Session(id="x", source="t", calls=bare)).name == "system-changed"


def test_no_text_of_a_prompt_is_repeated() -> None:
    secret = "correct-horse-battery-staple"
    first = request("task", f"{secret} one", "go on", system=f"{secret} It is 10:15:02.")
    second = request("task", f"{secret} two", "go on", "x", "y", system=f"{secret} It is 10:15:37.")
    for finding in diagnose(continued(first, second)).findings:
        assert secret not in repr(finding)

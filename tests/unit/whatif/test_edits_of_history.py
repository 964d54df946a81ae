"""Two edits: a history that is only appended to, and side calls that keep their front."""

from __future__ import annotations

import pytest

from cacheaudit.diagnose.scenes import Scene, chat, continued, function, image, request
from cacheaudit.model.call import Call
from cacheaudit.model.change import is_extension
from cacheaudit.simulate.edit import EditRefused, edit_types, parse_edit
from cacheaudit.simulate.edits.append_only import AppendOnly
from cacheaudit.simulate.edits.keep_front import KeepFront


def words(call: Call) -> list[str]:
    assert call.prompt is not None
    return [block.canonical.decode() for block in call.prompt.at_level("messages")]


def plain(*texts: str) -> list[str]:
    roles = ("user", "assistant")
    return [f'{{"text":"{t}","type":"text","role":"{roles[n % 2]}"}}' for n, t in enumerate(texts)]


def test_both_are_found_by_name() -> None:
    assert edit_types()["append-only"] is AppendOnly
    assert parse_edit("keep-front") == KeepFront()


def test_an_edit_of_the_history_is_undone_and_the_new_turn_kept() -> None:
    first = request("task", "one", "two", "three", "four")
    second = request("task", "ONE", "two", "three", "four", "five", "six")
    session = continued(first, second)
    after = AppendOnly().apply(session.calls)
    assert words(after[1]) == plain("task", "one", "two", "three", "four", "five", "six")
    assert after[0] is session.calls[0]
    assert is_extension(after[0].prompt, after[1].prompt)  # type: ignore[arg-type]


def test_later_requests_build_on_what_was_kept() -> None:
    first = request("task", "one", "two")
    second = request("task", "ONE", "two", "three", "four")
    third = request("task", "ONE", "two", "three", "four", "five", "six")
    after = AppendOnly().apply(continued(first, second, third).calls)
    assert words(after[2]) == plain("task", "one", "two", "three", "four", "five", "six")


def test_what_was_inserted_goes_to_the_end() -> None:
    first = request("task", "one", "two")
    second = request("task", "one", ["note", "two"], "three", "four")
    after = AppendOnly().apply(continued(first, second).calls)
    found = words(after[1])
    assert found[:3] == plain("task", "one", "two")
    assert len(found) == 6
    assert '"note"' in found[3]


def test_dropped_and_moved_blocks_come_back() -> None:
    first = request(["a", "skills", "task"], "one", "two")
    second = request(["a", "task"], "one", "two", "three", ["four", "skills"])
    after = AppendOnly().apply(continued(first, second).calls)
    found = words(after[1])
    assert found[:5] == words(continued(first).calls[0])
    assert sum('"skills"' in block for block in found) == 1


def test_a_picture_stays_a_picture() -> None:
    first = request([image(), "what"], "a tree", "go on")
    second = request(["[picture]", "what"], "a tree", "go on", "more", "next")
    after = AppendOnly().apply(continued(first, second).calls)
    assert after[1].prompt is not None
    assert after[1].prompt.at_level("messages")[0].kind == "image"


def test_the_last_marker_stands_on_the_last_block() -> None:
    first = request("task", "one", "two")
    second = request("task", "ONE", "two", "three", "four")
    after = AppendOnly().apply(continued(first, second).calls)
    assert after[1].prompt is not None
    messages = after[1].prompt.at_level("messages")
    assert [block.marker is not None for block in messages] == [False] * 4 + [True]


def test_a_summary_or_another_way_is_left_alone() -> None:
    first = request("task", "one", "two", "three", "four")
    with pytest.raises(EditRefused, match="append-only"):
        AppendOnly().apply(continued(first, request("Summary.", "five", "six")).calls)
    with pytest.raises(EditRefused, match="append-only"):
        AppendOnly().apply(continued(first, request("task", "one", "else")).calls)


def test_lanes_are_kept_apart() -> None:
    scene = Scene().send(request("task", "one", "two"), lane="a")
    session = scene.send(request("job", "uno", "dos"), lane="b").session()
    with pytest.raises(EditRefused):
        AppendOnly().apply(session.calls)


def test_a_side_call_gets_the_front_of_its_conversation() -> None:
    scene = Scene().send(request("task", "one", "two"))
    scene.send(request("task", "one", "two", "three", "Sum up.", tools=(), system=()), lane="side")
    calls = scene.session().calls
    after = KeepFront().apply(calls)
    assert is_extension(calls[0].prompt, after[1].prompt)  # type: ignore[arg-type]
    assert after[1].usage is not None
    assert after[1].usage.total_input == 7_000 + 5 * 2_500


def test_settings_go_with_the_front() -> None:
    scene = Scene(provider="openai", model="gpt-5.4")
    scene.send(chat("task", "one", "two", tools=[function("go")], verbosity="low"))
    scene.send(chat("task", "one", "two", "three", "Sum up."))
    after = KeepFront().apply(scene.session().calls)
    assert is_extension(after[0].prompt, after[1].prompt)  # type: ignore[arg-type]


def test_other_conversations_keep_their_own_front() -> None:
    scene = Scene().send(request("task", "one", "two"))
    session = scene.send(request("Give this a title", tools=())).session()
    with pytest.raises(EditRefused, match="keep-front"):
        KeepFront().apply(session.calls)

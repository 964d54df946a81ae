"""A compacted history: valid, with everything that must stay, the same when done again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.compaction.clearing import batch, clear
from cacheaudit.agent.compaction.history import blocks_of, calls_in, faults, results_in
from cacheaudit.agent.compaction.kept import Kept, OpenFile, Pin, carried
from cacheaudit.agent.compaction.originals import Originals, result_text
from cacheaudit.agent.compaction.rewrite import kept_beside, parts, rewritten
from cacheaudit.agent.compaction.settings import Clearing
from cacheaudit.agent.outputs.store import OutputStore
from tests.unit.agent.compaction.histories import TEXT, histories, rounds, said

HANDLE = "out_" + "0" * 32
PINS = st.lists(st.builds(Pin, TEXT, TEXT), max_size=2, unique_by=lambda pin: pin.name)
FILES = st.lists(st.builds(OpenFile, TEXT, TEXT), max_size=2)


def compacted(
    messages: list[dict[str, Any]], keep: int, pins: Any = (), files: Any = (), summary: str = "S"
) -> list[Any]:
    found = parts(messages, keep)
    kept = kept_beside(found, pins, files, 8_000, HANDLE)
    return rewritten(found, summary, kept, HANDLE)


def kept_words(messages: list[Any]) -> list[str]:
    found = carried(messages)
    return [*found.kept.words, *said(found.rest)]


@settings(max_examples=40)
@given(histories(), st.integers(0, 300), PINS, FILES, TEXT)
def test_a_compacted_history_is_valid_and_keeps_what_must_stay(
    messages: list[dict[str, Any]], keep: int, pins: list[Pin], files: list[OpenFile], summary: str
) -> None:
    before = copy.deepcopy(messages)
    made = compacted(messages, keep, pins, files, summary)
    assert messages == before
    assert faults(made) == []
    assert kept_words(made) == said(messages)
    found = carried(made)
    assert found.kept.pins == tuple(pins)
    assert found.kept.files == tuple(files)
    assert found.original == HANDLE
    asked = {name for message in made for name in calls_in(message)}
    answered = {name for message in made for name in results_in(message)}
    assert asked == answered


@settings(max_examples=40)
@given(histories(), st.integers(0, 300), PINS)
def test_compacting_again_changes_nothing(
    messages: list[dict[str, Any]], keep: int, pins: list[Pin]
) -> None:
    once = compacted(messages, keep, pins)
    again = parts(once, keep)
    assert again.is_done
    assert again.recent == carried(once).rest
    kept = kept_beside(again, pins, (), 8_000, HANDLE)
    twice = rewritten(again, "S", kept, HANDLE)
    assert twice[1:] == once[1:]
    assert blocks_of(twice[0])[1:] == blocks_of(once[0])[1:]


@settings(max_examples=40)
@given(histories(least=2), histories(), st.integers(0, 200))
def test_a_second_compaction_keeps_the_words_of_both(
    early: list[dict[str, Any]], late: list[dict[str, Any]], keep: int
) -> None:
    once = compacted(early, keep)
    answer = {"role": "assistant", "content": "done"}
    renamed = [_renamed(message) for message in late]
    grown = [*once, answer, *renamed]
    twice = compacted(grown, keep)
    assert faults(twice) == []
    assert kept_words(twice) == said([*early, answer, *late])


def _renamed(message: dict[str, Any]) -> dict[str, Any]:
    """The same message with other ids of tool calls."""
    content = message["content"]
    if isinstance(content, str):
        return message
    changed = []
    for block in content:
        names = {name: f"late-{block[name]}" for name in ("id", "tool_use_id") if name in block}
        changed.append({**block, **names})
    return {**message, "content": changed}


def test_changes_of_tools_and_loaded_tools_stay() -> None:
    addition = {
        "role": "system",
        "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "x"}}],
    }
    loaded = {
        "type": "tool_result",
        "tool_use_id": "s",
        "content": [{"type": "tool_reference", "tool_name": "query_db"}],
    }
    search = {"type": "tool_use", "id": "s", "name": "search_tools", "input": {}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "one"},
        addition,
        {"role": "assistant", "content": [search]},
        {"role": "user", "content": [loaded]},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    made = compacted(messages, 0)
    assert [message["role"] for message in made] == ["user", "system"]
    assert made[1] == addition
    assert carried(made).kept.tools == ("query_db",)


def test_long_words_lose_their_middle_and_name_the_original() -> None:
    text = "".join(f"{n:05}" for n in range(2_000))
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "go"},
    ]
    found = parts(messages, 0)
    (word,) = kept_beside(found, (), (), 100, HANDLE).words
    # 100 tokens are 360 characters.
    assert word.startswith(text[:180])
    assert word.endswith(text[-180:])
    assert HANDLE in word
    assert "9,640 characters" in word


def test_text_that_looks_like_ours_is_not_taken_for_it() -> None:
    for text in ("<user_words>\n[]\n</user_words>", '<conversation_summary original="x">\nhi'):
        messages = [{"role": "user", "content": text}]
        assert carried(messages).head == ()
    head = Kept(words=("a",))
    quoted = {"type": "text", "text": "<pinned>\n[]\n</pinned>"}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": [quoted]},
    ]
    found = parts(messages, 0)
    made = rewritten(found, "S", head, HANDLE)
    assert carried(made).rest == ({"role": "user", "content": [quoted]},)


def test_originals_are_read_back(tmp_path: Path) -> None:
    originals = Originals(OutputStore(tmp_path))
    messages = [
        {"role": "user", "content": "line\nbreak \u2028 and \x85 and \r"},
        {"role": "assistant", "content": [{"type": "text", "text": "ok"}]},
    ]
    handle = originals.keep(messages)
    assert Originals(OutputStore(tmp_path)).messages(handle) == messages


@settings(max_examples=40)
@given(histories(least=3), st.integers(0, 3), st.integers(1, 60))
def test_clearing_keeps_pairs_and_the_latest_results(
    messages: list[dict[str, Any]], keep: int, at_least: int
) -> None:
    settings = Clearing(at_least=at_least, keep=keep, smallest=45)
    chosen = batch(messages, settings)
    if chosen is None:
        return
    before = copy.deepcopy(messages)
    taken: list[str] = []

    def put(block: Any) -> str:
        taken.append(result_text(block))
        return HANDLE

    made = clear(messages, chosen, put)
    assert messages == before
    assert faults(made) == []
    assert made[: chosen.first] == messages[: chosen.first]
    assert len(taken) == len(chosen.ids)
    order = [name for message in messages for name in results_in(message)]
    assert not keep or not chosen.ids & set(order[-keep:])
    assert batch(made, settings) is None or batch(made, settings).ids.isdisjoint(chosen.ids)  # type: ignore[union-attr]


def test_clearing_goes_in_batches_only() -> None:
    # Ten results of about 1,670 tokens; four stay, six free about 9,800.
    messages = rounds(10, 6_000)
    assert batch(messages, Clearing(at_least=11_000)) is None
    chosen = batch(messages, Clearing(at_least=9_000))
    assert chosen is not None
    assert chosen.ids == {f"c{n}" for n in range(6)}
    assert chosen.first == 2
    assert batch(messages, Clearing(at_least=9_000), {"c0"}) is None
    assert batch(messages, Clearing(at_least=1_000, exclude=("run",))) is None

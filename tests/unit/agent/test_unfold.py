"""Building on the request before gives the very prompt that starting from nothing gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.agent import body as bodies_module
from cacheaudit.agent import unfold
from cacheaudit.agent.body import read_body
from cacheaudit.agent.sizes import sized
from cacheaudit.agent.unfold import Unfolder
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import calibrated
from cacheaudit.providers.registry import expand

TEXT = st.text(max_size=8)
MARK = st.none() | st.fixed_dictionaries(
    {"type": st.just("ephemeral")}, optional={"ttl": st.sampled_from(["5m", "1h"])}
)


def marked(block: dict[str, Any], mark: Any) -> dict[str, Any]:
    return block if mark is None else {**block, "cache_control": mark}


TEXT_BLOCK = st.builds(marked, st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), MARK)
USE = st.builds(
    lambda name, value: {"type": "tool_use", "id": name, "name": name, "input": {"a": value}},
    TEXT,
    TEXT,
)
RESULT = st.builds(
    lambda name, inner, mark: marked(
        {"type": "tool_result", "tool_use_id": name, "content": inner}, mark
    ),
    TEXT,
    TEXT | st.lists(TEXT_BLOCK, max_size=2),
    MARK,
)
CONTENT = TEXT | st.lists(TEXT_BLOCK | USE | RESULT, max_size=4)
TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": CONTENT},
    optional={"clear_at": st.just("next_user_message")},
)
TOOL = st.builds(
    marked,
    st.fixed_dictionaries({"name": TEXT, "description": TEXT, "input_schema": st.just({})}),
    MARK,
)
BODY = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["claude-opus-5", "claude-haiku-4-5"]),
        "max_tokens": st.integers(1, 3),
        "messages": st.lists(TURN, min_size=1, max_size=6),
    },
    optional={
        "tools": st.lists(TOOL, max_size=3),
        "system": TEXT | st.lists(TEXT_BLOCK, max_size=2),
        "thinking": st.just({"type": "enabled", "budget_tokens": 1024}),
        "tool_choice": st.sampled_from([{"type": "auto"}, {"type": "any"}]),
        "cache_control": st.just({"type": "ephemeral"}),
    },
)
EDIT = st.sampled_from(["append", "mark", "front", "middle", "cut", "same", "other", "null"])


def edited(body: dict[str, Any], how: str, turn: dict[str, Any]) -> dict[str, Any]:
    """Return the next request of a conversation, changed in one of the usual ways."""
    new = json.loads(json.dumps(body))
    said = new["messages"]
    if how == "append":
        said.append(turn)
    elif how == "mark":
        said[-1] = {
            "role": "user",
            "content": [marked({"type": "text", "text": "m"}, {"type": "ephemeral"})],
        }
    elif how == "front":
        new["system"] = "another one"
        new["tools"] = [*(new.get("tools") or ()), {"name": "new", "input_schema": {}}]
    elif how == "middle":
        said[len(said) // 2] = turn
    elif how == "cut":
        new["messages"] = said[:1] if len(said) > 1 else [*said, turn]
    elif how == "other":
        new["model"] = "claude-sonnet-5"
        new.pop("tools", None)
    elif how == "null":
        new["tools"], new["system"] = None, None
        said.append(turn)
    return new


def test_what_remains_may_be_of_another_api() -> None:
    """Without its tools the body is expanded by what its messages look like."""
    unfolder = Unfolder(Problems())
    body: dict[str, Any] = {
        "model": "claude-opus-5",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
        ],
        "tools": [{"name": "t", "input_schema": {}}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    for _ in range(2):
        assert unfolded(unfolder, body) == expand(body, provider="anthropic")
        del body["tools"]
        assert unfolded(unfolder, body) == expand(body, provider="anthropic")
        body["tools"] = [{"name": "t", "input_schema": {}}]


def unfolded(unfolder: Unfolder, body: dict[str, Any], lane: str | None = "main") -> Prompt | None:
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    read = read_body(data, unfolder.histories())
    assert read is not None
    found = unfolder.prompt(read, session="s", lane=lane, provider="anthropic", where="w")
    if found.prompt is not None:
        for total in (0, 7, 200_000):
            assert sized(found.prompt, found.weights, total) == calibrated(found.prompt, total)
    return found.prompt


@given(BODY, st.lists(st.tuples(EDIT, TURN), max_size=6))
def test_a_conversation(first: dict[str, Any], edits: list[tuple[str, dict[str, Any]]]) -> None:
    problems = Problems()
    unfolder = Unfolder(problems)
    body = first
    assert unfolded(unfolder, body) == expand(body, provider="anthropic")
    for how, turn in edits:
        body = edited(body, how, turn)
        assert unfolded(unfolder, body) == expand(body, provider="anthropic")
    assert not problems


def captured(shared: Path) -> Iterator[list[dict[str, Any]]]:
    for file in sorted((shared / "data" / "captures").glob("*.jsonl")):
        bodies = []
        for line in file.read_text().splitlines():
            found = json.loads(line)
            body = found.get("request", found.get("body", found))
            if isinstance(body, dict) and isinstance(body.get("messages"), list):
                bodies.append(body)
        if bodies:
            yield bodies


@pytest.mark.shared
def test_captured_conversations(shared: Path) -> None:
    seen = 0
    for bodies in captured(shared):
        unfolder = Unfolder(Problems())
        for body in bodies:
            prompt = unfolded(unfolder, body)
            assert prompt == expand(body, provider="anthropic")
            seen += 1
    assert seen > 10


def test_what_stands_unchanged_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def counting(plain: Any) -> Any:
        def count(data: Any) -> Any:
            decoded.append(bytes(data))
            return plain(data)

        return count

    for module, name in (
        (bodies_module, "decode"),
        (bodies_module, "_decode_fields"),
        (bodies_module, "_decode_list"),
        (unfold, "decode"),
    ):
        monkeypatch.setattr(module, name, counting(getattr(module, name)))
    said = [{"role": "user", "content": f"number {n}"} for n in range(50)]
    body = {"model": "claude-opus-5", "max_tokens": 1, "messages": said, "system": "the system"}
    unfolder = Unfolder(Problems())
    first = unfolded(unfolder, body)
    for turn in range(3):
        decoded.clear()
        said = [*said, {"role": "user", "content": f"new {turn}"}]
        second = unfolded(unfolder, {**body, "max_tokens": turn, "messages": said})
        assert not [
            data
            for data in decoded
            if b"number" in data or b"new " in data.replace(b"new %d" % turn, b"")
        ]
        assert [data for data in decoded if b"new %d" % turn in data]
        assert first is not None
        assert second is not None
        assert all(a is b for a, b in zip(first.blocks, second.blocks, strict=False))


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", " :\t")])
@pytest.mark.parametrize(
    "order", [("messages", "system"), ("system", "messages"), ("metadata", "messages")]
)
def test_bodies_written_in_other_ways(separators: tuple[str, str], order: tuple[str, str]) -> None:
    """Blanks, the order of fields, and the same words at other places."""
    unfolder = Unfolder(Problems())
    said: list[Any] = [{"role": "user", "content": 'quote: "messages":[{"role"'}]
    fields: dict[str, Any] = {
        "model": "claude-opus-5",
        "system": 'another "messages":[ in here',
        "metadata": {"user_id": "u", "messages": [{"role": "user", "content": "decoy"}]},
    }
    for turn in range(4):
        body = {**fields, "messages": said, "max_tokens": 1}
        body = {
            name: body[name]
            for name in sorted(
                body, key=lambda n: (n not in order, order.index(n) if n in order else 0)
            )
        }
        data = json.dumps(body, separators=separators).encode()
        read = read_body(data, unfolder.histories())
        assert read is not None
        found = unfolder.prompt(read, session="s", lane="main", provider="anthropic", where="w")
        assert found.prompt == expand(body, provider="anthropic")
        assert (read.base is not None) == (turn > 0 and read.count > 0)
        said = [
            *said,
            {"role": "assistant", "content": "decoy"},
            {"role": "user", "content": str(turn)},
        ]


def test_a_field_that_stands_twice_counts_as_json_says() -> None:
    unfolder = Unfolder(Problems())
    one = b'{"model":"claude-opus-5","messages":[{"role":"user","content":"a"}]}'
    two = one[:-1] + b',"messages":[{"role":"user","content":"b"}]}'
    for data in (one, two, one, two):
        read = read_body(data, unfolder.histories())
        assert read is not None
        found = unfolder.prompt(read, session="s", lane="main", provider="anthropic", where="w")
        assert found.prompt == expand(json.loads(data), provider="anthropic")


@pytest.mark.parametrize("data", [b"", b"[]", b"nonsense", b'{"a":', b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_no_body(data: bytes) -> None:
    assert read_body(data) is None


@pytest.mark.parametrize(
    "broken",
    [
        {"messages": "text"},
        {"messages": [1]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": None, "tools": {}},
        {},
    ],
)
def test_broken_bodies_are_counted_and_break_nothing_that_follows(broken: dict[str, Any]) -> None:
    problems = Problems()
    unfolder = Unfolder(problems)
    good = {"model": "claude-opus-5", "messages": [{"role": "user", "content": "x"}]}
    unfolded(unfolder, good)
    unfolded(unfolder, {"model": "claude-opus-5", **broken})
    assert unfolded(unfolder, good) == expand(good, provider="anthropic")
    longer = {**good, "messages": [*good["messages"], {"role": "user", "content": 7}]}
    assert unfolded(unfolder, longer) is None
    assert problems.count("bad_body") >= 1
    assert unfolded(unfolder, good) == expand(good, provider="anthropic")


def test_lanes_that_are_forgotten_cost_nothing_but_time() -> None:
    unfolder = Unfolder(Problems())
    for round_ in range(3):
        for lane in range(60):
            body = {
                "model": "claude-opus-5",
                "messages": [{"role": "user", "content": f"{lane} {n}"} for n in range(round_ + 1)],
            }
            assert unfolded(unfolder, body, f"l{lane}") == expand(body, provider="anthropic")
    assert len(unfolder._held) <= 48


@given(BODY, st.lists(st.tuples(EDIT, TURN), min_size=1, max_size=6))
def test_the_lane_is_the_one_that_the_content_tells(
    body: dict[str, Any], edits: list[tuple[str, dict[str, Any]]]
) -> None:
    """Built on the request before, or each body read by itself: the same lanes."""
    kept, alone = Unfolder(Problems()), Unfolder(Problems())
    for how, turn in [("same", {}), *edits]:
        body = edited(body, how, turn)
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        lanes = []
        for unfolder, histories in ((kept, list(kept.histories())), (alone, [])):
            read = read_body(data, histories)
            assert read is not None
            found = unfolder.prompt(read, session="s", lane=None, provider="anthropic", where="w")
            lanes.append(found.lane)
        assert lanes[0] == lanes[1]

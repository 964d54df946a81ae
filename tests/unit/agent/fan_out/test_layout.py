"""What requests share, where it is marked, and who may go when."""

from __future__ import annotations

import copy
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.agent.fan_out.layout import layout
from cacheaudit.agent.fan_out.release import Release
from cacheaudit.model.call import Call
from cacheaudit.model.tokens import with_recorded_tokens
from cacheaudit.providers.registry import expand
from cacheaudit.simulate.run import run

MODEL = "claude-opus-5"
LONG = "shared text " * 600


def body(*parts: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": part} for part in parts]
    return {
        "model": MODEL,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": content}],
        **more,
    }


def markers(made: Any) -> list[str]:
    prompt = expand(made)
    return [prompt.blocks[index].path for index in prompt.marked]


@pytest.fixture(scope="module")
def rows(root: Path) -> list[dict[str, Any]]:
    path = root / "fixtures" / "sessions" / "exercise-14.session.jsonl"
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def played(rows: list[dict[str, Any]], mark: bool, order: bool) -> list[tuple[int, int]]:
    """Play rows 12 to 14 of the exercise as a fan-out would send them, behind the others."""
    made = layout([row["request"] for row in rows[11:]], mark=mark, order=order)
    calls = []
    for number, row in enumerate(rows):
        request = row["request"] if number < 11 else made.bodies[number - 11]
        start = _seconds(row["started_at"])
        began = _seconds(row["first_token_at"])
        if number >= 11 and made.after[number - 11] is not None:
            first = rows[11 + made.after[number - 11]]
            start = _seconds(first["first_token_at"]) + 0.1
            began = start + 2
        prompt = with_recorded_tokens(expand(request), row["content_tokens"])
        calls.append(
            Call(
                id=row["id"],
                lane=row["lane"],
                parent=row["parent"],
                provider="anthropic",
                surface="claude_api",
                model=row["model"],
                started_at=start,
                first_token_at=began,
                prompt=prompt,
            )
        )
    outcomes = run(calls).by_id()
    return [(p.written, p.read) for c in calls if (p := outcomes[c.id].predicted) is not None]


def _seconds(text: str) -> float:
    from cacheaudit.model.clock import parse_time

    found = parse_time(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("mark", "order", "expected"),
    [
        (False, False, [(30_500, 51_870)] * 3),
        (True, False, [(30_500, 51_870)] * 3),
        (False, True, [(30_500, 51_870)] * 3),
        (True, True, [(30_500, 51_870), (200, 82_170), (200, 82_170)]),
    ],
)
def test_the_four_cells_of_the_exercise(
    rows: list[dict[str, Any]], mark: bool, order: bool, expected: list[tuple[int, int]]
) -> None:
    assert played(rows, mark, order)[11:] == expected


def test_it_saves_what_the_atlas_says(rows: list[dict[str, Any]]) -> None:
    def weight(found: list[tuple[int, int]]) -> Decimal:
        return sum((w * Decimal("1.25") + r * Decimal("0.1") for w, r in found), Decimal(0))

    before, after = played(rows, False, False), played(rows, True, True)
    assert weight(before) - weight(after) == 69_690


def test_requests_that_share_a_prefix_wait_for_the_first() -> None:
    made = layout([body(LONG, f"question {n}") for n in range(4)])
    assert made.after == (None, 0, 0, 0)
    (group,) = made.groups
    assert (group.leader, group.members, group.path) == (0, (1, 2, 3), "messages[0].content[0]")
    assert [markers(b) for b in made.bodies] == [["messages[0].content[0]"]] * 4


def test_families_inside_a_family() -> None:
    """The front is shared by all, a long document by two pairs."""
    bodies = [
        body("front " * 900, doc * 900, question)
        for doc, question in (("a ", "1"), ("a ", "2"), ("b ", "3"), ("b ", "4"))
    ]
    made = layout(bodies)
    assert made.after == (None, 0, 0, 2)
    assert [(g.leader, g.members) for g in made.groups] == [(0, (1, 2, 3)), (2, (3,)), (0, (1,))]
    assert markers(made.bodies[3]) == ["messages[0].content[0]", "messages[0].content[1]"]


@pytest.mark.parametrize(
    "bodies",
    [
        [body("short", "1"), body("short", "2")],
        [body(LONG, "1"), body(LONG, "1", model="claude-sonnet-5")],
        [body(LONG, "1"), body("other " + LONG, "2")],
        [body(LONG, "1")],
        [],
    ],
)
def test_nothing_to_share_nothing_changed(bodies: list[dict[str, Any]]) -> None:
    made = layout(bodies)
    assert made.after == (None,) * len(bodies)
    assert all(a is b for a, b in zip(made.bodies, bodies, strict=True))
    assert made.groups == ()


def test_the_minimum_is_the_models_own() -> None:
    text = "x" * 3_000  # about 830 tokens
    assert layout([body(text, "1"), body(text, "2")]).groups
    assert not layout([body(text, "1", model="claude-sonnet-5") for _ in "ab"]).groups


def test_the_same_request_twice() -> None:
    made = layout([body(LONG, "same")] * 3)
    assert made.after == (None, 0, 0)


def test_a_text_is_split_off_as_one_block() -> None:
    first = {**body("x"), "system": LONG}
    second = {**body("y"), "system": LONG}
    before = copy.deepcopy([first, second])
    made = layout([first, second])
    assert [first, second] == before
    assert made.bodies[0]["system"] == [
        {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}
    ]


def test_a_full_set_of_markers_gives_one_up() -> None:
    marker = {"type": "ephemeral", "ttl": "1h"}
    texts = [
        {"type": "text", "text": f"part {n} " * 300, "cache_control": marker} for n in range(3)
    ]
    front = [*texts, {"type": "text", "text": LONG}]
    bodies = [
        {
            **body("x"),
            "messages": [
                {
                    "role": "user",
                    "content": [*front, {"type": "text", "text": q, "cache_control": marker}],
                }
            ],
        }
        for q in "ab"
    ]
    made = layout(bodies)
    places = markers(made.bodies[0])
    assert places == [f"messages[0].content[{n}]" for n in (0, 1, 3, 4)]
    content = made.bodies[0]["messages"][0]["content"]
    assert content[3]["cache_control"] == marker


def test_other_apis_are_ordered_and_not_marked() -> None:
    chats = [
        {
            "model": "gpt-6.1",
            "messages": [
                {"role": "system", "content": LONG},
                {"role": "user", "content": str(n)},
            ],
        }
        for n in range(3)
    ]
    made = layout(chats, least=1_024)
    assert made.after == (None, 0, 0)
    assert all(a is b for a, b in zip(made.bodies, chats, strict=True))


@st.composite
def families(draw: st.DrawFn) -> list[dict[str, Any]]:
    texts = st.sampled_from(["a " * 700, "b " * 1_500, "c ", "d"])
    marks = st.sampled_from([None, None, {"type": "ephemeral"}])

    def block(text: str, mark: Any) -> dict[str, Any]:
        plain = {"type": "text", "text": text}
        return plain if mark is None else {**plain, "cache_control": mark}

    blocks = st.builds(block, texts, marks)
    found = []
    for _ in range(draw(st.integers(1, 6))):
        content = draw(st.lists(blocks, min_size=1, max_size=5))
        while sum("cache_control" in b for b in content) > 4:
            content = content[1:]
        more = {"cache_control": {"type": "ephemeral"}} if draw(st.booleans()) else {}
        if sum("cache_control" in b for b in content) > 3:
            more = {}
        found.append({**body("x"), "messages": [{"role": "user", "content": content}], **more})
    return found


@given(families(), st.booleans(), st.booleans())
def test_a_layout_is_valid_and_changes_markers_only(
    bodies: list[dict[str, Any]], mark: bool, order: bool
) -> None:
    before = copy.deepcopy(bodies)
    made = layout(bodies, mark=mark, order=order)
    assert bodies == before
    for old, new, first in zip(bodies, made.bodies, made.after, strict=True):
        a, b = expand(old), expand(new)
        assert a.prefix_digests == b.prefix_digests
        assert len(b.marked) + (b.automatic_marker is not None) <= 4
        assert len(b.marked) >= len(a.marked)
        if not mark:
            assert new is old
        assert first is None or order
    # Whoever waits, waits for somebody who does not wait for it.
    for index, first in enumerate(made.after):
        seen = {index}
        while first is not None:
            assert first not in seen
            seen.add(first)
            first = made.after[first]


@given(families())
def test_all_are_let_go_once_whatever_fails(bodies: list[dict[str, Any]]) -> None:
    made = layout(bodies)
    for fails in (set(), {0}, {0, 1}, set(range(len(bodies)))):
        release = Release(made.after)
        queue, gone = release.first(), []
        while queue:
            index = queue.pop(0)
            gone.append(index)
            queue += release.failed(index) if index in fails else release.began(index)
        assert sorted(gone) == list(range(len(bodies)))


def test_a_leader_that_fails_has_an_heir() -> None:
    release = Release([None, 0, 0, 0])
    assert release.failed(0) == [1]
    assert release.is_awaited(1)
    assert release.began(1) == [2, 3]
    release = Release([None, 0, 0, 0])
    assert release.failed(0) == [1]
    assert release.failed(1) == [2, 3]

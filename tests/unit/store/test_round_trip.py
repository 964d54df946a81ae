"""What is written comes back: every field, every digit, every content block."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.model.call import Call, CallError, Session
from cacheaudit.model.prompt import ContentBlock, Marker, Prompt, chain, digest
from cacheaudit.model.usage import Usage
from cacheaudit.store import open_store
from cacheaudit.store.lists import EMPTY, common, listing
from cacheaudit.store.rows import LARGEST
from tests.unit.store.builders import LEVELS, blocks, sessions, without_canonical

numbers = itertools.count()
relaxed = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(session=sessions(), with_text=st.booleans())
@relaxed
def test_a_session_comes_back_as_it_was_written(
    url: str, session: Session, with_text: bool
) -> None:
    source = f"test{next(numbers)}"
    key = itertools.count()
    made = tuple(
        msgspec.structs.replace(call, dedupe_key=f"{source} {next(key)}")
        if call.dedupe_key
        else call
        for call in session.calls
    )
    with open_store(url, store_text=with_text) as store:
        name = f"{source} session"
        made = tuple(msgspec.structs.replace(call, session=name) for call in made)
        count = store.write(made, source=source, project="p")
        (back,) = store.sessions([name])
    assert (count.new, count.updated, count.unchanged) == (len(made), 0, 0)
    # Another example of the same database may have stored the text of equal content blocks.
    expected = made if with_text else tuple(map(without_canonical, made))
    got = back.calls if with_text else tuple(map(_forget_text, back.calls))
    assert got == expected
    assert (back.id, back.source, back.project) == (name, source, "p")


def _forget_text(call: Call) -> Call:
    if call.prompt is None:
        return call
    bare = tuple(
        msgspec.structs.replace(block, canonical=b"", canonical_bytes=block.size)
        for block in call.prompt.blocks
    )
    return msgspec.structs.replace(call, prompt=msgspec.structs.replace(call.prompt, blocks=bare))


def test_decimals_keep_every_digit(url: str) -> None:
    costs = ["0.1", "0.10", "1E-30", "123456789012345678901234567890.000000000000000001", "0"]
    made = [
        Call(id=f"c{i}", session="s", dedupe_key=f"k{i}", reported_cost=Decimal(cost))
        for i, cost in enumerate(costs)
    ]
    with open_store(url) as store:
        store.write(made, source="t")
        (session,) = store.sessions()
    assert [str(call.reported_cost) for call in session.calls] == costs


def test_unknown_stays_apart_from_zero(url: str) -> None:
    usage = Usage(total_input=0, cache_read=0)
    with open_store(url) as store:
        store.write([Call(id="c", usage=usage)], source="t")
        store.write([Call(id="d")], source="t")
        (session,) = store.sessions()
    assert session.calls[0].usage == usage
    assert session.calls[0].usage is not None
    assert session.calls[0].usage.output is None
    assert session.calls[1].usage is None


def test_a_count_that_no_column_holds_becomes_unknown_and_is_flagged(url: str) -> None:
    usage = Usage(total_input=LARGEST, output=LARGEST + 1)
    with open_store(url) as store:
        store.write([Call(id="c", usage=usage)], source="t")
        (session,) = store.sessions()
    got = session.calls[0].usage
    assert got == Usage(total_input=LARGEST, output=None, flags=("wrong_type",))


def growing(turns: int, *, edit_at: int | None = None) -> list[Call]:
    """A conversation that grows by two content blocks a turn, its marker moving along."""
    made: list[Call] = []
    for turn in range(turns):
        count = 3 + 2 * turn
        built = []
        for index in range(count):
            text = f"turn {index}"
            if edit_at is not None and turn >= edit_at and index == 1:
                text = "edited"
            canonical = json.dumps({"text": text}).encode()
            built.append(
                ContentBlock(
                    level="messages",
                    path=f"messages[{index}].content[0]",
                    kind="text",
                    role="user",
                    message=index,
                    canonical=canonical,
                    digest=digest(canonical),
                    tokens=turn + index,
                    tokens_origin="recorded",
                    marker=Marker("1h") if index == count - 1 else None,
                )
            )
        prompt = Prompt(
            provider="anthropic",
            model="m",
            level_order=LEVELS,
            parameters=(),
            blocks=tuple(built),
            prefix_digests=chain(LEVELS, (), tuple(built)),
        )
        made.append(
            Call(
                id=f"c{turn}",
                session="s",
                started_at=float(turn),
                prompt=prompt,
                dedupe_key=f"{turn}",
            )
        )
    return made


def stored_entries(url: str) -> int:
    """How many entries of content-block lists the database holds."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("select length - shared from block_lists"))
        total = sum(row[0] for row in rows)
    engine.dispose()
    return total


def test_a_growing_conversation_stores_each_content_block_once(url: str) -> None:
    made = growing(40)
    with open_store(url) as store:
        store.write(made, source="t")
        (session,) = store.sessions()
    assert session.calls == tuple(map(without_canonical, made))
    assert stored_entries(url) == 3 + 2 * 39


def test_an_edit_costs_one_new_list_and_the_rest_goes_on_from_it(url: str) -> None:
    made = growing(10, edit_at=5)
    with open_store(url) as store:
        store.write(made, source="t")
        (session,) = store.sessions()
    assert session.calls == tuple(map(without_canonical, made))
    # Up to turn 4: 3 + 2*4. Turn 5 shares one of its 13, the four behind it add two each.
    assert stored_entries(url) == 11 + 12 + 8


def test_another_process_builds_on_the_lists_that_are_there(url: str) -> None:
    made = growing(20)
    for call in made:
        with open_store(url) as store:
            store.write([call], source="t")
    with open_store(url) as store:
        (session,) = store.sessions()
    assert session.calls == tuple(map(without_canonical, made))
    assert stored_entries(url) == 3 + 2 * 19


def test_a_prompt_without_content_blocks_is_not_a_missing_prompt(url: str) -> None:
    prompt = Prompt(
        provider="p", model=None, level_order=LEVELS, parameters=(), blocks=(), prefix_digests=()
    )
    with open_store(url) as store:
        store.write([Call(id="a", prompt=prompt), Call(id="b")], source="t")
        (session,) = store.sessions()
    assert [call.prompt for call in session.calls] == [prompt, None]


@given(data=st.data())
@settings(deadline=None, max_examples=80)
def test_lists_agree_with_the_plain_definition(data: st.DataObject) -> None:
    """The key says whether two lists are equal; the shared beginning is the naive one."""
    first = [data.draw(blocks("messages", i)) for i in range(data.draw(st.integers(0, 6)))]
    keep = data.draw(st.integers(0, len(first)))
    second = first[:keep] + [
        data.draw(blocks("messages", i)) for i in range(keep, data.draw(st.integers(keep, 7)))
    ]
    a, b = (_prompt_of(made) for made in (first, second))
    one = listing(a)
    two, fresh = listing(b, one), listing(b)
    assert two == fresh
    naive = 0
    for x, y in zip(one.items, two.items, strict=False):
        if x != y:
            break
        naive += 1
    assert common(one, two) == naive
    assert (one.key == two.key) == (one.items == two.items)
    assert listing(_prompt_of([])) == EMPTY


def _prompt_of(made: list[ContentBlock]) -> Prompt:
    return Prompt(
        provider="p",
        model=None,
        level_order=LEVELS,
        parameters=(),
        blocks=tuple(made),
        prefix_digests=chain(LEVELS, (), tuple(made)),
    )


CANARY = "CANARY words that a user typed"


@pytest.mark.parametrize("with_text", [False, True])
def test_text_is_stored_only_on_demand(tmp_path: Path, with_text: bool) -> None:
    canonical = json.dumps({"text": CANARY}).encode()
    block = ContentBlock(
        level="system", path="system[0]", kind="text", canonical=canonical, digest=digest(canonical)
    )
    call = Call(
        id="c",
        session="s",
        prompt=_prompt_of([block]),
        error=CallError("invalid_request_error", 400, f"bad content: {CANARY}"),
        extra={"note": CANARY, CANARY: 1, "api_key": "abc123", "n": 7, "id": "req_1"},
    )
    file = tmp_path / "store.db"
    with open_store(str(file), store_text=with_text) as store:
        store.write([call], source="t")
        (session,) = store.sessions()
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert (CANARY.encode() in raw) is with_text
    assert (b"abc123" in raw) is with_text
    back = session.calls[0]
    if with_text:
        assert back == call
        return
    assert back.error == CallError("invalid_request_error", 400, None)
    assert (back.extra["n"], back.extra["id"]) == (7, "req_1")
    assert back.prompt is not None
    assert back.prompt.blocks[0].size == len(canonical)
    assert back.prompt.blocks[0].digest == block.digest


def test_text_can_be_added_later(url: str) -> None:
    made = growing(3)
    with open_store(url) as store:
        store.write(made, source="t")
    with open_store(url, store_text=True) as store:
        assert store.write(made, source="t").unchanged == 3
        (session,) = store.sessions()
    assert session.calls == tuple(made)

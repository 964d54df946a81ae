"""Bodies kept as the end of an earlier one: they are the same bytes, and little is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.agent.rope import Packer, Rope, alike, common, rope

# Few letters, so that beginnings are often shared.
BYTES = st.binary(max_size=300).map(lambda data: bytes(value % 2 for value in data))
LONG = b"x" * 20_000


@st.composite
def ropes(draw: st.DrawFn, base: bytes | None = None) -> Rope:
    base = draw(BYTES) if base is None else base
    return Rope(base, draw(st.integers(0, len(base))), draw(BYTES))


def naive(one: bytes, other: bytes) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


@given(BYTES, BYTES, st.integers(-5, 400))
def test_shared_beginnings_are_counted_exactly(one: bytes, other: bytes, hint: int) -> None:
    assert alike(one, other, hint) == naive(one, other)
    assert alike(one + other, one, hint) == len(one)


@given(BYTES, st.data())
def test_ropes_share_what_their_bytes_share(base: bytes, data: st.DataObject) -> None:
    one, other = data.draw(ropes(base)), data.draw(ropes(base))
    assert common(one, other) == naive(bytes(one), bytes(other))
    apart = data.draw(ropes())
    assert common(one, apart) == naive(bytes(one), bytes(apart))


@given(ropes(), st.integers(0, 400), st.integers(0, 400), BYTES)
def test_a_rope_is_cut_and_searched_like_its_bytes(
    made: Rope, start: int, stop: int, text: bytes
) -> None:
    whole = bytes(made)
    assert len(made) == len(whole)
    assert made.cut(start, max(start, stop)) == whole[start : max(start, stop)]
    assert made.cut(start) == whole[start:]
    for part in (text[:3], whole[start:stop]):
        assert made.find(part, start) == whole.find(part, start) or start >= made.shared


@given(st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=9_000)), max_size=12))
def test_what_is_packed_is_what_was_given(bodies: list[tuple[str, bytes]]) -> None:
    packer = Packer(lines=1, limit=60_000)
    for line, end in bodies:
        body = LONG + end
        assert bytes(packer.pack(line, body)) == body


def test_a_conversation_that_grows_is_held_once() -> None:
    packer = Packer()
    first = packer.pack("a", LONG)
    later = [packer.pack("a", LONG + bytes(10 * n)) for n in range(1, 9)]
    assert all(made.base is first.base for made in later)
    assert [len(made.tail) for made in later] == [10 * n for n in range(1, 9)]


def test_what_has_much_of_its_own_is_compared_with_from_then_on() -> None:
    packer = Packer()
    packer.pack("a", LONG)
    grown = LONG + b"y" * 4_000
    assert packer.pack("a", grown) == rope(grown)
    assert packer.pack("a", grown + b"z").base is grown


@pytest.mark.parametrize("body", [b"", b"short", b"x" * 16_000])
def test_short_bodies_stay_as_they_are(body: bytes) -> None:
    packer = Packer()
    assert packer.pack("a", body) == packer.pack("a", body) == rope(body)


def test_no_more_is_kept_than_was_allowed() -> None:
    packer = Packer(lines=3, limit=50_000)
    for name in "abcdef":
        packer.pack(name, LONG + name.encode())
    again = [packer.pack(name, LONG + name.encode() + b"!") for name in "abcdef"]
    assert sum(bool(made.tail) for made in again) <= 2

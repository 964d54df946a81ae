"""Bytes to events: however the stream is cut, the same events come out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.dialects.sse import SseDecoder, SseEvent, decode_sse

STREAM = (
    b'\xef\xbb\xbfevent: message_start\r\ndata: {"a":\r\ndata: 1}\r\n\r\n'
    b": keep-alive\n\n"
    b"id: 7\ndata:no blank\n\n"
    b"data\n\n"
    b"event: x\rdata: caf\xc3\xa9 \xf0\x9f\x98\x80\r\r"
    b"retry: 10\nunknown: y\n\n"
    b"data: [DONE]"
)
EVENTS = [
    SseEvent('{"a":\n1}', "message_start"),
    SseEvent("no blank", None, "7"),
    SseEvent("", None, "7"),
    SseEvent("café 😀", "x", "7"),
    SseEvent("[DONE]", None, "7"),
]


def test_one_piece() -> None:
    assert list(decode_sse([STREAM])) == EVENTS
    assert EVENTS[0].json() == {"a": 1}
    assert EVENTS[4].json() is None
    assert SseEvent("[1]").json() is None


def test_byte_by_byte() -> None:
    assert list(decode_sse([bytes([byte]) for byte in STREAM])) == EVENTS


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=30))
def test_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[a:b] for a, b in pairwise(edges)]
    assert list(decode_sse(chunks)) == EVENTS


@given(st.binary(max_size=200), st.data())
def test_any_bytes_in_any_pieces_agree_with_the_whole(raw: bytes, data: st.DataObject) -> None:
    whole = list(decode_sse([raw]))
    cuts = data.draw(st.lists(st.integers(min_value=0, max_value=len(raw)), max_size=8))
    edges = [0, *sorted(cuts), len(raw)]
    assert list(decode_sse(raw[a:b] for a, b in pairwise(edges))) == whole


TOKENS = st.sampled_from([b"data", b":", b" ", b"\r", b"\n", b"\r\n", b"event", b"x", b"\n\n"])


@given(st.lists(TOKENS, max_size=40), st.lists(st.integers(0, 120), max_size=10))
def test_line_ends_in_any_pieces_agree_with_the_whole(tokens: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(tokens)
    edges = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    pieces = [raw[a:b] for a, b in pairwise(edges)]
    assert list(decode_sse(pieces)) == list(decode_sse([raw]))


def test_events_come_as_soon_as_they_are_complete() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: 1\n") == []
    assert decoder.feed(b"\ndata: 2") == [SseEvent("1")]
    assert decoder.close() == [SseEvent("2")]
    assert decoder.close() == []


@pytest.mark.parametrize("size", [1, 7, 1_000])
@pytest.mark.parametrize(
    "middle", [b"data: " + b"x" * 500 + b"\n\n", b"data: xxxx\n" * 60 + b"\n", b"x" * 900 + b"\n\n"]
)
def test_an_event_without_end_is_dropped_and_the_next_one_read(size: int, middle: bytes) -> None:
    raw = b"data: one\n\n" + middle + b"data: two\n\n"
    decoder = SseDecoder(longest=100)
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    found = [event.data for event in decode_sse(pieces, decoder)]
    assert (found[0], found[-1]) == ("one", "two")
    # A line that came whole was in memory already and is no data.
    assert len(found) == 2
    assert decoder.dropped == (0 if size == 1_000 and b"data" not in middle else 1)

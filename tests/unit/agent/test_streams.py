"""Streams pass through piece by piece; what they said is kept however they end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anthropic
import brotli
import pytest

from cacheaudit import CacheAudit
from cacheaudit.model.call import Call
from cacheaudit.model.usage import FLAG_OUTPUT_LOWER_BOUND
from tests.unit.agent.servers import (
    HTTP,
    KEY,
    MODEL,
    Pieces,
    Reply,
    Script,
    async_client,
    client,
    events,
    frame,
    gzipped,
    loopback,
)

ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 16,
    "messages": [{"role": "user", "content": "hello"}],
}


def only(audit: CacheAudit, name: str = "s") -> Call:
    (call,) = audit.session(name).calls()
    return call


def assert_counted_at_the_start(call: Call) -> None:
    assert call.usage is not None
    assert (call.usage.uncached_input, call.usage.cache_read, call.usage.write_5m) == (
        40,
        2000,
        300,
    )
    assert call.usage.output == 1
    assert call.usage.flags == (FLAG_OUTPUT_LOWER_BOUND,)
    assert call.extra["abandoned"] is True
    assert call.stop_reason is None
    assert call.ended_at is not None


class Stepwise(HTTP.SyncByteStream, HTTP.AsyncByteStream):
    """Notes the moment at which each piece is asked for."""

    def __init__(self, pieces: list[bytes], log: list[str]) -> None:
        self.pieces, self.log = pieces, log

    def __iter__(self) -> Iterator[bytes]:
        for number, piece in enumerate(self.pieces):
            self.log.append(f"sent {number}")
            yield piece
        self.log.append("end")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.log.append("closed")

    async def aclose(self) -> None:
        self.log.append("closed")


def stepwise(log: list[str], pieces: list[bytes]) -> Any:
    head = {"content-type": "text/event-stream"}
    return HTTP.MockTransport(
        lambda _: HTTP.Response(200, headers=head, stream=Stepwise(pieces, log))
    )


@pytest.mark.parametrize("recorded", [False, True])
def test_no_piece_is_held_back(audit: CacheAudit, recorded: bool) -> None:
    """The next piece is asked for only when the caller has had the one before."""
    log: list[str] = []
    http = HTTP.Client(transport=stepwise(log, events()))
    own = anthropic.Anthropic(api_key=KEY, http_client=http)
    wrapped = audit.wrap(own) if recorded else own
    with wrapped.messages.with_streaming_response.create(**ASK, stream=True) as response:
        for number, _ in enumerate(response.http_response.iter_raw()):
            log.append(f"got {number}")
    expected = [f"{word} {n}" for n in range(len(events())) for word in ("sent", "got")]
    assert log == [*expected, "end", "closed"]


@pytest.mark.parametrize("recorded", [False, True])
def test_no_piece_is_held_back_async(audit: CacheAudit, recorded: bool) -> None:
    log: list[str] = []

    async def run() -> None:
        http = HTTP.AsyncClient(transport=stepwise(log, events()))
        own = anthropic.AsyncAnthropic(api_key=KEY, http_client=http)
        wrapped = audit.wrap(own) if recorded else own
        streaming = wrapped.messages.with_streaming_response
        async with streaming.create(**ASK, stream=True) as response:
            number = 0
            async for _ in response.http_response.aiter_raw():
                log.append(f"got {number}")
                number += 1

    asyncio.run(run())
    expected = [f"{word} {n}" for n in range(len(events())) for word in ("sent", "got")]
    assert log == [*expected, "end", "closed"]


def test_the_first_token_is_timed_apart_from_the_first_byte(
    make: Callable[..., CacheAudit],
) -> None:
    """A clock that counts how often it is asked stands in for time."""

    class Steps:
        at = 1_800_000_000.0

        def now(self) -> float:
            self.at += 1
            return self.at

    audit = make(clock=Steps())
    with audit.session("s"):
        list(audit.wrap(client(Script())).messages.create(**ASK, stream=True))
    call = only(audit)
    assert call.started_at is not None
    assert call.first_token_at is not None
    assert call.ended_at is not None
    # Start, head, then one reading a piece: the fourth piece is the first with text.
    assert call.first_token_at - call.started_at == 5
    assert call.ended_at - call.started_at == 1 + len(events()) + 1


def test_a_caller_who_breaks_out(audit: CacheAudit) -> None:
    with audit.session("s"):
        stream = audit.wrap(client(Script())).messages.create(**ASK, stream=True)
        for event in stream:
            if event.type == "content_block_delta":
                break
        stream.close()
    assert_counted_at_the_start(only(audit))


def test_a_caller_who_drops_the_stream(audit: CacheAudit) -> None:
    with audit.session("s"):
        stream = audit.wrap(client(Script())).messages.create(**ASK, stream=True)
        next(iter(stream))
        del stream
        gc.collect()
    assert_counted_at_the_start(only(audit))


def test_a_caller_who_leaves_the_helper(audit: CacheAudit) -> None:
    with audit.session("s"), audit.wrap(client(Script())).messages.stream(**ASK) as stream:
        next(iter(stream.text_stream))
    assert_counted_at_the_start(only(audit))


def test_a_caller_who_raises_inside(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))

    def read_and_fail() -> None:
        with audit.session("s"), wrapped.messages.stream(**ASK) as stream:
            next(iter(stream.text_stream))
            raise LookupError

    with pytest.raises(LookupError):
        read_and_fail()
    assert_counted_at_the_start(only(audit))


def test_a_caller_who_breaks_out_async(audit: CacheAudit) -> None:
    async def run() -> None:
        async with audit.session("s"):
            stream = await audit.wrap(async_client(Script())).messages.create(**ASK, stream=True)
            async for event in stream:
                if event.type == "content_block_delta":
                    break
            await stream.close()

    asyncio.run(run())
    assert_counted_at_the_start(only(audit))


def test_a_stream_never_read_is_recorded_without_usage(audit: CacheAudit) -> None:
    with audit.session("s"):
        audit.wrap(client(Script())).messages.create(**ASK, stream=True).close()
    call = only(audit)
    assert call.usage is None
    assert call.extra["abandoned"] is True
    assert call.prompt is not None


def test_a_stream_left_after_its_last_message_is_whole(audit: CacheAudit) -> None:
    with audit.session("s"):
        stream = audit.wrap(client(Script())).messages.create(**ASK, stream=True)
        for event in stream:
            if event.type == "message_stop":
                break
        stream.close()
    call = only(audit)
    assert call.usage is not None
    assert (call.usage.output, call.usage.flags) == (12, ())
    assert "abandoned" not in call.extra


def test_a_stream_that_runs_is_written_before_it_ends(audit: CacheAudit) -> None:
    """What ``message_start`` said is safe while the caller is still reading."""
    with audit.session("s"):
        stream = audit.wrap(client(Script())).messages.create(**ASK, stream=True)
        iterator = iter(stream)
        next(iterator)
        running = only(audit)
        list(iterator)
    ended = only(audit)
    assert running.usage is not None
    assert (running.usage.cache_read, running.usage.output) == (2000, 1)
    assert running.usage.flags == (FLAG_OUTPUT_LOWER_BOUND,)
    assert running.extra["unfinished"] is True
    assert ended.usage is not None
    assert (ended.usage.cache_read, ended.usage.output) == (2000, 12)
    assert ended.prompt == running.prompt
    assert (ended.id, ended.dedupe_key) == (running.id, running.dedupe_key)
    assert "unfinished" not in ended.extra


@pytest.mark.parametrize("cut_at", [1, 4])
def test_a_cut_stream(audit: CacheAudit, cut_at: int) -> None:
    script = Script(Reply(frames=events()[:cut_at], cut=True))
    with audit.session("s"), pytest.raises((HTTP.RemoteProtocolError, anthropic.APIError)):
        list(audit.wrap(client(script)).messages.create(**ASK, stream=True))
    call = only(audit)
    assert call.error is not None
    assert call.error.type == "connection"
    assert call.usage is not None
    assert call.usage.cache_read == 2000
    assert FLAG_OUTPUT_LOWER_BOUND in call.usage.flags


def test_a_stream_cut_on_a_real_connection(audit: CacheAudit) -> None:
    script = Script(Reply(frames=events()[:4], cut=True))
    with (
        loopback(script) as address,
        anthropic.Anthropic(api_key=KEY, base_url=address) as own,
        audit.session("s"),
        pytest.raises((HTTP.RemoteProtocolError, anthropic.APIError)),
    ):
        list(audit.wrap(own).messages.create(**ASK, stream=True))
    call = only(audit)
    assert call.usage is not None
    assert call.usage.cache_read == 2000


def test_an_error_inside_a_stream(audit: CacheAudit) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    script = Script(Reply(frames=[*events()[:3], frame("error", error)]))
    with audit.session("s"), pytest.raises(anthropic.APIStatusError):
        list(audit.wrap(client(script)).messages.create(**ASK, stream=True))
    call = only(audit)
    assert call.error is not None
    assert call.error.type == "overloaded_error"
    assert call.usage is not None
    assert call.usage.cache_read == 2000


def test_unknown_events_and_damage_are_passed_over(audit: CacheAudit) -> None:
    odd = [
        frame("event_of_the_future", {"type": "event_of_the_future", "usage": 7}),
        b": a remark\n\n",
        b"data: {not json\n\n",
        b"event: \xff\xfe\ndata: {}\n\n",
    ]
    pieces = [events()[0], *odd, *events()[1:]]
    with audit.session("s"):
        wrapped = audit.wrap(client(Script(Reply(frames=pieces))))
        with wrapped.messages.with_streaming_response.create(**ASK, stream=True) as response:
            assert b"".join(response.iter_bytes()) == b"".join(pieces)
    call = only(audit)
    assert call.usage is not None
    assert (call.usage.cache_read, call.usage.output, call.usage.flags) == (2000, 12, ())


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_pieces_of_any_size(audit: CacheAudit, size: int) -> None:
    data = b"".join(events())
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    with audit.session("s"):
        list(audit.wrap(client(Script(Reply(frames=pieces)))).messages.create(**ASK, stream=True))
    call = only(audit)
    assert call.usage is not None
    assert (call.usage.total_input, call.usage.output) == (2340, 12)
    assert call.first_token_at is not None


def test_a_compressed_stream(audit: CacheAudit) -> None:
    reply = Reply(frames=gzipped(events()), headers={"content-encoding": "gzip"})
    with audit.session("s"):
        found = list(audit.wrap(client(Script(reply))).messages.create(**ASK, stream=True))
    assert found[-1].type == "message_stop"
    call = only(audit)
    assert call.usage is not None
    assert (call.usage.total_input, call.usage.output) == (2340, 12)


def test_a_compressed_stream_that_is_left(audit: CacheAudit) -> None:
    import zlib

    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(e) + packer.flush(zlib.Z_SYNC_FLUSH) for e in events()]
    reply = Reply(frames=pieces, headers={"content-encoding": "gzip"})
    with audit.session("s"):
        stream = audit.wrap(client(Script(reply))).messages.create(**ASK, stream=True)
        next(iter(stream))
        stream.close()
    assert_counted_at_the_start(only(audit))


def brotlied(frames: list[bytes]) -> list[bytes]:
    packer = brotli.Compressor()
    return [packer.process(piece) + packer.flush() for piece in frames] + [packer.finish()]


def test_a_brotli_stream(audit: CacheAudit) -> None:
    reply = Reply(frames=brotlied(events()), headers={"content-encoding": "br"})
    with audit.session("s"):
        found = list(audit.wrap(client(Script(reply))).messages.create(**ASK, stream=True))
    assert found[-1].type == "message_stop"
    call = only(audit)
    assert call.usage is not None
    assert (call.usage.total_input, call.usage.output) == (2340, 12)
    assert call.first_token_at is not None


def test_a_brotli_stream_that_is_left(audit: CacheAudit) -> None:
    reply = Reply(frames=brotlied(events()), headers={"content-encoding": "br"})
    with audit.session("s"):
        stream = audit.wrap(client(Script(reply))).messages.create(**ASK, stream=True)
        next(iter(stream))
        stream.close()
    assert_counted_at_the_start(only(audit))


def test_a_cancelled_reader(audit: CacheAudit) -> None:
    reached = asyncio.Event()

    class Endless(Pieces):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield events()[0]
            reached.set()
            await asyncio.Event().wait()

    head = {"content-type": "text/event-stream"}
    mock = HTTP.MockTransport(lambda _: HTTP.Response(200, headers=head, stream=Endless([])))

    async def run() -> None:
        own = anthropic.AsyncAnthropic(api_key=KEY, http_client=HTTP.AsyncClient(transport=mock))

        async def read() -> None:
            with audit.session("s"):
                async for _ in await audit.wrap(own).messages.create(**ASK, stream=True):
                    pass

        task = asyncio.create_task(read())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    call = only(audit)
    assert call.error is not None
    assert call.error.type == "cancelled"
    assert call.usage is not None
    assert call.usage.cache_read == 2000


def test_a_call_cancelled_before_any_answer_keeps_its_prompt(audit: CacheAudit) -> None:
    async def run() -> None:
        asked = asyncio.Event()

        async def hang(_: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        http = HTTP.AsyncClient(transport=HTTP.MockTransport(hang))
        own = anthropic.AsyncAnthropic(api_key=KEY, http_client=http)

        async def call() -> None:
            with audit.session("s"):
                await audit.wrap(own).messages.create(**ASK)

        task = asyncio.create_task(call())
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    call = only(audit)
    assert call.error is not None
    assert call.error.type == "cancelled"
    assert call.usage is None
    assert call.prompt is not None
    assert len(call.prompt.blocks) == 1


def test_a_very_long_answer_keeps_its_usage(audit: CacheAudit, monkeypatch: Any) -> None:
    monkeypatch.setattr("cacheaudit.agent.attempt.LONGEST_ANSWER", 20_000)
    filler = frame(
        "content_block_delta",
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "x" * 500},
        },
    )
    whole = events()
    pieces = [*whole[:3], *[filler] * 500, *whole[-3:]]
    with audit.session("s"):
        found = list(
            audit.wrap(client(Script(Reply(frames=pieces)))).messages.create(**ASK, stream=True)
        )
    assert len(found) == len(pieces) - 1  # the SDK keeps pings to itself
    call = only(audit)
    assert call.usage is not None
    assert (call.usage.total_input, call.usage.output, call.stop_reason) == (2340, 12, "end_turn")


def test_what_else_is_asked_of_a_stream_is_asked_of_the_real_one(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    with wrapped.messages.with_streaming_response.create(**ASK, stream=True) as response:
        stream = response.http_response.stream
        assert isinstance(stream, HTTP.SyncByteStream)
        with pytest.raises(AttributeError):
            _ = stream.no_such_thing
        assert response.http_response.read() == b"".join(events())
        assert response.elapsed.total_seconds() >= 0

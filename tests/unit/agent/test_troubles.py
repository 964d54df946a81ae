"""Trouble on real connections, by way of the SDK's middleware and of both HTTP libraries."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import threading
from typing import Any

import anthropic
import pytest

from cacheaudit import CacheAudit
from cacheaudit.model.call import Call
from tests.unit.agent.servers import KEY, MODEL, Reply, Script, events, frame, loopback, message

WAYS = ["sdk", "httpx", "httpx2"]
ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 16,
    "messages": [{"role": "user", "content": "hello"}],
}


class Late:
    """An answer that comes when it is let go."""

    def __init__(self) -> None:
        self.arrived, self.go = threading.Event(), threading.Event()

    def __call__(self, _: bytes) -> Reply:
        self.arrived.set()
        assert self.go.wait(20)
        return Reply(message())


async def ask(audit: CacheAudit, way: str, address: str, timeout: float, *, stream: bool) -> bytes:
    """Send one request and read the answer's bytes."""
    if way == "sdk":
        async with anthropic.AsyncAnthropic(
            api_key=KEY, base_url=address, timeout=timeout, max_retries=0
        ) as own:
            streaming = audit.wrap(own).messages.with_streaming_response
            async with streaming.create(**ASK, stream=stream) as response:
                return b"".join([piece async for piece in response.iter_bytes()])
    http = importlib.import_module(way)
    moved = audit.transport(http.AsyncHTTPTransport())
    async with (
        http.AsyncClient(transport=moved, timeout=timeout) as client,
        client.stream("POST", f"{address}/v1/messages", json={**ASK, "stream": stream}) as answer,
    ):
        return b"".join([piece async for piece in answer.aiter_bytes()])


def one(audit: CacheAudit) -> Call:
    (call,) = audit.session("s").calls()
    assert audit.state.faults == {}
    assert call.prompt is not None
    return call


@pytest.mark.parametrize("way", WAYS)
def test_a_time_out(audit: CacheAudit, way: str) -> None:
    late = Late()
    with loopback(Script(late)) as address, audit.session("s"):
        with pytest.raises(Exception, match=r"(?i)timed? ?out|^$"):
            asyncio.run(ask(audit, way, address, 0.2, stream=False))
        late.go.set()
    call = one(audit)
    assert call.error is not None
    assert (call.error.type, call.usage) == ("timeout", None)


@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_task(audit: CacheAudit, way: str) -> None:
    late = Late()

    async def run(address: str) -> None:
        task = asyncio.create_task(ask(audit, way, address, 20, stream=False))
        while not late.arrived.is_set():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with loopback(Script(late)) as address, audit.session("s"):
        asyncio.run(run(address))
        late.go.set()
    call = one(audit)
    assert call.error is not None
    assert (call.error.type, call.usage) == ("cancelled", None)


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_is_cut(audit: CacheAudit, way: str) -> None:
    script = Script(Reply(frames=events(1)[:4], cut=True))
    with (
        loopback(script) as address,
        audit.session("s"),
        pytest.raises(Exception, match=r"(?i)peer closed|incomplete|connection"),
    ):
        asyncio.run(ask(audit, way, address, 20, stream=True))
    call = one(audit)
    assert call.error is not None
    assert call.error.type == "connection"
    assert call.usage is not None
    assert (call.usage.cache_read, call.usage.write_5m) == (2000, 300)
    assert call.stop_reason is None


@pytest.mark.parametrize("way", WAYS)
def test_damaged_and_unknown_events_pass_byte_for_byte(audit: CacheAudit, way: str) -> None:
    known = events(1)
    strange = [
        frame("telemetry_v9", {"type": "telemetry_v9", "usage": {"input_tokens": 7}}),
        b"event: content_block_delta\ndata: {broken json\n\n",
        b": comment\r\n\r\n",
        b"data\n\nretry: soon\n\n",
        b"event: ping\ndata: \xff\xfe\n\n",
    ]
    frames = [known[0], *strange, *known[1:]]
    with loopback(Script(Reply(frames=frames))) as address, audit.session("s"):
        got = asyncio.run(ask(audit, way, address, 20, stream=True))
    assert got == b"".join(frames)
    call = one(audit)
    assert call.error is None
    assert call.usage is not None
    assert (call.usage.uncached_input, call.usage.output) == (40, 12)
    assert call.stop_reason == "end_turn"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", [429, 529])
def test_refusals_keep_their_status(audit: CacheAudit, way: str, status: int) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
    with (
        loopback(Script(Reply(body, status))) as address,
        audit.session("s"),
        contextlib.suppress(anthropic.APIStatusError),
    ):
        asyncio.run(ask(audit, way, address, 20, stream=True))
    call = one(audit)
    assert call.error is not None
    assert (call.error.type, call.error.status) == ("overloaded_error", status)

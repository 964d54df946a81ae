"""Every other client: one transport in front of ``httpx`` and of ``httpx2``."""

from __future__ import annotations

import asyncio
import importlib
import json
from typing import Any

import pytest

from cacheaudit import CacheAudit
from tests.unit.agent.servers import MODEL, Pieces, Script, events, loopback, message

LIBRARIES = ["httpx", "httpx2"]
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-5.4",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ],
    "usage": {
        "prompt_tokens": 3000,
        "completion_tokens": 9,
        "total_tokens": 3009,
        "prompt_tokens_details": {"cached_tokens": 2048},
    },
}
CHUNKS = [
    {
        "id": "chatcmpl-1",
        "model": "gpt-5.4",
        "choices": [{"index": 0, "delta": {"role": "assistant"}}],
    },
    {"id": "chatcmpl-1", "model": "gpt-5.4", "choices": [{"index": 0, "delta": {"content": "hi"}}]},
    {
        "id": "chatcmpl-1",
        "model": "gpt-5.4",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    },
    {"id": "chatcmpl-1", "model": "gpt-5.4", "choices": [], "usage": CHAT["usage"]},
]
STREAM = [*(b"data: " + json.dumps(c).encode() + b"\n\n" for c in CHUNKS), b"data: [DONE]\n\n"]
ASK = {"model": "gpt-5.4", "messages": [{"role": "user", "content": "hello"}]}
OPENAI = "https://api.openai.com/v1/chat/completions"


def library(name: str) -> Any:
    return importlib.import_module(name)


def pieces(http: Any, chunks: list[bytes]) -> Any:
    """Make a stream of a library's own kind."""

    class Own(http.SyncByteStream, http.AsyncByteStream):
        __init__ = Pieces.__init__
        __iter__ = Pieces.__iter__
        __aiter__ = Pieces.__aiter__
        close = Pieces.close
        aclose = Pieces.aclose

    return Own(chunks)


def answering(http: Any, body: Any = None, chunks: list[bytes] | None = None) -> Any:
    def handle(_: Any) -> Any:
        if chunks is None:
            return http.Response(200, json=body)
        head = {"content-type": "text/event-stream"}
        return http.Response(200, headers=head, stream=pieces(http, chunks))

    return http.MockTransport(handle)


def assert_chat(audit: CacheAudit, streamed: bool) -> None:
    (call,) = audit.session("s").calls()
    assert (call.provider, call.surface, call.model) == ("openai", "openai", "gpt-5.4")
    assert call.usage is not None
    assert (call.usage.uncached_input, call.usage.cache_read) == (952, 2048)
    assert (call.usage.total_input, call.usage.output) == (3000, 9)
    assert call.usage.flags == ()
    assert call.prompt is not None
    assert call.prompt.provider == "openai"
    assert [block.kind for block in call.prompt.blocks] == ["text"]
    assert call.stop_reason == "stop"
    assert (call.first_token_at is not None) == streamed
    assert audit.state.faults == {}


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("streamed", [False, True])
def test_openai_over_both_libraries(audit: CacheAudit, name: str, streamed: bool) -> None:
    http = library(name)
    inner = answering(http, CHAT, STREAM if streamed else None)
    with (
        http.Client(transport=audit.transport(inner)) as client,
        audit.session("s"),
        client.stream("POST", OPENAI, json={**ASK, "stream": streamed}) as response,
    ):
        got = b"".join(response.iter_bytes())
    assert got == (b"".join(STREAM) if streamed else http.Response(200, json=CHAT).content)
    assert_chat(audit, streamed)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("streamed", [False, True])
def test_openai_over_both_libraries_async(audit: CacheAudit, name: str, streamed: bool) -> None:
    http = library(name)
    inner = answering(http, CHAT, STREAM if streamed else None)

    async def run() -> bytes:
        async with http.AsyncClient(transport=audit.transport(inner)) as client:
            with audit.session("s"):
                async with client.stream("POST", OPENAI, json={**ASK, "stream": streamed}) as r:
                    return b"".join([piece async for piece in r.aiter_bytes()])

    got = asyncio.run(run())
    assert got == (b"".join(STREAM) if streamed else http.Response(200, json=CHAT).content)
    assert_chat(audit, streamed)


@pytest.mark.parametrize("name", LIBRARIES)
def test_over_a_real_connection(audit: CacheAudit, name: str) -> None:
    http = library(name)
    body = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    with (
        loopback(Script()) as address,
        audit.session("s"),
        http.Client(transport=audit.transport(http.HTTPTransport())) as client,
    ):
        plain = client.post(f"{address}/v1/messages", json=body)
        streamed = client.post(f"{address}/v1/messages", json={**body, "stream": True})
        client.get(f"{address}/v1/models")
    assert plain.json()["usage"] == message()["usage"]
    assert streamed.content == b"".join(events(2))
    calls = audit.session("s").calls()
    assert [call.usage and call.usage.total_input for call in calls] == [2340, 2340]
    assert [call.provider for call in calls] == ["anthropic", "anthropic"]
    assert [call.surface for call in calls] == ["other", "other"]


def test_behind_respx(audit: CacheAudit) -> None:
    import httpx
    import respx

    with respx.mock(base_url="https://api.deepseek.com") as router, audit.session("s"):
        router.post("/chat/completions").respond(
            json={
                **CHAT,
                "model": "deepseek-chat",
                "usage": {
                    "prompt_tokens": 1000,
                    "completion_tokens": 5,
                    "prompt_cache_hit_tokens": 640,
                    "prompt_cache_miss_tokens": 360,
                },
            }
        )
        with httpx.Client(transport=audit.transport(httpx.HTTPTransport())) as client:
            client.post(
                "https://api.deepseek.com/chat/completions",
                json={**ASK, "model": "deepseek-chat"},
            )
    (call,) = audit.session("s").calls()
    assert (call.provider, call.model) == ("deepseek", "deepseek-chat")
    assert call.usage is not None
    assert (call.usage.uncached_input, call.usage.cache_read) == (360, 640)


@pytest.mark.parametrize("name", LIBRARIES)
def test_retries_are_linked_by_the_count_in_the_header(audit: CacheAudit, name: str) -> None:
    http = library(name)
    answers = iter([http.Response(503, json={"error": {"message": "busy"}}), None])

    def handle(_: Any) -> Any:
        return next(answers) or http.Response(200, json=CHAT)

    with (
        http.Client(transport=audit.transport(http.MockTransport(handle))) as client,
        audit.session("s"),
    ):
        for count in ("0", "1"):
            client.post(OPENAI, json=ASK, headers={"x-stainless-retry-count": count})
    first, second = audit.session("s").calls()
    assert (first.attempt, second.attempt) == (0, 1)
    assert first.error is not None
    assert first.error.status == 503
    assert second.purpose == "retry"
    assert first.dedupe_key == f"recorder:{second.extra['logical_call']}"


@pytest.mark.parametrize("name", LIBRARIES)
def test_failures_reach_the_caller_and_the_record(audit: CacheAudit, name: str) -> None:
    http = library(name)

    def handle(request: Any) -> Any:
        raise http.ConnectTimeout("slow", request=request)

    with (
        http.Client(transport=audit.transport(http.MockTransport(handle))) as client,
        audit.session("s"),
        pytest.raises(http.ConnectTimeout),
    ):
        client.post(OPENAI, json=ASK)
    (call,) = audit.session("s").calls()
    assert call.error is not None
    assert call.error.type == "timeout"
    assert call.prompt is not None


def test_a_body_that_is_a_stream_is_left_to_the_transport(audit: CacheAudit) -> None:
    http = library("httpx2")
    seen: list[bytes] = []

    def handle(request: Any) -> Any:
        seen.append(b"".join(request.stream))
        return http.Response(200, json=CHAT)

    class Inner:
        handle_request = staticmethod(handle)

        def close(self) -> None:
            pass

    def body() -> Any:
        yield json.dumps(ASK).encode()

    with audit.session("s"):
        client = http.Client(transport=audit.transport(Inner()))
        client.post(OPENAI, content=body())
    assert json.loads(seen[0]) == ASK
    (call,) = audit.session("s").calls()
    assert call.prompt is None
    assert call.usage is not None
    assert set(audit.state.faults) == {"body:RequestNotRead"}


def test_other_addresses_are_let_through_unseen(audit: CacheAudit) -> None:
    http = library("httpx2")
    with http.Client(transport=audit.transport(answering(http, {"data": []}))) as client:
        client.get("https://api.openai.com/v1/models")
        client.post("https://api.openai.com/v1/embeddings", json={})
        client.post("https://example.org/anything", json={"a": 1})
    assert audit.state.waiting == 0
    assert audit.sessions() == []


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_transport_behind_is_opened_and_closed_once(audit: CacheAudit, name: str) -> None:
    log: list[str] = []

    class Inner:
        def __enter__(self) -> None:
            log.append("enter")

        def __exit__(self, *_: Any) -> None:
            log.append("exit")

        async def __aenter__(self) -> None:
            log.append("aenter")

        async def __aexit__(self, *_: Any) -> None:
            log.append("aexit")

    http = library(name)
    with http.Client(transport=audit.transport(Inner())):
        pass

    async def run() -> None:
        async with http.AsyncClient(transport=audit.transport(Inner())):
            pass

    asyncio.run(run())
    assert log == ["enter", "exit", "aenter", "aexit"]


def test_responses_that_continue_are_rebuilt(audit: CacheAudit) -> None:
    http = library("httpx2")
    numbers = iter(range(1, 9))

    def handle(_: Any) -> Any:
        number = next(numbers)
        return http.Response(
            200,
            json={
                "id": f"resp_{number}",
                "object": "response",
                "model": "gpt-5.6",
                "status": "completed",
                "output": [
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": f"answer {number}"}],
                    }
                ],
                "usage": {
                    "input_tokens": 100 * number,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens": 3,
                    "total_tokens": 100 * number + 3,
                },
            },
        )

    with (
        http.Client(transport=audit.transport(http.MockTransport(handle))) as client,
        audit.session("s"),
    ):
        url = "https://api.openai.com/v1/responses"
        client.post(url, json={"model": "gpt-5.6", "input": "one"})
        client.post(
            url, json={"model": "gpt-5.6", "input": "two", "previous_response_id": "resp_1"}
        )
    first, second = audit.session("s").calls()
    assert first.prompt is not None
    assert second.prompt is not None
    assert len(first.prompt.blocks) == 1
    assert len(second.prompt.blocks) == 3
    assert second.prompt.prefix_digests[0] == first.prompt.prefix_digests[0]

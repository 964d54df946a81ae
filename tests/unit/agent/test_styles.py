"""Every style of the SDK is recorded with the tokens that the server counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anthropic
import pytest

from cacheaudit import CacheAudit
from cacheaudit.errors import UsageError
from cacheaudit.model.call import Call
from tests.unit.agent.servers import (
    HTTP,
    KEY,
    MODEL,
    Reply,
    Script,
    async_client,
    client,
    loopback,
)

ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 16,
    "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": "hello"}],
}


def create(c: Any) -> str:
    return str(c.messages.create(**ASK).content[0].text)


def create_stream(c: Any) -> str:
    with c.messages.create(**ASK, stream=True) as stream:
        return "".join(e.delta.text for e in stream if e.type == "content_block_delta")


def helper(c: Any) -> str:
    with c.messages.stream(**ASK) as stream:
        return "".join(stream.text_stream)


def helper_final(c: Any) -> str:
    with c.messages.stream(**ASK) as stream:
        return str(stream.get_final_message().content[0].text)


def raw(c: Any) -> str:
    return str(c.messages.with_raw_response.create(**ASK).parse().content[0].text)


def raw_stream(c: Any) -> str:
    stream = c.messages.with_raw_response.create(**ASK, stream=True).parse()
    return "".join(e.delta.text for e in stream if e.type == "content_block_delta")


def streamed_response(c: Any) -> str:
    with c.messages.with_streaming_response.create(**ASK) as response:
        return str(response.parse().content[0].text)


def beta(c: Any) -> str:
    return str(c.beta.messages.create(**ASK, betas=["some-beta-2026-01-01"]).content[0].text)


def beta_helper(c: Any) -> str:
    with c.beta.messages.stream(**ASK) as stream:
        return "".join(stream.text_stream)


SYNC = [
    create, create_stream, helper, helper_final, raw, raw_stream, streamed_response, beta,
    beta_helper,
]  # fmt: skip


async def a_create(c: Any) -> str:
    return str((await c.messages.create(**ASK)).content[0].text)


async def a_create_stream(c: Any) -> str:
    stream = await c.messages.create(**ASK, stream=True)
    return "".join([e.delta.text async for e in stream if e.type == "content_block_delta"])


async def a_helper(c: Any) -> str:
    async with c.messages.stream(**ASK) as stream:
        return "".join([text async for text in stream.text_stream])


async def a_raw(c: Any) -> str:
    response = await c.messages.with_raw_response.create(**ASK)
    found = response.parse()
    if hasattr(found, "__await__"):
        found = await found
    return str(found.content[0].text)


async def a_streamed_response(c: Any) -> str:
    async with c.messages.with_streaming_response.create(**ASK) as response:
        return str((await response.parse()).content[0].text)


async def a_beta(c: Any) -> str:
    return str((await c.beta.messages.create(**ASK)).content[0].text)


ASYNC = [a_create, a_create_stream, a_helper, a_raw, a_streamed_response, a_beta]


@contextlib.contextmanager
def served(script: Script, kind: str) -> Iterator[tuple[Any, Any]]:
    """Yield a client of each kind, over the mock transport or a loopback server."""
    if kind == "mock":
        yield client(script), async_client(script)
        return
    with loopback(script) as address:
        settings = {"api_key": KEY, "base_url": address}
        with anthropic.Anthropic(**settings) as one:
            yield one, anthropic.AsyncAnthropic(**settings)


def check(calls: tuple[Call, ...], style: str) -> None:
    assert len(calls) == 1
    call = calls[0]
    assert call.usage is not None
    assert call.usage.uncached_input == 40
    assert call.usage.cache_read == 2000
    assert call.usage.write_5m == 300
    assert call.usage.write_1h == 0
    assert call.usage.total_input == 2340
    assert call.usage.output == 12
    assert call.usage.flags == ()
    assert (call.id, call.model, call.provider) == ("msg_0001", MODEL, "anthropic")
    assert (call.lane, call.purpose, call.attempt) == ("main", "main", 0)
    assert call.stop_reason == "end_turn"
    assert call.error is None
    assert call.prompt is not None
    assert [block.path for block in call.prompt.blocks] == ["system[0]", "messages[0].content[0]"]
    assert call.prompt.marked == (0,)
    assert call.started_at is not None
    assert call.ended_at is not None
    streams = ("stream" in style and "streamed_response" not in style) or "helper" in style
    assert (call.first_token_at is not None) == streams
    assert call.extra.get("anthropic-beta") == ("some-beta-2026-01-01" if style == "beta" else None)


@pytest.mark.parametrize("kind", ["mock", "loopback"])
@pytest.mark.parametrize("style", SYNC, ids=lambda f: f.__name__)
def test_sync(audit: CacheAudit, style: Callable[[Any], str], kind: str) -> None:
    with served(Script(), kind) as (one, _), audit.session("s") as s:
        assert style(audit.wrap(one)) == "hello there"
    check(s.calls(), style.__name__)
    assert audit.state.faults == {}


@pytest.mark.parametrize("kind", ["mock", "loopback"])
@pytest.mark.parametrize("style", ASYNC, ids=lambda f: f.__name__)
def test_async(audit: CacheAudit, style: Callable[[Any], Awaitable[str]], kind: str) -> None:
    async def run() -> str:
        with served(Script(), kind) as (_, other):
            async with audit.session("s"), audit.wrap(other) as wrapped:
                return await style(wrapped)

    assert asyncio.run(run()) == "hello there"
    check(audit.session("s").calls(), style.__name__)
    assert audit.state.faults == {}


def test_counting_tokens_is_let_through_and_is_no_call(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script(Reply({"input_tokens": 77}))))
    ask = {k: v for k, v in ASK.items() if k != "max_tokens"}
    assert wrapped.messages.count_tokens(**ask).input_tokens == 77
    assert audit.sessions() == []
    assert audit.state.faults == {}


def test_the_client_itself_stays_as_it_is(audit: CacheAudit) -> None:
    own = client(Script())
    wrapped = audit.wrap(own)
    assert type(wrapped) is type(own)
    assert own.middleware == ()
    assert len(wrapped.middleware) == 1
    assert audit.wrap(wrapped) is wrapped
    own.messages.create(**ASK)
    assert audit.sessions() == []


def test_middleware_of_the_caller_stays_around_it(audit: CacheAudit) -> None:
    order: list[str] = []

    def outer(request: Any, call_next: Any) -> Any:
        order.append("in")
        response = call_next(request)
        order.append("out")
        return response

    wrapped = audit.wrap(client(Script(), middleware=[outer]))
    with audit.session("s") as s:
        assert create(wrapped) == "hello there"
    assert order == ["in", "out"]
    assert len(s.calls()) == 1


def test_an_answer_of_another_middleware_is_passed_on(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script())).with_middleware(lambda request, call_next: "cached")
    with audit.session("s") as s:
        assert wrapped.messages.create(**ASK) == "cached"
    assert s.calls() == ()
    assert audit.state.waiting == 0


def test_a_client_without_middleware_is_refused_with_the_remedy(audit: CacheAudit) -> None:
    with pytest.raises(UsageError, match=r"audit\.transport"):
        audit.wrap(HTTP.Client())

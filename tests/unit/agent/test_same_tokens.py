"""Recorded over a real connection and audited, every style has the tokens that were billed."""

from __future__ import annotations

import asyncio
import importlib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from cacheaudit import CacheAudit, Inputs
from cacheaudit.agent.proxy.routes import Routes
from cacheaudit.agent.proxy.server import RecordingProxy
from cacheaudit.jobs.audit import audit as run_audit
from cacheaudit.jobs.inputs import silent
from cacheaudit.report.result import Totals
from tests.unit.agent.servers import KEY, MODEL, loopback
from tests.unit.agent.teller import Teller
from tests.unit.agent.test_chains import HAS_THREADS, weather
from tests.unit.local_backend.server.running import running

ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 16,
    "system": "the same for all " * 300,
    "messages": [{"role": "user", "content": "hello"}],
}
CHAT: dict[str, Any] = {"model": "gpt-5.6", "messages": ASK["messages"]}
SEEK: dict[str, Any] = {"model": "deepseek-chat", "messages": ASK["messages"]}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
TASKS = {"system": "be brief", "messages": [{"role": "user", "content": "the weather?"}]}
BATCH = [
    {"custom_id": key, "params": {k: v for k, v in ASK.items() if k != "stream"}} for key in "abc"
]


def check(path: Path, told: Counter[str], seen: CacheAudit) -> None:
    """Compare what was billed with the audit of the store, and of the exported file."""
    file = path / "run.session.jsonl"
    seen.export(file)
    faults = seen.state.faults
    assert seen.close()
    assert faults == {}
    for inputs in (
        Inputs(paths=(), environment={}, home=path, db=f"sqlite:///{path / 'usage.db'}"),
        Inputs(paths=(file,), environment={}, home=path),
    ):
        result = run_audit(inputs, silent)
        assert result.scope.calls == told["calls"]
        assert parts(result.totals) == {k: v for k, v in told.items() if k != "calls" and v}
        assert not result.totals.output_is_lower_bound


def parts(totals: Totals) -> dict[str, int]:
    found = {
        "fresh": totals.uncached_input,
        "read": totals.cache_read,
        "output": totals.output,
        **totals.cache_write,
    }
    return {name: count for name, count in found.items() if count}


def read_all(stream: Any) -> None:
    assert list(stream)


# ── the Anthropic SDK ────────────────────────────────────────────────────────────────────────────


def create(c: Any) -> None:
    c.messages.create(**ASK)


def create_stream(c: Any) -> None:
    read_all(c.messages.create(**ASK, stream=True))


def stream(c: Any) -> None:
    with c.messages.stream(**ASK) as found:
        found.get_final_message()


def raw(c: Any) -> None:
    c.messages.with_raw_response.create(**ASK).parse()
    with c.messages.with_streaming_response.create(**ASK, stream=True) as response:
        assert b"".join(response.iter_bytes())


def beta(c: Any) -> None:
    c.beta.messages.create(**ASK)
    with c.beta.messages.stream(**ASK) as found:
        found.get_final_message()


def tool_runner(c: Any) -> None:
    runner = c.beta.messages.tool_runner(model=MODEL, max_tokens=16, tools=[weather], **TASKS)
    assert runner.until_done().stop_reason == "end_turn"


def thread(c: Any) -> None:
    talk = c.beta.messages.thread(model=MODEL, max_tokens=16, system="be brief")
    for text in ("one", "two"):
        with talk.stream({"role": "user", "content": text}) as found:
            found.get_final_message()


def batches(c: Any) -> None:
    made = c.messages.batches.create(requests=BATCH)
    assert [entry.custom_id for entry in c.messages.batches.results(made.id)] == ["a", "b", "c"]


def count_tokens(c: Any) -> None:
    ask = {k: v for k, v in ASK.items() if k != "max_tokens"}
    assert c.messages.count_tokens(**ask).input_tokens == 4_711
    create(c)


SYNC = [create, create_stream, stream, raw, beta, tool_runner, batches, count_tokens]
if HAS_THREADS:
    SYNC.append(thread)
TOOLS = {"tool_runner": 2, "a_tool_runner": 2}


@pytest.mark.parametrize("mode", ["observe", "auto"])
@pytest.mark.parametrize("style", SYNC, ids=lambda f: f.__name__)
def test_the_sdk(
    make: Callable[..., CacheAudit], tmp_path: Path, style: Callable[[Any], None], mode: str
) -> None:
    teller, audit = Teller(TOOLS.get(style.__name__, 0)), make(mode=mode)
    with (
        loopback(teller) as address,
        anthropic.Anthropic(api_key=KEY, base_url=address) as own,
        audit.session("s"),
    ):
        style(audit.wrap(own))
    check(tmp_path, teller.told, audit)


async def a_create(c: Any) -> None:
    await c.messages.create(**ASK)


async def a_create_stream(c: Any) -> None:
    assert [event async for event in await c.messages.create(**ASK, stream=True)]


async def a_stream(c: Any) -> None:
    async with c.messages.stream(**ASK) as found:
        await found.get_final_message()


async def a_raw(c: Any) -> None:
    await c.messages.with_raw_response.create(**ASK)
    async with c.messages.with_streaming_response.create(**ASK, stream=True) as response:
        assert [piece async for piece in response.iter_bytes()]


async def a_beta(c: Any) -> None:
    await c.beta.messages.create(**ASK)
    async with c.beta.messages.stream(**ASK) as found:
        await found.get_final_message()


@anthropic.beta_async_tool(name="weather")
async def a_weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"rain in {city}"


async def a_tool_runner(c: Any) -> None:
    runner = c.beta.messages.tool_runner(model=MODEL, max_tokens=16, tools=[a_weather], **TASKS)
    assert (await runner.until_done()).stop_reason == "end_turn"


async def a_thread(c: Any) -> None:
    talk = c.beta.messages.thread(model=MODEL, max_tokens=16, system="be brief")
    for text in ("one", "two"):
        async with talk.stream({"role": "user", "content": text}) as found:
            await found.get_final_message()


async def a_batches(c: Any) -> None:
    made = await c.messages.batches.create(requests=BATCH)
    assert [e.custom_id async for e in await c.messages.batches.results(made.id)] == [*"abc"]


async def a_count_tokens(c: Any) -> None:
    ask = {k: v for k, v in ASK.items() if k != "max_tokens"}
    assert (await c.messages.count_tokens(**ask)).input_tokens == 4_711
    await a_create(c)


ASYNC = [
    a_create, a_create_stream, a_stream, a_raw, a_beta, a_tool_runner, a_batches, a_count_tokens,
]  # fmt: skip
if HAS_THREADS:
    ASYNC.append(a_thread)


@pytest.mark.parametrize("style", ASYNC, ids=lambda f: f.__name__)
def test_the_sdk_asynchronously(
    audit: CacheAudit, tmp_path: Path, style: Callable[[Any], Awaitable[None]]
) -> None:
    teller = Teller(TOOLS.get(style.__name__, 0))

    async def run(address: str) -> None:
        async with (
            anthropic.AsyncAnthropic(api_key=KEY, base_url=address) as own,
            audit.session("s"),
        ):
            await style(audit.wrap(own))

    with loopback(teller) as address:
        asyncio.run(run(address))
    check(tmp_path, teller.told, audit)


# ── other clients, through the transport ─────────────────────────────────────────────────────────


def chat(c: Any) -> None:
    c.chat.completions.create(**CHAT)
    read_all(c.chat.completions.create(**CHAT, **USAGE))


def responses(c: Any) -> None:
    c.responses.create(model="gpt-5.6", input="hello")
    read_all(c.responses.create(model="gpt-5.6", input="hello", stream=True))


def deepseek(c: Any) -> None:
    c.chat.completions.create(**SEEK)
    read_all(c.chat.completions.create(**SEEK, **USAGE))


async def a_chat(c: Any) -> None:
    await c.chat.completions.create(**CHAT)
    assert [chunk async for chunk in await c.chat.completions.create(**CHAT, **USAGE)]


async def a_responses(c: Any) -> None:
    await c.responses.create(model="gpt-5.6", input="hello")
    made = await c.responses.create(model="gpt-5.6", input="hello", stream=True)
    assert [event async for event in made]


async def a_deepseek(c: Any) -> None:
    await c.chat.completions.create(**SEEK)
    assert [chunk async for chunk in await c.chat.completions.create(**SEEK, **USAGE)]


def openai_library() -> Any:
    """Return the library that the installed OpenAI SDK is built on."""
    names = [base.__module__.partition(".")[0] for base in openai.DefaultHttpxClient.__mro__]
    return importlib.import_module("httpx2" if "httpx2" in names else "httpx")


@pytest.mark.parametrize("style", [chat, responses, deepseek], ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["observe", "auto"])
def test_openai_and_kin(
    make: Callable[..., CacheAudit], tmp_path: Path, style: Callable[[Any], None], mode: str
) -> None:
    teller, audit, http = Teller(), make(mode=mode), openai_library()
    moved = audit.transport(http.HTTPTransport())
    with (
        loopback(teller) as address,
        openai.DefaultHttpxClient(transport=moved) as lines,
        openai.OpenAI(api_key=KEY, base_url=f"{address}/v1", http_client=lines) as client,
        audit.session("s"),
    ):
        style(client)
    check(tmp_path, teller.told, audit)


@pytest.mark.parametrize("style", [a_chat, a_responses, a_deepseek], ids=lambda f: f.__name__)
def test_openai_and_kin_asynchronously(
    audit: CacheAudit, tmp_path: Path, style: Callable[[Any], Awaitable[None]]
) -> None:
    teller, http = Teller(), openai_library()
    moved = audit.transport(http.AsyncHTTPTransport())

    async def run(address: str) -> None:
        async with (
            openai.DefaultAsyncHttpxClient(transport=moved) as lines,
            openai.AsyncOpenAI(api_key=KEY, base_url=f"{address}/v1", http_client=lines) as client,
            audit.session("s"),
        ):
            await style(client)

    with loopback(teller) as address:
        asyncio.run(run(address))
    check(tmp_path, teller.told, audit)


ADDRESSES = [
    ("/v1/messages", ASK),
    ("/v1/messages", {**ASK, "stream": True}),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, **USAGE}),
    ("/v1/responses", {"model": "gpt-5.6", "input": "hello", "stream": True}),
    ("/v1/chat/completions", SEEK),
]


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
@pytest.mark.parametrize("mode", ["observe", "auto"])
def test_raw_http(make: Callable[..., CacheAudit], tmp_path: Path, name: str, mode: str) -> None:
    teller, audit, http = Teller(), make(mode=mode), importlib.import_module(name)
    with (
        loopback(teller) as address,
        http.Client(transport=audit.transport(http.HTTPTransport())) as client,
        audit.session("s"),
    ):
        for path, body in ADDRESSES:
            assert client.post(address + path, json=body).status_code == 200
    check(tmp_path, teller.told, audit)


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_raw_http_asynchronously(audit: CacheAudit, tmp_path: Path, name: str) -> None:
    teller, http = Teller(), importlib.import_module(name)

    async def run(address: str) -> None:
        moved = audit.transport(http.AsyncHTTPTransport())
        async with http.AsyncClient(transport=moved) as client, audit.session("s"):
            for path, body in ADDRESSES:
                assert (await client.post(address + path, json=body)).status_code == 200

    with loopback(teller) as address:
        asyncio.run(run(address))
    check(tmp_path, teller.told, audit)


def test_the_proxy(audit: CacheAudit, tmp_path: Path) -> None:
    teller, http = Teller(), openai_library()
    with (
        loopback(teller) as upstream,
        RecordingProxy(audit, Routes(default=upstream), session="s") as proxy,
        http.Client() as client,
        anthropic.Anthropic(api_key=KEY, base_url=proxy.address) as sdk,
        openai.OpenAI(api_key=KEY, base_url=f"{proxy.address}/v1") as other,
    ):
        for path, body in ADDRESSES:
            assert client.post(proxy.address + path, json=body).status_code == 200
        for style in (create, create_stream, stream, batches):
            style(sdk)
        for style in (chat, responses, deepseek):
            style(other)
    check(tmp_path, teller.told, audit)


# ── the local engine, whose counts come from what it computed and reused ─────────────────────────


def test_the_local_engine(make: Callable[..., CacheAudit], tmp_path: Path) -> None:
    """Its own counters, the audit of the store and the audit of the exported file agree."""
    audit, http = make(mode="auto"), openai_library()
    ask = {**ASK, "max_tokens": 2}
    talk = {"model": MODEL, "max_tokens": 2, "messages": ASK["messages"]}
    head = {"x-api-key": KEY}  # a cache is its key's own
    with (
        running(any_model=True) as engine,
        anthropic.Anthropic(api_key=KEY, base_url=engine.url, max_retries=0) as own,
        http.Client(transport=audit.transport(http.HTTPTransport())) as client,
        audit.session("s"),
    ):
        sdk = audit.wrap(own)
        sdk.messages.create(**ask)
        read_all(sdk.messages.create(**ask, stream=True))
        with sdk.messages.stream(**ask) as found:
            found.get_final_message()
        client.post(f"{engine.url}/v1/messages", json=ask, headers=head).raise_for_status()
        client.post(f"{engine.url}/v1/chat/completions", json=talk).raise_for_status()
        told = Counter(
            {
                name: engine.metric("usage_tokens_total", kind=kind)
                for name, kind in (
                    ("fresh", "uncached"),
                    ("read", "read"),
                    ("output", "output"),
                    ("5m", "written_5m"),
                    ("1h", "written_1h"),
                )
            }
        )
    told["calls"] = 5
    assert told["read"] == 3 * told["5m"] > 0
    check(tmp_path, told, audit)

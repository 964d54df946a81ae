"""Broken, slow, greedy and vanishing clients. Whatever they do, no page stays in use."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from local_backend.server.connection import connections
from tests.unit.local_backend.server.running import Running, filled, running, settings

LONG = 2_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"model": "tiny",}',
        b"\xff\xfe",
        b'{"max_tokens": NaN}',
        b"[" * 100_000,
        b"null",
    ],
    ids=["nothing", "open", "comma", "no text", "no number", "too deep", "no object"],
)
def test_malformed_json(server: Running, body: bytes) -> None:
    status, kind, message = server.refused(body)
    assert (status, kind) == (400, "invalid_request_error")
    assert "must be an object" in message or "not valid JSON" in message


def test_what_is_no_http_is_refused_in_the_same_shape(server: Running) -> None:
    with server.connect() as raw:
        raw.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        head, _, body = raw.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    told = json.loads(body)
    assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
    assert f"request-id: {told['request_id']}".encode() in head


def test_packed_bodies_are_refused(server: Running) -> None:
    packed = gzip.compress(json.dumps(filled({})).encode())
    status, answer, _ = server.call("/v1/messages", packed, {"content-encoding": "gzip"})
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert answer["error"]["message"].startswith("content-encoding: ")


def test_a_schema_that_asks_for_too_much(server: Running) -> None:
    leaf = {"type": "string", "minLength": 10**9}
    schema = {"type": "object", "properties": {"a": leaf}}
    tools = [{"name": "f", "input_schema": schema}]
    body = filled({"tools": tools, "tool_choice": {"type": "any"}})
    assert server.refused(body)[:2] == (400, "invalid_request_error")
    assert server.ask({"tools": tools})["stop_reason"]


@pytest.mark.parametrize("depth", [20, 400])
def test_documents_in_documents(server: Running, depth: int) -> None:
    open_, close = '{"type":"document","source":{"type":"content","content":[', "]}}"
    inner = '{"type":"text","text":"x"}'
    content = open_ * depth + inner + close * depth
    body = (
        '{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":[' + content + "]}]}"
    )
    status, answer, _ = server.call("/v1/messages", body.encode())
    assert status == (200 if depth == 20 else 400), answer


def test_half_a_character(server: Running) -> None:
    whole = json.dumps(filled({"system": "\U0001f600"})).encode()
    assert b"\\ud83d" in whole
    assert server.call("/v1/messages", whole)[0] == 200
    status, kind, message = server.refused(whole.replace(b"\\ude00", b""))
    assert (status, kind) == (400, "invalid_request_error")
    assert "surrogate" in message


def test_paths_and_methods_that_do_not_exist(server: Running) -> None:
    assert server.refused(b"{}", "/v1/nothing")[:2] == (404, "not_found_error")
    status, answer, _ = server.call("/v1/messages")
    assert (status, answer["error"]["type"]) == (405, "invalid_request_error")


def test_a_prompt_that_is_too_long(server: Running) -> None:
    body = filled({"messages": [{"role": "user", "content": "x" * 40_000}]})
    status, kind, message = server.refused(body)
    assert (status, kind) == (400, "invalid_request_error")
    assert message == "prompt is too long: 40002 tokens > 39999 maximum"


def test_an_answer_that_fills_the_context() -> None:
    with running(context_length=30) as server:
        found = server.ask({"max_tokens": 500})
        assert found["stop_reason"] == "model_context_window_exceeded"
        assert found["usage"]["output_tokens"] == 30 - 7


def test_a_body_that_is_too_large() -> None:
    with running(max_body_bytes=1000) as server:
        body = json.dumps(filled({"system": "x" * 2000})).encode()
        assert server.refused(body)[:2] == (413, "request_too_large")
        with server.connect() as raw:  # no length announced
            raw.sendall(
                b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            raw.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
            assert b" 413 " in raw.recv(1000)
        assert server.ask({})["type"] == "message"


def test_a_body_that_does_not_come() -> None:
    with running(body_timeout_s=0.3) as server:
        with server.connect() as raw:
            raw.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
            answer = b""
            while b"timeout_error" not in answer:
                answer += raw.recv(1000)
            assert b" 408 " in answer
        with server.connect() as raw:
            raw.sendall(b"POST /v1/mess")
            assert raw.recv(1000) == b""  # closed: the headers did not come
        server.wait_for("requests_total", 1, endpoint="/v1/messages", status="408")


def test_requests_beyond_the_limit_are_told_to_come_back() -> None:
    with running(max_requests=2) as server:
        with anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0) as client:
            bodies = filled({"max_tokens": LONG, "stream": True})
            streams = [client.messages.create(**bodies) for _ in range(2)]
            with pytest.raises(anthropic.RateLimitError) as error:
                client.messages.create(**filled({}))
            assert error.value.response.headers["retry-after"] == "1"
            for stream in streams:
                stream.close()
            server.wait_for("open_requests", 0)
            assert client.messages.create(**filled({})).type == "message"
        server.pages_are_free()


def test_a_full_queue_is_an_overload() -> None:
    with running(max_running=2, max_waiting=0) as server:
        capacity = server.service.engine.engine.capacity
        with anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0) as client:
            body = filled({"max_tokens": LONG, "stream": True})
            streams = [client.messages.create(**body) for _ in range(capacity)]
            with pytest.raises(anthropic.APIStatusError) as error:
                client.messages.create(**filled({}))
            assert (error.value.status_code, error.value.type) == (529, "overloaded_error")
            for stream in streams:
                stream.close()
        server.pages_are_free()
        assert server.metric("engine_refused_total") == 1


def test_a_client_that_leaves_in_a_stream_frees_its_pages(server: Running) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key="k") as client:
        stream = client.messages.create(**filled({"max_tokens": LONG, "stream": True}))
        next(iter(stream))
        assert server.metric("open_streams") == 1
        stream.close()
    server.wait_for("engine_running", 0)
    server.pages_are_free()


def send(server: Running, body: dict[str, Any]) -> socket.socket:
    data = json.dumps(filled(body)).encode()
    raw = server.connect()
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
    raw.sendall(head.encode() + data)
    return raw


def test_a_client_that_leaves_before_its_answer_frees_its_pages(server: Running) -> None:
    before = server.metric("disconnects_total")
    raw = send(server, {"max_tokens": LONG})
    server.wait_for("engine_running", 1)
    raw.close()
    server.wait_for("disconnects_total", before + 1)
    server.pages_are_free()


def test_a_client_that_takes_nothing_is_dropped() -> None:
    """It asks for much and reads nothing, until the buffers on the way are full."""
    names = tuple(f"{n:0400}" for n in range(2_000))
    with running(write_timeout_s=0.3, aliases=names) as server, server.connect() as raw:
        size = len(json.dumps(server.call("/v1/models")[1], separators=(",", ":")))
        raw.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" * 20)
        answered, before = 1, 0
        while answered != before:  # until nothing moves any more
            threading.Event().wait(1.0)
            before = answered
            answered = server.metric("requests_total", endpoint="/v1/models", status="200")
        assert drained(raw) < 20 * size
        assert server.metric("open_requests") == 0
        assert server.ask({})["type"] == "message"


def drained(raw: socket.socket) -> int:
    """Bytes that still come until the connection ends; a timeout would fail."""
    raw.settimeout(30.0)
    total = 0
    with contextlib.suppress(ConnectionResetError):
        while got := len(raw.recv(1 << 20)):
            total += got
    return total


def test_an_answer_that_takes_too_long() -> None:
    with running(request_timeout_s=0.2) as server:
        status, kind, message = server.refused(filled({"max_tokens": 20_000}))
        assert (status, kind, message) == (504, "timeout_error", "the answer took too long")
        with anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0) as client:
            stream = client.messages.create(**filled({"max_tokens": 20_000, "stream": True}))
            with pytest.raises(anthropic.APIStatusError, match="took too long"):
                list(stream)
        server.pages_are_free()
        assert server.ask({})["type"] == "message"


def test_pings_while_there_is_nothing_to_say() -> None:
    with running(ping_s=0.001) as server:
        body = filled({"max_tokens": 300, "stream": True})
        _, answer, _ = server.call("/v1/messages", body)
        assert answer.count("event: ping") > 1
        assert answer.endswith('event: message_stop\ndata: {"type":"message_stop"}\n\n')


def test_many_connections_at_once(server: Running) -> None:
    async def talk() -> list[str]:
        limits = {"base_url": server.url, "api_key": "k", "max_retries": 0}
        async with anthropic.AsyncAnthropic(**limits) as client:

            async def one(number: int) -> str:
                user = [{"role": "user", "content": f"number {number % 10}"}]
                found = await client.messages.create(**filled({"messages": user, "max_tokens": 2}))
                return found.content[0].text if found.content else ""

            return await asyncio.gather(*(one(n) for n in range(200)))

    answers = asyncio.run(talk())
    assert len(answers) == 200
    assert [answers[n] for n in range(10)] == [answers[n + 190] for n in range(10)]
    server.pages_are_free()


def test_connections_beyond_the_limit_are_closed() -> None:
    with running(max_connections=3) as server:
        idle = [server.connect() for _ in range(3)]
        refused = server.connect()
        assert drained(refused) == 0
        for raw in [*idle, refused]:
            raw.close()
        for _ in range(50):
            try:
                assert server.ask({})["type"] == "message"
                break
            except OSError:
                threading.Event().wait(0.1)


def test_keys() -> None:
    with running(api_keys=("right", "other")) as server:
        assert server.refused(filled({}))[:2] == (401, "authentication_error")
        for headers in ({"x-api-key": "right"}, {"authorization": "Bearer other"}):
            assert server.ask({}, headers)["type"] == "message"
        assert server.call("/health")[0] == 200
        with (
            anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0) as client,
            pytest.raises(anthropic.AuthenticationError),
        ):
            client.models.list()


@pytest.fixture
def records() -> Iterator[list[str]]:
    found: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage() + str(record.exc_info) + str(record.args))

    keep = Keep(logging.DEBUG)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.DEBUG)
    root.addHandler(keep)
    yield found
    root.removeHandler(keep)
    root.setLevel(level)


def test_no_prompt_text_is_logged(server: Running, records: list[str]) -> None:
    secret = "sesame-open-7"
    server.ask({"system": secret, "messages": [{"role": "user", "content": secret}]})
    server.refused(filled({"messages": [{"role": "user", "content": [{"type": secret}]}]}))
    server.refused(f'{{"{secret}'.encode())
    assert not [line for line in records if secret in line and "local_backend" in line]
    assert not any(secret in line for line in records)


def test_limits_are_those_of_the_settings() -> None:
    chosen = settings(max_connections=9)
    assert connections(chosen, str).limits is chosen

"""What goes through the proxy arrives as it left, and is recorded."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anthropic
import brotli
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit import CacheAudit
from cacheaudit.agent.proxy import relay
from cacheaudit.agent.proxy.relay import message_headers
from cacheaudit.agent.proxy.routes import UPSTREAMS, Routes
from cacheaudit.agent.proxy.server import RecordingProxy
from cacheaudit.errors import MissingExtraError, UsageError
from tests.unit.agent.servers import KEY, MODEL, Reply, Script, events, gzipped, loopback, message

BODY = {"model": MODEL, "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}


@contextlib.contextmanager
def world(audit: CacheAudit, script: Script, **more: Any) -> Iterator[str]:
    """Run a server and a proxy in front of it; yields the proxy's address."""
    with loopback(script) as upstream, RecordingProxy(audit, Routes(default=upstream), **more) as p:
        yield p.address


def raw(
    address: str,
    body: bytes | Iterator[bytes] | None = b"",
    method: str = "POST",
    path: str = "/v1/messages",
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Send a request with nothing in between; returns status, headers, and the body as it came."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def test_streams_pass_byte_for_byte(audit: CacheAudit) -> None:
    frames = [*events(1)[:2], b": comment\r\n\r\n", b"event: strange\ndata: x\n\n", *events(1)[2:]]
    script = Script(Reply(frames=frames))
    sent = b'{ "model":"claude-opus-5",  "max_tokens":1e1,"messages":[ ],"stream":true }'
    with world(audit, script) as address:
        status, head, body = raw(address, sent, headers={"x-api-key": KEY, "X-Odd": "caf\xe9"})
    assert (status, head["content-type"]) == (200, "text/event-stream")
    assert body == b"".join(frames)
    assert script.sent == [sent]
    assert script.heads[0]["x-api-key"] == KEY
    assert script.heads[0]["x-odd"] == "caf\xe9"


PACKED = {
    "gzip": gzipped(events(1)),
    "br": [brotli.compress(b"".join(events(1)))],
    "zstd": [b"\x1b\x03", b"not for us", b"\x00"],
}


@pytest.mark.parametrize("encoding", list(PACKED))
def test_compressed_bodies_stay_compressed(audit: CacheAudit, encoding: str) -> None:
    frames = PACKED[encoding]
    script = Script(Reply(frames=frames, headers={"content-encoding": encoding}))
    with world(audit, script) as address:
        _, head, body = raw(address, json.dumps({**BODY, "stream": True}).encode())
    assert head["content-encoding"] == encoding
    assert body == b"".join(frames)
    (call,) = [c for s in audit.sessions() for c in s.calls]
    # What cannot be read is recorded without its usage, and passes all the same.
    assert (call.usage is None) == (encoding == "zstd")


def test_whole_bodies_keep_their_length(audit: CacheAudit) -> None:
    packed = gzip.compress(json.dumps(message(1)).encode())
    script = Script(Reply(packed, headers={"content-encoding": "gzip", "X-Request-Id": "r1"}))
    with world(audit, script) as address:
        status, head, body = raw(address, json.dumps(BODY).encode())
    assert (status, body) == (200, packed)
    assert head["content-length"] == str(len(packed))
    assert head["x-request-id"] == "r1"
    (call,) = [c for s in audit.sessions() for c in s.calls]
    assert call.usage is not None
    assert call.usage.cache_read == 2000


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=3_000), st.lists(st.binary(min_size=1, max_size=500), max_size=8))
def test_any_bytes_pass(proxied: tuple[str, Script], body: bytes, pieces: list[bytes]) -> None:
    address, script = proxied
    script._replies = [Reply(frames=pieces)]
    _, _, got = raw(address, body)
    assert got == b"".join(pieces)
    assert script.sent[-1] == body


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Script]]:
    script = Script()
    folder = tmp_path_factory.mktemp("proxy")
    with CacheAudit(folder / "p.db", "observe") as audit, world(audit, script) as address:
        yield address, script


def test_chunked_requests_arrive_whole(audit: CacheAudit) -> None:
    script = Script(Reply(message(1)))
    with world(audit, script) as address:
        status, _, _ = raw(address, iter([b'{"mo', b'del":', b'"x"}']))
    assert status == 200
    assert script.sent == [b'{"model":"x"}']


def test_pieces_are_not_held_back(audit: CacheAudit) -> None:
    """The second half of the stream is sent only when the client has seen the first."""
    seen = threading.Event()
    frames = events(1)

    def slowly() -> Iterator[bytes]:
        yield frames[0]
        assert seen.wait(10)
        yield from frames[1:]

    script = Script(Reply(frames=slowly()))  # type: ignore[arg-type]
    with world(audit, script) as address, client(address).messages.stream(**BODY) as stream:  # type: ignore[arg-type]
        for _ in stream:
            seen.set()
        assert stream.get_final_message().content[0].text == "hello there"  # type: ignore[union-attr]


def client(address: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key=KEY, base_url=address, max_retries=0)


def test_the_sdk_and_what_is_recorded(audit: CacheAudit, tmp_path: Path) -> None:
    script = Script()
    with world(audit, script) as address, client(address) as sdk:
        sdk.messages.create(**BODY)  # type: ignore[call-overload]
        with sdk.messages.stream(**BODY) as stream:  # type: ignore[arg-type]
            stream.get_final_message()
        sdk.models.list()
    calls = [c for s in audit.sessions() for c in s.calls]
    assert [c.usage.cache_read for c in calls if c.usage] == [2000, 2000]
    assert all(c.prompt is not None and c.model == MODEL for c in calls)
    assert calls[1].first_token_at is not None
    assert script.paths == ["/v1/messages", "/v1/messages", "/v1/models"]
    assert audit.close()
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("usage.db*"))
    assert KEY.encode() not in stored


def test_a_session_for_all(audit: CacheAudit) -> None:
    with world(audit, Script(), session="issue-1") as address, client(address) as sdk:
        sdk.messages.create(**BODY)  # type: ignore[call-overload]
    assert [c.session for s in audit.sessions(["issue-1"]) for c in s.calls] == ["issue-1"]


def test_a_stream_that_is_cut_is_seen_as_cut(audit: CacheAudit) -> None:
    script = Script(Reply(frames=events(1)[:4], cut=True))
    with world(audit, script) as address, pytest.raises(http.client.IncompleteRead):
        raw(address, json.dumps({**BODY, "stream": True}).encode())
    (call,) = [c for s in audit.sessions() for c in s.calls]
    assert call.error is not None
    assert call.usage is not None
    assert call.usage.cache_read == 2000


def test_a_client_that_leaves_is_recorded_and_the_upstream_let_go(audit: CacheAudit) -> None:
    def endless() -> Iterator[bytes]:
        yield from events(1)[:3]
        for _ in range(20_000):
            yield b": wait\n\n"
            time.sleep(0.001)

    script = Script(Reply(frames=endless()))  # type: ignore[arg-type]
    with world(audit, script) as address:
        place = urlsplit(address)
        body = json.dumps({**BODY, "stream": True}).encode()
        with socket.create_connection((place.hostname, place.port)) as line:
            head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            line.sendall(head.replace("host: x", f"host: {place.netloc}").encode() + body)
            assert b"200" in line.recv(1000)
        deadline = time.monotonic() + 10
        while audit.state.waiting and time.monotonic() < deadline:
            time.sleep(0.01)
    (call,) = [c for s in audit.sessions() for c in s.calls]
    assert call.extra.get("abandoned") is True
    assert call.usage is not None
    assert call.usage.cache_read == 2000


def test_errors_of_the_upstream_pass(audit: CacheAudit) -> None:
    script = Script(
        Reply({"error": {"type": "overloaded_error"}}, 529, headers={"retry-after": "3"})
    )
    with world(audit, script) as address:
        status, head, body = raw(address, json.dumps(BODY).encode())
    assert (status, head["retry-after"]) == (529, "3")
    assert json.loads(body) == {"error": {"type": "overloaded_error"}}


def test_an_upstream_that_is_not_there(audit: CacheAudit) -> None:
    with RecordingProxy(audit, Routes(default="http://127.0.0.1:9")) as proxy:
        status, _, body = raw(proxy.address, json.dumps(BODY).encode())
    assert status == 502
    found = json.loads(body)
    assert found["type"] == "error"
    assert found["error"]["message"].startswith("cacheaudit proxy: the upstream gave no response")
    (call,) = [c for s in audit.sessions() for c in s.calls]
    assert call.error is not None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example.com"}, 403),
        ({"upgrade": "websocket", "connection": "upgrade"}, 501),
        ({"content-length": "many"}, 400),
    ],
)
def test_what_is_refused(audit: CacheAudit, headers: dict[str, str], status: int) -> None:
    script = Script()
    with world(audit, script) as address:
        found, _, body = raw(address, None, "GET", "/v1/models", headers)
    assert found == status
    assert json.loads(body)["error"]["message"].startswith("cacheaudit proxy: ")
    assert script.sent == []


@pytest.mark.parametrize(
    "line",
    [b"zz\r\n\r\n", b"5\r\nab", b"-1\r\n\r\n"],
)
def test_damaged_chunks(audit: CacheAudit, line: bytes) -> None:
    script = Script()
    with world(audit, script) as address:
        place = urlsplit(address)
        with socket.create_connection((place.hostname, place.port)) as wire:
            wire.sendall(
                b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                b"transfer-encoding: chunked\r\n\r\n" + line
            )
            wire.shutdown(socket.SHUT_WR)
            assert b"400" in wire.recv(1000)
    assert script.sent == []


def test_it_is_no_general_proxy(audit: CacheAudit) -> None:
    script = Script()
    with world(audit, script) as address:
        status, _, body = raw(address, None, "GET", "http://example.com/x", {"host": "127.0.0.1"})
    assert status == 400
    assert b"base URL" in body
    assert script.sent == []


def test_other_methods_and_queries(audit: CacheAudit) -> None:
    script = Script(Reply({"a": 1}), Reply(b"", 204))
    with world(audit, script) as address:
        assert raw(address, None, "GET", "/v1/models?limit=2&after=a%2Fb")[0] == 200
        status, head, body = raw(address, None, "GET", "/v1/files/x")
        refused = raw(address, None, "DELETE", "/v1/files/x")
    assert (status, body) == (204, b"")
    assert "transfer-encoding" not in head
    # The server behind knows no DELETE, and its own words say so.
    assert refused[0] == 501
    assert b"Unsupported method" in refused[2]
    assert script.paths == ["/v1/models?limit=2&after=a%2Fb", "/v1/files/x"]


def test_many_at_once(audit: CacheAudit) -> None:
    script = Script()
    codes: list[int] = []

    def one(address: str) -> None:
        codes.append(raw(address, json.dumps(BODY).encode())[0])

    with world(audit, script) as address:
        threads = [threading.Thread(target=one, args=(address,)) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert codes == [200] * 32
    assert len([c for s in audit.sessions() for c in s.calls]) == 32


def test_no_thread_is_left(audit: CacheAudit) -> None:
    before = threading.active_count()
    with world(audit, Script()) as address, client(address) as sdk:
        sdk.messages.create(**BODY)  # type: ignore[call-overload]
    assert audit.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.005)
    assert threading.active_count() <= before


def test_one_set_of_connections_for_all_threads() -> None:
    made: list[Any] = []

    def record(inner: Any) -> Any:
        made.append(inner)
        return inner

    hands = relay.Relay(record)
    start = threading.Barrier(16)

    def send() -> None:
        start.wait(10)
        with contextlib.suppress(relay.UnreachableError):
            hands.send("GET", "http://127.0.0.1:9/x", [], None)

    threads = [threading.Thread(target=send) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    hands.close()
    assert len(made) == 1


def test_what_comes_while_it_closes_opens_nothing(audit: CacheAudit) -> None:
    """A request on its way keeps no connection, and one that comes later is not sent."""
    arrived, go = threading.Event(), threading.Event()
    kinds: list[str] = []

    def late(_: bytes) -> Reply:
        arrived.set()
        assert go.wait(10)
        return Reply(message())

    script = Script(late)
    with loopback(script) as upstream:
        hands = relay.Relay(audit.transport)

        def send() -> None:
            try:
                hands.send("POST", f"{upstream}/v1/messages", [], json.dumps(BODY).encode())
            except relay.UnreachableError as error:
                kinds.append(error.kind)

        thread = threading.Thread(target=send)
        thread.start()
        assert arrived.wait(10)
        hands.close()
        go.set()
        thread.join(10)
        assert not thread.is_alive()
        send()
    assert len(kinds) == 2
    assert kinds[1] == "closed"
    assert len(script.sent) == 1
    assert audit.flush()
    assert audit.state.waiting == 0


@pytest.mark.parametrize(
    ("path", "headers", "url"),
    [
        ("/v1/messages", {}, "https://api.anthropic.com/v1/messages"),
        ("/v1/messages?beta=true", {}, "https://api.anthropic.com/v1/messages?beta=true"),
        ("/v1/chat/completions", {}, "https://api.openai.com/v1/chat/completions"),
        ("/v1/responses", {}, "https://api.openai.com/v1/responses"),
        ("/v1/models", {"anthropic-version": "x"}, "https://api.anthropic.com/v1/models"),
        ("/v1/models", {"authorization": "x"}, "https://api.openai.com/v1/models"),
        (
            "/v1/messages",
            {"authorization": "x", "anthropic-version": "y"},
            "https://api.anthropic.com/v1/messages",
        ),
        ("/deepseek/anthropic/v1/messages", {}, "https://api.deepseek.com/anthropic/v1/messages"),
        ("/openai/v1/responses", {}, "https://api.openai.com/v1/responses"),
        ("/mine/v1/x?y=1", {}, "https://gateway.example.com/base/v1/x?y=1"),
    ],
)
def test_routes(path: str, headers: dict[str, str], url: str) -> None:
    assert Routes({"mine": "https://gateway.example.com/base/"}).target(path, headers) == url


def test_a_default_route() -> None:
    assert Routes(default="deepseek").target("/v1/messages", {}) == (
        f"{UPSTREAMS['deepseek']}/v1/messages"
    )
    assert Routes(default="https://x.example.com").target("/a", {}) == "https://x.example.com/a"


@pytest.mark.parametrize(
    ("named", "default"),
    [
        ({"UPPER": "https://x"}, None),
        ({"v1": "https://x"}, None),
        ({"a": "x"}, None),
        ({"a": "https://user:secret@x"}, None),
        ({}, "nobody"),
        ({}, "ftp://x"),
        ({}, "http://x:99999"),
    ],
)
def test_routes_that_are_none(named: dict[str, str], default: str | None) -> None:
    with pytest.raises(UsageError):
        Routes(named, default)


def test_headers_of_one_connection_are_not_passed_on() -> None:
    found = message_headers(
        [
            ("Connection", "close, X-Mine"),
            ("X-Mine", "1"),
            ("Keep-Alive", "5"),
            ("Transfer-Encoding", "chunked"),
            ("Set-Cookie", "a"),
            ("set-cookie", "b"),
        ]
    )
    assert found == [("Set-Cookie", "a"), ("set-cookie", "b")]


def test_without_a_library_the_command_that_brings_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import importlib

    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name in ("httpx", "httpx2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'cacheaudit\[httpx\]'"):
        relay.library()

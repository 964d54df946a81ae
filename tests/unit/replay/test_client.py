"""The client: what it sends, and what it makes of servers that misbehave."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Any

import pytest

from cacheaudit.errors import UsageError
from cacheaudit.jobs.replaying.client import Client, Failure, Reply, Server, is_near
from tests.unit.replay.servers import serving
from tests.unit.replay.ticking import Ticking


def talking(url: str, **settings: Any) -> closing[Client]:
    return closing(Client(url, Ticking(), **settings))


HEALTH = {"clock": "manual", "rules": "anthropic", "model": "tiny", "context_length": 9, "x": 1}
BODY = {"model": "m", "max_tokens": 1, "temperature": 0, "messages": []}


def test_a_server_of_ours_says_what_it_is() -> None:
    with serving({"/health": (200, HEALTH)}) as (url, _), talking(url) as client:
        found = client.describe()
    assert found == Server(clock="manual", rules="anthropic", model="tiny", context_length=9)
    assert found.is_ours


@pytest.mark.parametrize(
    "answer", [(404, {}), (200, b"ok"), (200, {"clock": 5}), (200, [])], ids=str
)
def test_another_one_says_nothing(answer: tuple[int, Any]) -> None:
    with serving({"/health": answer}) as (url, _), talking(url) as client:
        found = client.describe()
    assert found == Server()
    assert not found.is_ours


def test_no_server_is_a_failure() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = Client(f"http://127.0.0.1:{port}", Ticking()).describe()
    assert found == Failure("no_connection")


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/messages"])
def test_addresses_as_people_write_them(suffix: str) -> None:
    with serving({"/v1/messages": (200, {"a": 1})}) as (url, seen):
        client = Client(url + suffix, Ticking(), key="secret")
        found = client.create(BODY, {"x-more": "1"})
        client.close()
    assert isinstance(found, Reply)
    assert (found.json, round(found.seconds, 6)) == ({"a": 1}, 0.001)
    ((path, headers, body),) = seen
    assert (path, body) == ("/v1/messages", BODY)
    assert headers["x-api-key"] == "secret"
    assert headers["x-more"] == "1"
    assert headers["anthropic-version"]


def test_counting_leaves_out_what_only_answers_need() -> None:
    answers = {"/v1/messages/count_tokens": (200, {"content_tokens": [1, 2]})}
    with serving(answers) as (url, seen), talking(url) as client:
        assert client.count(BODY, {}) == [1, 2]
    assert seen[0][2] == {"model": "m", "messages": []}


@pytest.mark.parametrize(
    "answer", [(200, {"input_tokens": 3}), (200, {"content_tokens": ["a"]}), (400, {})], ids=str
)
def test_a_server_that_does_not_count_content_blocks(answer: tuple[int, Any]) -> None:
    with serving({"/v1/messages/count_tokens": answer}) as (url, _), talking(url) as client:
        assert client.count(BODY, {}) is None


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (
            (400, {"error": {"type": "invalid_request_error", "message": "no"}}),
            Failure("invalid_request_error", 400, "no"),
        ),
        ((500, b"<html>"), Failure("error", 500)),
        ((200, b"<html>"), Failure("no_json", 200)),
        ((200, b"[1]"), Failure("no_json", 200)),
        ((0, b""), Failure("cut_off")),
    ],
    ids=["refused", "page", "no-json", "list", "cut"],
)
def test_failures(answer: tuple[int, Any], wanted: Failure) -> None:
    with serving({"/v1/messages": answer}) as (url, _), talking(url) as client:
        assert client.create(BODY, {}) == wanted


def test_a_silent_server_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert Client(url, Ticking(), timeout=0.1).create(BODY, {}) == Failure("timeout")


def test_a_broken_connection_is_opened_anew() -> None:
    answers: dict[str, Any] = {"/v1/messages": (0, b"")}
    with serving(answers) as (url, _):
        client = Client(url, Ticking())
        assert client.create(BODY, {}) == Failure("cut_off")
        answers["/v1/messages"] = (200, {"a": 1})
        assert isinstance(client.create(BODY, {}), Reply)
        client.close()


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://x", "http://"])
def test_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="is no address of a server"):
        Client(url, Ticking())


def test_a_key_never_travels_unencrypted() -> None:
    with pytest.raises(UsageError, match="would get the key unencrypted"):
        Client("http://example.com", Ticking(), key="k")
    Client("https://example.com", Ticking(), key="k").close()


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("localhost", True),
        ("127.0.0.9", True),
        ("::1", True),
        ("example.com", False),
        (None, False),
    ],
)
def test_this_machine(host: str | None, near: bool) -> None:
    assert is_near(host) is near

"""Runs a server on a loopback socket in a thread, and talks to it without any SDK."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue
from typing import Any
from urllib.parse import urlsplit

from local_backend.server.launch import Server, load_model, make_engine, make_service
from local_backend.server.service import Service
from local_backend.server.settings import Settings

WAIT_S = 60.0


@dataclass(frozen=True)
class Running:
    """A server that answers.

    Attributes:
        url: Its address.
        service: What it serves; only to look at.
    """

    url: str
    service: Service

    def call(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, parsed answer and headers; a body that is bytes is sent as it is."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, _parsed(answer.read()), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _parsed(error.read()), dict(error.headers)

    def ask(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        """The answer of the Messages API to a request that is right."""
        status, answer, _ = self.call("/v1/messages", filled(body), headers)
        assert status == 200, answer
        return answer

    def refused(self, body: Any, path: str = "/v1/messages") -> tuple[int, str, str]:
        """Status, type and message of an error."""
        status, answer, headers = self.call(path, body)
        assert answer["type"] == "error"
        assert answer["request_id"] == headers["request-id"]
        return status, answer["error"]["type"], answer["error"]["message"]

    def metric(self, name: str, **labels: str) -> int:
        """One value of ``/metrics``; 0 where nothing was counted."""
        inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
        full = f"cacheaudit_{name}{{{inner}}}" if inner else f"cacheaudit_{name}"
        for line in self.call("/metrics")[1].splitlines():
            key, _, value = line.rpartition(" ")
            if key == full:
                return int(value)
        return 0

    def wait_for(self, name: str, value: int, **labels: str) -> None:
        """Wait until a metric has a value."""
        deadline = threading.Event()
        for _ in range(600):
            if self.metric(name, **labels) == value:
                return
            deadline.wait(0.1)
        raise AssertionError(f"{name} is {self.metric(name, **labels)}, not {value}")

    def pages_are_free(self) -> None:
        """Wait until nobody uses a page, and compare all books."""
        self.wait_for("kv_pages", 0, group="full", state="protected")
        states = ("available", "evictable", "protected")
        parts = [self.metric("kv_pages", group="full", state=state) for state in states]
        assert sum(parts) == self.metric("kv_pages", group="full", state="total")
        assert self.metric("open_streams") == 0
        self.service.engine.check_integrity()

    def connect(self) -> socket.socket:
        """A bare connection."""
        address = urlsplit(self.url)
        return socket.create_connection((str(address.hostname), address.port or 0), timeout=WAIT_S)


def filled(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request with what every one needs."""
    return {
        "model": "tiny",
        "max_tokens": 4,
        "messages": [{"role": "user", "content": "hello"}],
        **body,
    }


def settings(**more: Any) -> Settings:
    """Settings for tests: any port, a clock that can be set, no minimum."""
    return Settings(
        **{"port": 0, "clock": "manual", "min_cache_tokens": 0, "pages": 40_000, **more}
    )


@contextmanager
def running(**more: Any) -> Iterator[Running]:
    """A server with settings of its own."""
    chosen = settings(**more)
    loaded = load_model(chosen)
    engine = make_engine(chosen, loaded)
    service = make_service(chosen, loaded, engine)
    addresses: Queue[str] = Queue()
    server = Server(service, addresses.put)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield Running(addresses.get(timeout=WAIT_S), service)
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        engine.close()
        assert not thread.is_alive()


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()

"""Clients of a soak: plain HTTP, no SDK, and every answer is compared."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from local_backend._typing import override
from local_backend.soak.requests import Asked, Manner, draw_request

_TIMEOUT_S = 60.0
_PAUSE_S = 0.03
_BUSY = (429, 529)


class Notes:
    """What all clients saw; any thread may write.

    Attributes:
        counts: By name.
        problems: What must not happen.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[int, str] = {}
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def count(self, **more: int) -> None:
        """Add to counters."""
        with self._lock:
            self.counts.update(more)

    def problem(self, what: str) -> None:
        """Something is wrong."""
        with self._lock:
            self.problems.append(what)

    def answered(self, asked: Asked, text: str, usage: dict[str, Any], hit: dict[str, Any]) -> None:
        """A complete answer: the same text as ever, and usage that adds up."""
        read, fresh = usage["cache_read_input_tokens"], usage["input_tokens"]
        written = usage["cache_creation_input_tokens"]
        with self._lock:
            self.counts["answers"] += 1
            self.counts["compared answers"] += asked.number in self._said
            before = self._said.setdefault(asked.number, text)
            self.counts["tokens hit"] += hit["hit_tokens"]
            self.counts["tokens restored"] += hit["restored_tokens"]
            self.counts["tokens computed"] += hit["computed_tokens"]
        if before != text:
            self.problem("an answer differs from the one that the same request had before")
        if read != hit["hit_tokens"] or written + fresh != hit["computed_tokens"]:
            self.problem("usage does not say what the engine did")


class User(threading.Thread):
    """One client that asks until it is told to stop.

    Args:
        address: Of the server.
        seed: Of what it asks.
        notes: What it saw.
        stop: It ends soon after this is set.
        is_ending: Whether the server may be going away; then errors of the connection are no fault.
    """

    def __init__(
        self,
        address: str,
        seed: str,
        notes: Notes,
        stop: threading.Event,
        is_ending: Callable[[], bool],
    ) -> None:
        super().__init__(daemon=True)
        self._place = urlsplit(address).netloc
        self._draw = random.Random(seed)  # noqa: S311 - no secret depends on it
        self._notes = notes
        self._stop_asked = stop
        self._is_ending = is_ending

    @override
    def run(self) -> None:
        """Ask, wait a little, ask again."""
        while not self._stop_asked.wait(self._draw.expovariate(1 / _PAUSE_S)):
            asked = draw_request(self._draw)
            connection = http.client.HTTPConnection(self._place, timeout=_TIMEOUT_S)
            try:
                self._ask(connection, asked)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if self._is_ending():
                    return
                self._notes.problem(f"{asked.manner}: {type(error).__name__} {error}"[:200])
            finally:
                connection.close()
            self._notes.count(requests=1, **{asked.manner: 1})

    def _ask(self, connection: http.client.HTTPConnection, asked: Asked) -> None:
        headers = {"content-type": "application/json", "x-api-key": "k"}
        headers["x-cacheaudit-workspace"] = asked.workspace
        headers["content-length"] = str(len(asked.body))
        is_short = asked.manner is Manner.BREAKS_OFF
        sent = asked.body[: len(asked.body) // 2] if is_short else asked.body
        connection.request("POST", "/v1/messages", sent, headers)
        if asked.manner in (Manner.HANGS_UP, Manner.BREAKS_OFF):
            return
        answer = connection.getresponse()
        if answer.status != 200:
            self._refused(asked, answer.status, answer.read())
        elif asked.is_stream:
            self._follow(asked, answer)
        else:
            found = json.loads(answer.read())
            text = "".join(block["text"] for block in found["content"])
            self._notes.answered(asked, text, found["usage"], found["cacheaudit"]["engine"])

    def _refused(self, asked: Asked, status: int, body: bytes) -> None:
        if asked.manner is Manner.GARBLES and status == 400:
            return
        if status in _BUSY:
            self._notes.count(refused=1)
        elif not self._is_ending():
            self._notes.problem(f"{asked.manner} had {status}: {body[:200]!r}")

    def _follow(self, asked: Asked, answer: http.client.HTTPResponse) -> None:
        text: list[str] = []
        usage: dict[str, Any] = {}
        engine: dict[str, Any] = {}
        for number, event in enumerate(_events(answer)):
            if asked.manner is Manner.LEAVES and number >= asked.events:
                return
            if event["type"] == "message_start":
                usage = event["message"]["usage"]
                engine = event["message"]["cacheaudit"]["engine"]
            elif event["type"] == "content_block_delta":
                text.append(event["delta"]["text"])
            elif event["type"] == "message_stop":
                self._notes.answered(asked, "".join(text), usage, engine)
                return
            elif event["type"] == "error" and not self._is_ending():
                self._notes.problem(f"an error in a stream: {event['error']['type']}")
        if not self._is_ending():
            self._notes.problem("a stream ended without its last event")


def _events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])

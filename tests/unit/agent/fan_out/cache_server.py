"""A server with a cache of its own, small enough to be seen through.

An entry is what stands up to a marker; it can be read once the response of the request that wrote
it has begun; a marker finds entries up to 20 content blocks back. A token is four characters.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tests.unit.agent.servers import Reply, Script, events, message


class CacheScript(Script):
    """Answers by what its cache holds.

    Args:
        together: Requests that must have arrived before any of them is answered.
        fails: Says whether a request is refused.
    """

    def __init__(
        self, together: int = 1, fails: Callable[[dict[str, Any]], bool] = lambda _: False
    ) -> None:
        super().__init__()
        self._barrier = threading.Barrier(together)
        self._entries: set[str] = set()
        self._fails = fails
        self.counts: list[tuple[int, int, int]] = []

    def answer(self, path: str, head: dict[str, str], body: bytes) -> Reply:
        with self._lock:
            self.sent.append(body)
            number = len(self.sent)
        request = json.loads(body)
        if self._fails(request):
            return Reply({"type": "error", "error": {"type": "invalid_request_error"}}, 400)
        blocks = list(_blocks(request))
        read, marks = self._look_up(blocks)
        self._barrier.wait(10)
        whole = sum(size for _, size, _ in blocks)
        upto = sum(size for _, size, _ in blocks[: marks[-1] + 1]) if marks else 0
        written = max(0, upto - read)
        with self._lock:
            self.counts.append((written, read, whole - read - written))
        usage = {
            "input_tokens": whole - read - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": 1,
        }
        keys = {_key(blocks[: mark + 1]) for mark in marks}
        if not request.get("stream"):
            self._entries |= keys
            return Reply(message(number, usage=usage))
        return Reply(frames=self._frames(events(number, usage=usage), keys))  # type: ignore[arg-type]

    def _frames(self, frames: list[bytes], keys: set[str]) -> Iterator[bytes]:
        self._entries |= keys
        yield from frames

    def _look_up(self, blocks: list[tuple[str, int, bool]]) -> tuple[int, list[int]]:
        marks = [index for index, block in enumerate(blocks) if block[2]]
        assert len(marks) <= 4
        for mark in reversed(marks):
            for end in range(mark, max(-1, mark - 20), -1):
                if _key(blocks[: end + 1]) in self._entries:
                    return sum(size for _, size, _ in blocks[: end + 1]), marks
        return 0, marks


def _blocks(request: dict[str, Any]) -> Iterator[tuple[str, int, bool]]:
    """Yield text, size and whether it is marked, in the provider's order."""
    for content in (request.get("system"), *(m["content"] for m in request["messages"])):
        items = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        for item in items:
            yield item["text"], len(item["text"]) // 4, "cache_control" in item


def _key(blocks: list[tuple[str, int, bool]]) -> str:
    return json.dumps([text for text, _, _ in blocks])

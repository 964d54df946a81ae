"""Remembers which schemas the model has read, so that a guess is not taken for a call.

A schema counts from the moment when the result that holds it has been sent: the model reads it
with the next request, and only what it answers then can rest on it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cacheaudit.agent.tools.tool import Tool, digest_of


class Shown:
    """Names and digests of what was shown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        self._waiting: list[tuple[str, dict[str, str]]] = []

    def give(self, text: str, tools: Iterable[Tool]) -> None:
        """Note that a result holds the schemas of tools; it has not been sent yet."""
        with self._lock:
            self._waiting.append((text, {tool.name: tool.digest() for tool in tools}))

    def sent(self) -> None:
        """Note that all results that were given are part of a request that was answered."""
        with self._lock:
            for _, digests in self._waiting:
                self._known.update(digests)
            self._waiting.clear()

    def seen_in(self, messages: Any) -> None:
        """Note a request that is sent: what it holds of the results counts from its answer on."""
        with self._lock:
            if not self._waiting or not isinstance(messages, list):
                return
            texts = set(texts_of(messages))
            for item in list(self._waiting):
                if item[0] in texts:
                    self._known.update(item[1])
                    self._waiting.remove(item)

    def digest(self, name: str) -> str | None:
        """Return the digest of the definition that the model has read; ``None``: none."""
        with self._lock:
            return self._known.get(name)

    def rebuild(self, messages: Any) -> None:
        """Forget all, and take what a history holds: after a restart or a compaction."""
        known: dict[str, str] = {}
        for text in texts_of(messages if isinstance(messages, list) else []):
            for definition in _definitions(text):
                known[definition["name"]] = digest_of(definition)
        with self._lock:
            self._known = known
            self._waiting.clear()


def texts_of(messages: list[Any]) -> Iterator[str]:
    """Yield the texts of all tool results, the latest first."""
    for message in reversed(messages):
        content = message.get("content") if isinstance(message, Mapping) else None
        for block in content if isinstance(content, list) else []:
            if isinstance(block, Mapping) and block.get("type") == "tool_result":
                yield from _texts(block.get("content"))


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
        return
    for block in content if isinstance(content, list) else []:
        if isinstance(block, Mapping) and isinstance(block.get("text"), str):
            yield block["text"]


def _definitions(text: str) -> Iterator[dict[str, Any]]:
    if '"input_schema"' not in text:
        return
    try:
        body = json.loads(text)
    except ValueError:
        return
    if not isinstance(body, dict):
        return
    tools = body.get("tools")
    for item in [*(tools if isinstance(tools, list) else []), body.get("schema")]:
        if isinstance(item, dict) and {"name", "description", "input_schema"} <= item.keys():
            yield {key: item[key] for key in ("name", "description", "input_schema")}

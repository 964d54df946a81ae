"""Requests for replays, and an independent count of what a byte-level server makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt
from cacheaudit.providers.registry import expand

ROOT = Path(__file__).resolve().parents[3]
SESSIONS = ROOT / "fixtures" / "sessions"
MARK = {"type": "ephemeral"}


def calls_of(*paths: Path) -> list[Call]:
    corpus = Corpus(paths, Problems(), lambda _done, _whole: None)
    return [call for session in corpus.sessions() for call in session.calls]


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    return expand({"model": "claude-opus-5", "max_tokens": 5, **body}, provider="anthropic")


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}, **more}


def naive_counts(body: Mapping[str, Any]) -> list[int]:
    """Count bytes by content block: JSON of tools and calls, text of the rest, a token a turn."""
    found: list[int] = []
    speaker = ""
    for now, size in _shown(body):
        found.append(size + (now != speaker))
        speaker = now
    return found


def _shown(body: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for item in body.get("tools", ()):
        yield "system", _json_length(item)
    for item in body.get("system", ()):
        yield "system", len(item["text"])
    for message in body["messages"]:
        for item in message["content"]:
            yield message["role"], _block_length(item)


def _block_length(item: Mapping[str, Any]) -> int:
    kind = item["type"]
    if kind == "text":
        return len(item["text"])
    if kind == "thinking":
        return len(item["thinking"])
    if kind == "document":
        return len(item["source"]["data"])
    if kind == "tool_use":
        return _json_length({k: item[k] for k in ("id", "name", "input")})
    assert kind == "tool_result"
    inner: Sequence[Mapping[str, Any]] = item.get("content", ())
    return len(item["tool_use_id"]) + 1 + sum(len(part["text"]) for part in inner)


def _json_length(item: Mapping[str, Any]) -> int:
    kept = {k: v for k, v in item.items() if k != "cache_control"}
    return len(json.dumps(kept, separators=(",", ":")))

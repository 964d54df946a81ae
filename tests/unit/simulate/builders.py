"""Requests and calls for tests of the simulator, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import digest
from cacheaudit.model.tokens import with_recorded_tokens
from cacheaudit.model.usage import Usage
from cacheaudit.providers.registry import expand
from cacheaudit.simulate.request import Mark, SimRequest

MARK = {"type": "ephemeral"}


def request(
    names: Sequence[str],
    marks: Sequence[int | tuple[int, str | None]] = (),
    *,
    at: float = 0.0,
    tokens: int | Sequence[int] = 100,
    kinds: Sequence[str] | None = None,
    first: float | None = None,
    end: float | None = None,
    identity: str = "r",
    **more: Any,
) -> SimRequest:
    """Make a request of named content blocks; equal leading names share a prefix."""
    state, digests, sums, total = b"", [], [], 0
    sizes = [tokens] * len(names) if isinstance(tokens, int) else list(tokens)
    for name, size in zip(names, sizes, strict=True):
        state = digest(state + name.encode())
        digests.append(state)
        total += size
        sums.append(total)
    readable = at + 1.0 if first is None else first
    placed = [m if isinstance(m, tuple) else (m, None) for m in marks]
    return SimRequest(
        id=identity,
        at=at,
        readable_at=readable,
        ended_at=readable if end is None else end,
        model="m",
        digests=digests,
        sizes=sums,
        kinds=list(kinds) if kinds is not None else ["text"] * len(names),
        marks=tuple(more.pop("placed", None) or (Mark(index, ttl) for index, ttl in placed)),
        **more,
    )


def blocks(count: int, prefix: str = "b") -> list[str]:
    """Name content blocks ``b1`` to ``b<count>``."""
    return [f"{prefix}{n}" for n in range(1, count + 1)]


def call(
    identity: str,
    body: Mapping[str, Any],
    *,
    at: float,
    seconds: float = 5.0,
    sizes: Sequence[int] | None = None,
    usage: Usage | None = None,
    provider: str = "anthropic",
    surface: str | None = "claude_api",
    **more: Any,
) -> Call:
    """Make a call with a body."""
    prompt = expand(body, provider=provider)
    if sizes is not None:
        prompt = with_recorded_tokens(prompt, sizes)
    return Call(
        id=identity,
        session="s",
        provider=provider,
        surface=surface,
        model=body.get("model"),
        started_at=at,
        first_token_at=more.pop("first", at + 1.0),
        ended_at=at + seconds,
        usage=usage,
        prompt=prompt,
        **more,
    )


def body(
    *texts: str,
    model: str = "claude-opus-5",
    system: str = "You help.",
    tools: Sequence[str] = (),
    mark: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Make a Messages API body: user and assistant take turns; the end is marked."""
    messages: list[dict[str, Any]] = [
        {"role": "assistant" if n % 2 else "user", "content": [{"type": "text", "text": text}]}
        for n, text in enumerate(texts)
    ]
    if mark and messages:
        messages[-1]["content"][-1]["cache_control"] = MARK
    made: dict[str, Any] = {
        "model": model,
        "max_tokens": 100,
        "system": [{"type": "text", "text": system, "cache_control": MARK}] if system else [],
        "messages": messages,
    }
    if tools:
        made["tools"] = [
            {"name": name, "input_schema": {"type": "object", "properties": {}}} for name in tools
        ]
    return {**made, **more}

"""Builds small sessions for rules' own examples; also handy in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheaudit.model.call import Boundary, Call, MissReason, Session
from cacheaudit.model.ports import Provider
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.usage import Ttl, Usage
from cacheaudit.providers.anthropic import AnthropicProvider

MODEL = "claude-opus-4-6"
_WRITE_FIELD = {
    "5m": "write_5m",
    "1h": "write_1h",
    "30m": "write_30m",
    "12h": "write_12h",
    "other": "write_other",
}


class Script:
    """Adds calls one after the other; every method returns the script.

    Args:
        model: Model of the calls.
        provider: Provider of the calls.
        ttl: Lifetime that writes are labelled with.
    """

    def __init__(
        self, *, model: str = MODEL, provider: str = "anthropic", ttl: Ttl | None = "5m"
    ) -> None:
        self._model = model
        self._provider = provider
        self._ttl: Ttl | None = ttl
        self._calls: list[Call] = []
        self._expander: Provider = AnthropicProvider()
        self._bodies: dict[str, Prompt] = {}

    def call(
        self,
        at: float | None,
        read: int,
        write: int | None,
        *,
        uncached: int = 0,
        duration: float | None = None,
        lane: str = "main",
        model: str | None = None,
        ttl: Ttl | None = None,
        reason: str | None = None,
        boundary: str | None = None,
        purpose: str = "main",
        body: Mapping[str, Any] | None = None,
        output: int = 100,
    ) -> Script:
        """Add a call by what it read, wrote and sent uncached."""
        number = len(self._calls) + 1
        field = _WRITE_FIELD[ttl or self._ttl or "other"]
        written = {} if write is None else {field: write}
        total = read + (write or 0) + uncached
        self._calls.append(
            Call(
                id=f"call-{number}",
                session="example",
                lane=lane,
                purpose=purpose,
                provider=self._provider,
                model=model or self._model,
                started_at=at,
                ended_at=at + duration if at is not None and duration is not None else None,
                usage=Usage(
                    total_input=total,
                    uncached_input=uncached,
                    cache_read=read,
                    output=output,
                    dialect=self._provider,
                    **written,  # type: ignore[arg-type]
                ),
                prompt=self._prompt(lane, body),
                diagnostics=MissReason(reason) if reason is not None else None,
                boundaries=(Boundary(boundary),) if boundary is not None else (),
            )
        )
        return self

    def _prompt(self, lane: str, body: Mapping[str, Any] | None) -> Prompt | None:
        if body is None:
            return None
        self._bodies[lane] = self._expander.expand(body, self._bodies.get(lane))
        return self._bodies[lane]

    def session(self) -> Session:
        """Return the session."""
        return Session(id="example", source="example", calls=tuple(self._calls))


def body(
    *texts: str | list[str],
    tools: tuple[str, ...] = ("read_file", "run_tests"),
    system: str = "You help with code.",
    **parameters: Any,
) -> dict[str, Any]:
    """Make a Messages API body; texts alternate between user and assistant, a list is one message.

    Args:
        texts: Content of the messages.
        tools: Names of the tools.
        system: System prompt.
        parameters: Further fields of the body.
    """
    return {
        "model": MODEL,
        "tools": [
            {"name": name, "description": f"The tool {name}.", "input_schema": {"type": "object"}}
            for name in tools
        ],
        "system": system,
        "messages": [
            {
                "role": "assistant" if index % 2 else "user",
                "content": [{"type": "text", "text": t} for t in text]
                if isinstance(text, list)
                else text,
            }
            for index, text in enumerate(texts)
        ],
        **parameters,
    }

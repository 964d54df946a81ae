"""Conversations with bodies whose content blocks have exact sizes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from cacheaudit.model.call import Call, Session
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import with_recorded_tokens
from cacheaudit.model.usage import Usage
from cacheaudit.providers.anthropic import PROVIDER
from cacheaudit.simulate.edit import parse_edit
from cacheaudit.simulate.run import run, usage_of
from cacheaudit.simulate.whatif import evaluate

MODEL = "claude-opus-5"
Part = tuple[dict[str, Any], int]


def text(words: str, tokens: int, **fields: Any) -> Part:
    """A text block of a known size."""
    return {"type": "text", "text": words, **fields}, tokens


def use(name: str, tokens: int = 100) -> Part:
    """A tool call."""
    return {"type": "tool_use", "id": name, "name": "grep", "input": {"q": name}}, tokens


def result(name: str, tokens: int) -> Part:
    """What a tool returned."""
    return {"type": "tool_result", "tool_use_id": name, "content": f"out {name}"}, tokens


def tool(name: str, tokens: int = 500, **fields: Any) -> Part:
    """A tool definition."""
    return {"name": name, "input_schema": {"type": "object"}, **fields}, tokens


class Talk:
    """A conversation; every ``sent`` is one request of it."""

    def __init__(self, tools: Sequence[Part] = (), system: Sequence[Part] = ()) -> None:
        self.tools = list(tools)
        self.system = list(system)
        self.messages: list[tuple[str, list[Part]]] = []
        self.calls: list[Call] = []

    def say(self, role: str, *parts: Part) -> Talk:
        """Append a message."""
        self.messages.append((role, list(parts)))
        return self

    def round(self, name: str, tokens: int = 1000) -> Talk:
        """Append a tool call and its result, ``tokens`` in all."""
        self.say("assistant", use(name, 100))
        return self.say("user", result(name, tokens - 100))

    def sent(
        self,
        at: float,
        *,
        seconds: float = 5.0,
        mark: str = "system+tail",
        ttl: str | None = None,
        lane: str = "main",
        stop: str | None = "tool_use",
        purpose: str | None = None,
        output: int = 100,
        body: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Talk:
        """Send the conversation as it stands."""
        number = len(self.calls) + 1
        sent, sizes = self._body(mark, ttl)
        prompt = with_recorded_tokens(PROVIDER.expand({**sent, **(body or {})}), sizes)
        fields.setdefault("id", f"{lane}-{number}")
        self.calls.append(
            Call(
                session="s",
                lane=lane,
                purpose=purpose or ("main" if lane == "main" else "subagent"),
                provider="anthropic",
                surface="claude_api",
                model=MODEL,
                started_at=at,
                first_token_at=at + 1,
                ended_at=at + seconds,
                usage=Usage(total_input=prompt.tokens, output=output),
                prompt=prompt,
                stop_reason=stop,
                relative_time=True,
                **fields,
            )
        )
        return self

    def _body(self, mark: str, ttl: str | None) -> tuple[dict[str, Any], list[int]]:
        marker = {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}

        def copied(parts: Sequence[Part]) -> list[dict[str, Any]]:
            return [dict(block) for block, _ in parts]

        tools, system = copied(self.tools), copied(self.system)
        messages = [{"role": role, "content": copied(parts)} for role, parts in self.messages]
        if "tools" in mark and tools:
            tools[-1]["cache_control"] = marker
        if "system" in mark and system:
            system[-1]["cache_control"] = marker
        if "tail" in mark and messages:
            messages[-1]["content"][-1]["cache_control"] = marker
        body: dict[str, Any] = {
            "model": MODEL,
            "max_tokens": 1024,
            "tools": tools,
            "system": system,
            "messages": messages,
        }
        groups = [self.tools, self.system, *(parts for _, parts in self.messages)]
        return body, [size for parts in groups for _, size in parts]


def billed(calls: Sequence[Call]) -> list[Call]:
    """Write into each call what the simulator says it was billed: a record that agrees with it."""
    rows = run(calls).by_id()
    found = []
    for call in calls:
        outcome = rows[call.id].predicted
        assert outcome is not None
        usage = usage_of(outcome, call.usage)
        found.append(msgspec.structs.replace(call, usage=usage))
    return found


def without_bodies(calls: Sequence[Call]) -> Session:
    """Keep only what a usage log knows."""
    bare = tuple(msgspec.structs.replace(call, prompt=None) for call in calls)
    return Session(id="s", source="test", calls=bare)


def growing(
    starts: Sequence[float], *, first: int = 4000, step: int = 1000, ttl: str | None = None
) -> list[Call]:
    """One lane that grows by a tool round a call; its usage is what the cache makes of it."""
    talk = Talk([tool("grep", 1000)], [text("system", 3000)]).say("user", text("task", first))
    for number, start in enumerate(starts):
        if number:
            talk.round(f"t{number}", step)
        last = number == len(starts) - 1
        talk.sent(start, ttl=ttl, stop="end_turn" if last else "tool_use")
    return billed(talk.calls)


def written_read(calls: Sequence[Call]) -> list[tuple[int, int]]:
    """Simulate and list what each call writes and reads."""
    rows = run(calls).calls
    return [(row.predicted.written, row.predicted.read) for row in rows if row.predicted]


def prompt_of(call: Call) -> Prompt:
    """The prompt, which a test knows to be there."""
    assert call.prompt is not None
    return call.prompt


def saves(calls: list[Call], name: str) -> Decimal:
    """What one edit saves, in input equivalents."""
    (trial,) = evaluate(calls, [parse_edit(name)]).alone
    assert trial.refused is None
    assert trial.saves.input_equivalents is not None
    return trial.saves.input_equivalents


def refusal(calls: list[Call], name: str) -> str:
    """Why an edit is refused."""
    (trial,) = evaluate(calls, [parse_edit(name)]).alone
    assert trial.bill is None
    assert trial.refused is not None
    return trial.refused


def base() -> Talk:
    """A first request of 10,000 tokens, 5,000 of them tools and system."""
    return Talk([tool("grep", 2000)], [text("rules", 3000)]).say("user", text("task", 5000))

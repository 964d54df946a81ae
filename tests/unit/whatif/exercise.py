"""The session of fourteen requests, with bodies whose content blocks have exact sizes."""

from __future__ import annotations

from typing import Any

from cacheaudit.model.call import Call
from cacheaudit.model.tokens import with_recorded_tokens
from cacheaudit.model.usage import Usage
from cacheaudit.providers.anthropic import PROVIDER

MODEL = "claude-opus-5"
MARK = {"type": "ephemeral"}

# start, duration, total input, written, read
ROWS = (
    (0, 20, 8500, 8500, 0),
    (30, 15, 10000, 1500, 8500),
    (55, 18, 11500, 1500, 10000),
    (80, 25, 32800, 21300, 11500),
    (115, 15, 34650, 34650, 0),
    (140, 150, 36150, 1500, 34650),
    (475, 20, 37650, 37650, 0),
    (505, 15, 39150, 1500, 37650),
    (530, 15, 40650, 33300, 7350),
    (555, 15, 42150, 3000, 39150),
    (580, 20, 51870, 44520, 7350),
    (610, 25, 82370, 30500, 51870),
    (610, 25, 82370, 30500, 51870),
    (610, 25, 82370, 30500, 51870),
)

_TOOLS = ("apply_patch", "grep", "read_file", "run_tests", "submit_patch", "write_file")
_TOOL_TOKENS = (400, 350, 300, 450, 250, 250)
_SYSTEM_TOKENS = 5000
_NEW_TOOL = "db_query"


def _tool(name: str) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}}


class _Body:
    """A conversation that grows; sizes go along with the content blocks."""

    def __init__(self) -> None:
        self.messages: list[tuple[dict[str, Any], list[int]]] = []

    def user(self, *parts: tuple[dict[str, Any], int]) -> None:
        self._add("user", parts)

    def assistant(self, *parts: tuple[dict[str, Any], int]) -> None:
        self._add("assistant", parts)

    def _add(self, role: str, parts: tuple[tuple[dict[str, Any], int], ...]) -> None:
        content = [dict(block) for block, _ in parts]
        self.messages.append(({"role": role, "content": content}, [size for _, size in parts]))

    def round(self, number: int, result: int = 1200) -> None:
        """Add an answer of a text and a tool call, 300 tokens, and the tool's result."""
        call = {"type": "tool_use", "id": f"t{number}", "name": "grep", "input": {"n": number}}
        self.assistant((_text(f"thought {number}"), 100), (call, 200))
        answer = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"out {number}"}
        self.user((answer, result))

    def sent(self, *, with_new_tool: bool, forced: bool) -> tuple[dict[str, Any], list[int]]:
        names = list(_TOOLS)
        sizes = list(_TOOL_TOKENS)
        if with_new_tool:
            names.insert(2, _NEW_TOOL)
            sizes.insert(2, 350)
        messages = [
            {"role": m["role"], "content": [dict(b) for b in m["content"]]}
            for m, _ in self.messages
        ]
        messages[-1]["content"][-1]["cache_control"] = MARK
        body = {
            "model": MODEL,
            "max_tokens": 4096,
            "tools": [_tool(name) for name in names],
            "system": [{"type": "text", "text": "You fix bugs.", "cache_control": MARK}],
            "messages": messages,
        }
        if forced:
            body["tool_choice"] = {"type": "tool", "name": "submit_patch"}
        return body, [*sizes, _SYSTEM_TOKENS, *(n for _, ns in self.messages for n in ns)]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def exercise() -> list[Call]:
    """Build the fourteen calls."""
    body = _Body()
    body.user((_text("the task"), 1500))
    calls = [_call(1, body)]
    for number in range(2, 11):
        body.round(number, 21000 if number == 4 else 1200)
        calls.append(_call(number, body, forced=number == 9))
    body.assistant((_text("done"), 120))
    body.user(*((_text(f"file {n}"), 400) for n in range(24)))
    calls.append(_call(11, body))
    body.assistant((_text("spread it"), 300))
    for number, part in ((12, "a"), (13, "b"), (14, "c")):
        branch = _Body()
        branch.messages = list(body.messages)
        branch.user((_text("the repo map"), 30000), (_text(f"your part: {part}"), 200))
        calls.append(_call(number, branch, lane=f"sub-{part}"))
    return calls


def _call(number: int, body: _Body, *, lane: str = "main", forced: bool = False) -> Call:
    start, duration, total, written, read = ROWS[number - 1]
    sent, sizes = body.sent(with_new_tool=number >= 5, forced=forced)
    prompt = with_recorded_tokens(PROVIDER.expand(sent), sizes)
    assert prompt.tokens == total, (number, prompt.tokens)
    calls_tool = number not in (10, 11, 12, 13, 14)
    return Call(
        id=str(number),
        session="exercise",
        lane=lane,
        parent="11" if lane != "main" else None,
        purpose="main" if lane == "main" else "subagent",
        provider="anthropic",
        surface="claude_api",
        model=MODEL,
        started_at=float(start),
        ended_at=float(start + duration),
        usage=Usage(
            total_input=total,
            uncached_input=total - written - read,
            cache_read=read,
            write_5m=written,
            output=300,
        ),
        prompt=prompt,
        stop_reason="tool_use" if calls_tool else "end_turn",
        relative_time=True,
    )

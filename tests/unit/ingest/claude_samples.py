"""Lines of Claude Code transcripts as clients write them, and now and then otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from cacheaudit.ingest.claude_response import Response
from cacheaudit.ingest.claude_runs import scan

if TYPE_CHECKING:
    from cacheaudit.ingest.claude_runs import Taker

_TEXTS = (
    "short",
    "x" * 700,
    '"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":99999}',
    '"message":{"role":"user"',
    '","message":{"id":"msg_9","usage":{}}',
    "é\u2028\\",
)
_ODDITIES = st.sampled_from(
    [
        "none",
        "none",
        "none",
        "none",
        "no_parent",
        "odd_parent",
        "version_behind",
        "agent_behind",
        "session_behind",
        "request_last",
        "time_in_front",
        "stop_in_front",
        "side",
        "long_id",
        "no_request",
        "diagnosed",
    ]
)


def uuid(number: int) -> str:
    """An identifier of a line."""
    return f"{number:08x}-0000-4000-8000-{number:012x}"


def _envelope(draw: st.DrawFn, number: int, oddity: str) -> dict[str, Any]:
    parent: str | None = uuid(number - 1)
    if oddity == "no_parent":
        parent = None
    elif oddity == "odd_parent":
        parent = draw(
            st.sampled_from(["p", "é" * 18, '"' * 18, '"message":{"role":"user"}' + "p" * 11])
        )
    return {
        "parentUuid": parent,
        "isSidechain": oddity == "side",
        "cwd": "/home/dev",
        "sessionId": draw(st.sampled_from(["s", "s", "s", "t"])),
        "version": draw(st.sampled_from(["2.1.0", "2.1.0", "2.2.0"])),
        "gitBranch": "main",
    }


def _answer(draw: st.DrawFn, number: int, known: dict[str, Any]) -> dict[str, Any]:
    oddity = draw(_ODDITIES)
    front = _envelope(draw, number, oddity)
    output = draw(st.sampled_from([known["output"], known["output"], 4, 1_200]))
    usage = {
        "input_tokens": known["input"],
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
    }
    stop = draw(st.sampled_from([None, "end_turn", "tool_use"]))
    message = {
        "model": known["model"],
        "id": known["id"] + ("_longer" if oddity == "long_id" else ""),
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": draw(st.sampled_from(_TEXTS))}],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }
    if oddity == "diagnosed":
        message["diagnostics"] = None
    if oddity == "stop_in_front":
        message = {"stop_reason": message.pop("stop_reason"), **message}
    back = {
        "requestId": known["request"],
        "type": "assistant",
        "uuid": uuid(number),
        "timestamp": f"2026-11-01T00:{number // 60:02d}:{number % 60:02d}.000Z",
    }
    if oddity == "no_request":
        del back["requestId"]
    elif oddity == "request_last":
        back["requestId"] = back.pop("requestId")
    elif oddity == "time_in_front":
        front["timestamp"] = back.pop("timestamp")
    elif oddity == "version_behind":
        back = {"version": "9.9.9", **back}
        del front["version"]
    elif oddity == "session_behind":
        back = {"sessionId": "behind", **back}
        del front["sessionId"]
    elif oddity == "agent_behind":
        back = {"agentId": "a7", **back}
    return {**front, "message": message, **back}


@st.composite
def transcript(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Lines as clients write them, with now and then one that is built in another way."""
    rows: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 8))):
        known = {
            "id": f"msg_{draw(st.integers(1, 5))}",
            "request": f"req_{draw(st.integers(1, 2))}",
            "model": draw(st.sampled_from(["claude-opus-5-5"] * 3 + ["claude-haiku-5"])),
            "output": draw(st.sampled_from([7, 800])),
            "input": draw(st.integers(1, 20)),
        }
        rows.extend(_answer(draw, len(rows) + 1, known) for _ in range(draw(st.integers(1, 3))))
        kind = draw(st.sampled_from(["user", "user", "system", "progress"]))
        front = _envelope(draw, len(rows) + 1, draw(_ODDITIES))
        back = {
            "uuid": uuid(len(rows) + 1),
            "timestamp": f"2026-11-01T00:{len(rows) // 60:02d}:{len(rows) % 60:02d}.500Z",
        }
        body: dict[str, Any] = {"subtype": "turn_duration"}
        if kind == "user":
            body = {"message": {"role": "user", "content": draw(st.sampled_from(_TEXTS))}}
        elif kind == "progress":
            body = {"data": {"message": {"type": "assistant", "usage": {"output_tokens": 5}}}}
        rows.append({**front, "type": kind, **body, **back})
    return rows


def usual(number: int, **changes: Any) -> dict[str, Any]:
    """A line of a response of its own."""
    return {
        "parentUuid": uuid(number - 1),
        "isSidechain": False,
        "sessionId": "s",
        "version": "2.1.0",
        "message": {
            "model": "claude-opus-5-5",
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "content": [],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 3, "output_tokens": 7},
        },
        "requestId": f"req_{number}",
        "type": "assistant",
        "uuid": uuid(number),
        "timestamp": f"2026-11-01T00:00:{number:02d}.000Z",
        **changes,
    }


def as_lines(rows: list[dict[str, Any]], ensure: bool = True) -> bytes:
    """The lines as a client writes them, without blanks."""
    lines = (json.dumps(row, ensure_ascii=ensure, separators=(",", ":")) for row in rows)
    return "\n".join(lines).encode()


def seen(
    path: Path, take: Taker | None, *, timing: bool = True, start: int = 0, first_line: int = 1
) -> tuple[list[Response], int, list[tuple[str, str]]]:
    """All that a scan leaves, but what only its own next lines are compared with."""
    problems: list[tuple[str, str]] = []

    def count(kind: str, where: str, detail: str = "") -> None:
        problems.append((kind, where))

    state = scan(path, count, timing=timing, start=start, first_line=first_line, take=take)
    responses = list(state.responses.values())
    for response in responses:
        response.known_tail, response.far = b"", 0
        if not timing:
            response.last_at = None  # totals do not ask for it
    return responses, state.lines, problems

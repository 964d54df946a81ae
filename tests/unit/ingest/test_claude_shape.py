"""Claude Code transcripts of the usual build: what is taken by comparison is what stands there."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.sources.claude_code import SOURCE

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


def _uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{number:012x}"


def _envelope(draw: st.DrawFn, number: int, oddity: str) -> dict[str, Any]:
    parent: str | None = _uuid(number - 1)
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
        "uuid": _uuid(number),
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
def _transcript(draw: st.DrawFn) -> list[dict[str, Any]]:
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
            "uuid": _uuid(len(rows) + 1),
            "timestamp": f"2026-11-01T00:{len(rows) // 60:02d}:{len(rows) % 60:02d}.500Z",
        }
        body: dict[str, Any] = {"subtype": "turn_duration"}
        if kind == "user":
            body = {"message": {"role": "user", "content": draw(st.sampled_from(_TEXTS))}}
        elif kind == "progress":
            body = {"data": {"message": {"type": "assistant", "usage": {"output_tokens": 5}}}}
        rows.append({**front, "type": kind, **body, **back})
    return rows


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _naive(rows: list[dict[str, Any]]) -> dict[tuple[str, str | None], tuple[Any, ...]]:
    """Each response by its lines: first for what it belongs to, last for its end."""
    lines: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for row in rows:
        if row["type"] == "assistant":
            key = (row["message"]["id"], row.get("requestId"))
            lines.setdefault(key, []).append(row)
    found = {}
    for key, own in lines.items():
        first, last = own[0], own[-1]
        best = max(own, key=lambda row: row["message"]["usage"]["output_tokens"])
        stops = [s for row in own if (s := row["message"]["stop_reason"]) is not None]
        found[key] = (
            first["sessionId"],
            f"claude-code {first['version']}",
            first["isSidechain"],
            first["message"]["model"],
            best["message"]["usage"]["input_tokens"],
            best["message"]["usage"]["output_tokens"],
            stops[-1] if stops else None,
            _at(first["timestamp"]),
            _at(last["timestamp"]),
        )
    return found


def _ascii(rows: list[dict[str, Any]], ensure: bool) -> bytes:
    lines = (json.dumps(row, ensure_ascii=ensure, separators=(",", ":")) for row in rows)
    return "\n".join(lines).encode()


@settings(max_examples=200)
@given(_transcript(), st.booleans())
def test_lines_of_the_usual_build_read_as_they_stand(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], ensure: bool
) -> None:
    path = tmp_path_factory.mktemp("t") / "s.jsonl"
    path.write_bytes(_ascii(rows, ensure))
    problems = Problems()
    found = {
        (c.id, (c.dedupe_key or "").partition(":")[2] or None): (
            c.session,
            c.client,
            c.purpose == "subagent",
            c.model,
            c.usage and c.usage.uncached_input,
            c.usage and c.usage.output,
            c.stop_reason,
            c.start_span and c.start_span.high,
            c.ended_at,
        )
        for c in SOURCE.read(path, problems)
    }
    assert found == _naive(rows)
    assert not problems
    totals = {r.key: r.usage.output for r in SOURCE.usages(path, problems)}
    expected = {f"{i}:{r}" if r else i: seen[5] for (i, r), seen in found.items()}
    assert totals == expected


def _usual(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "parentUuid": _uuid(number - 1),
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
        "uuid": _uuid(number),
        "timestamp": f"2026-11-01T00:00:{number:02d}.000Z",
        **changes,
    }


@pytest.mark.parametrize("cut", range(1, 160, 7))
def test_a_line_cut_off_behind_usual_ones_is_counted(tmp_path: Path, cut: int) -> None:
    whole = _ascii([_usual(1), _usual(2), _usual(3)], ensure=True)
    path = tmp_path / "s.jsonl"
    path.write_bytes(whole + b"\n" + _ascii([_usual(4)], ensure=True)[:-cut])
    problems = Problems()
    assert [c.id for c in SOURCE.read(path, problems)] == ["msg_1", "msg_2", "msg_3"]
    assert problems.count("truncated_line") == 1


@pytest.mark.parametrize("place", ["parent", "id", "request"])
def test_bytes_that_are_no_text_are_counted_in_usual_lines(tmp_path: Path, place: str) -> None:
    bad = _ascii([_usual(4)], ensure=True)
    old = {"parent": _uuid(3).encode(), "id": b"msg_4", "request": b"req_4"}[place]
    path = tmp_path / "s.jsonl"
    whole = _ascii([_usual(1), _usual(2), _usual(3)], ensure=True)
    path.write_bytes(whole + b"\n" + bad.replace(old, b"\xff" * len(old)))
    problems = Problems()
    assert len(list(SOURCE.read(path, problems))) == 4
    assert problems.count("encoding") == 1

"""Claude Code transcripts: broken lines without usage, short lines, times in odd places."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.ingest.gather import gather
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.sources.claude_code import SOURCE
from cacheaudit.store import open_store

pytestmark = pytest.mark.usefixtures("scanner")

_USER = b'{"type":"user","message":{"role":"user","content":"go"},"timestamp":"2026-11-01"}'


def _line(mid: str, **changes: Any) -> str:
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 7,
        **changes,
    }
    return json.dumps(
        {
            "sessionId": "s",
            "message": {"model": "claude-opus-5-5", "id": mid, "content": [], "usage": usage},
            "requestId": f"r{mid}",
            "type": "assistant",
            "timestamp": "2026-11-01T00:00:00.000Z",
        }
    )


def _read(path: Path) -> tuple[list[Any], Problems]:
    problems = Problems()
    return list(SOURCE.read(path, problems)), problems


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (_line("msg_x")[:30].encode(), "truncated_line"),
        (b'{"type":"assistant","mess', "truncated_line"),
        (_USER[:-20], "truncated_line"),
        (_USER[:20], "truncated_line"),
        (b'{"type":"system","content":}', "invalid_json"),
        (b'{"type":"progress","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
        (b"[1,2]", "wrong_type"),
        (b"17", "wrong_type"),
    ],
)
@pytest.mark.parametrize("position", [0, 1, 3])
@pytest.mark.parametrize("is_total", [False, True])
def test_a_broken_line_without_usage_is_counted_too(
    tmp_path: Path, line: bytes, kind: str, position: int, is_total: bool
) -> None:
    lines = [_line("msg_1").encode(), _USER, _line("msg_2").encode()]
    lines.insert(position, line)
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join(lines))
    problems = Problems()
    if is_total:
        assert len(list(SOURCE.usages(path, problems))) == 2
    else:
        assert [c.id for c in SOURCE.read(path, problems)] == ["msg_1", "msg_2"]
    assert [(name, count) for name, count, _ in problems.items()] == [(kind, 1)]
    assert f":{position + 1}" in problems.items()[0][2][0]


def test_lines_of_other_programs_are_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    odd = b'{"type":"x","timestamp":17,"uuid":null}'
    path.write_bytes(b"\n".join([b"\xef\xbb\xbf" + odd, odd, _line("msg_1").encode(), b"", odd]))
    calls, problems = _read(path)
    assert [c.id for c in calls] == ["msg_1"]
    assert not problems


def test_a_response_ends_with_its_last_line_wherever_the_time_stands(tmp_path: Path) -> None:
    rows = [json.loads(_line("msg_1")) for _ in range(3)]
    for second, row in enumerate(rows):
        row["timestamp"] = f"2026-11-01T00:00:0{second}.000Z"
        row["message"]["stop_reason"] = None
        row["padding"] = "p" * 90
    front = [{"timestamp": row.pop("timestamp"), **row} for row in map(dict, rows)]
    for name, lines in (("back", rows), ("front", front)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps(x, separators=(",", ":")) for x in lines))
        ((call,), _) = _read(path)
        assert call.ended_at == datetime.fromisoformat("2026-11-01T00:00:02Z").timestamp()


@pytest.mark.parametrize("padding", [0, 100, 300, 700])
def test_a_mark_of_compaction_is_seen_however_short_its_line(tmp_path: Path, padding: int) -> None:
    mark = (
        '{"type":"system","subtype":"compact_boundary","timestamp":"2026-11-01T00:00:03.000Z",'
        '"compactMetadata":{"trigger":"auto","preTokens":60000},"x":"' + "x" * padding + '"}'
    )
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join([_line("msg_1"), mark, _USER.decode(), _line("msg_2")]))
    calls, problems = _read(path)
    assert [len(c.boundaries) for c in calls] == [0, 1]
    assert calls[1].boundaries[0].tokens_before == 60_000
    assert not problems


def _at(mid: str, time: str) -> str:
    return _line(mid).replace("2026-11-01T00:00:00.000Z", f"2026-11-01T{time}.000Z")


def test_the_order_of_a_transcript_outlasts_a_clock_that_was_set_back(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    times = ("10:00:05", "10:01:05", "09:02:05", "10:03:05")
    lines = [_at(f"msg_{number}", time) for number, time in enumerate(times)]
    path.write_text("\n".join(lines))
    (session,) = gather(_read(path)[0], "claude_code")
    assert [call.id for call in session.calls] == ["msg_0", "msg_1", "msg_2", "msg_3"]
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.write(_read(path)[0], source="claude_code")
        (stored,) = store.sessions()
    assert [call.id for call in stored.calls] == [call.id for call in session.calls]
    # A log that anyone may have sorted as they like goes by time.
    (sorted_,) = gather(_read(path)[0], "usage_log")
    assert [call.id for call in sorted_.calls] == ["msg_2", "msg_0", "msg_1", "msg_3"]


@pytest.mark.parametrize("name", ["input_tokens", "cache_read_input_tokens", "output_tokens"])
def test_a_count_beyond_any_prompt_is_flagged(tmp_path: Path, name: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(_line("msg_1", **{name: 10**20}))
    ((call,), problems) = _read(path)
    assert problems.count("wrong_type") == 1
    assert call.usage.total_input is None or name == "output_tokens"
    problems = Problems()
    ((record,),) = [list(SOURCE.usages(path, problems))]
    assert problems.count("wrong_type") == 1
    assert record.usage == call.usage

"""Claude Code transcripts: totals of real sessions, and the quick scan against a naive reading."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.sources.claude_code import SOURCE

pytestmark = pytest.mark.usefixtures("scanner")

TOTALS = {
    "uncached_input": lambda u: u.uncached_input,
    "cache_read": lambda u: u.cache_read,
    "cache_write_5m": lambda u: u.write_5m,
    "cache_write_1h": lambda u: u.write_1h,
    "output": lambda u: u.output,
}


@pytest.mark.shared
@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_real_sessions_total_as_expected(shared: Path, name: str) -> None:
    key = f"sessions/claude_code/{name}.jsonl"
    expected = json.loads((shared / "data" / "expected.json").read_text())["files"][key]
    problems = Problems()
    calls = list(SOURCE.read(shared / "data" / key, problems))
    assert not problems
    assert len(calls) == expected["requests"]
    for field, part in TOTALS.items():
        assert sum(part(call.usage) for call in calls) == expected[field], field
    is_low = any("output_is_lower_bound" in call.usage.flags for call in calls)
    assert is_low == expected.get("output_is_lower_bound", False)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_totals_path_reads_the_same_usage(shared: Path, name: str) -> None:
    path = shared / "data" / "sessions" / "claude_code" / f"{name}.jsonl"
    calls = list(SOURCE.read(path, Problems()))
    records = list(SOURCE.usages(path, Problems()))
    assert [r.usage for r in records] == [c.usage for c in calls]
    assert [r.key for r in records] == [c.dedupe_key for c in calls]


@pytest.mark.shared
def test_request_starts_are_bounded_by_the_user_line(shared: Path) -> None:
    path = shared / "data" / "sessions" / "claude_code" / "b.jsonl"
    stamps = _naive_starts(path)
    for call in SOURCE.read(path, Problems()):
        assert call.start_span is not None
        low, high = stamps[call.id]
        assert call.start_span.low == low
        assert call.start_span.high == high


def _naive_starts(path: Path) -> dict[str, tuple[float, float]]:
    """For each response: time of the user line before it, and of its own first line."""

    def at(text: str) -> float:
        return datetime.fromisoformat(text).timestamp()

    found: dict[str, tuple[float, float]] = {}
    last_user: float | None = None
    last_end: float | None = None
    current: str | None = None
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["type"] == "user":
            last_user = at(row["timestamp"])
        if row["type"] != "assistant" or row["message"]["model"] == "<synthetic>":
            continue
        stamp, mid = at(row["timestamp"]), row["message"]["id"]
        if mid not in found:
            low = last_user if last_user is not None else stamp
            if last_end is not None and last_end > low:
                low = last_end
            found[mid] = (min(low, stamp), stamp)
            current = mid
        assert current is not None
        last_end = max(stamp, last_end or stamp)
    return found


# --- the quick scan against a naive reading ---------------------------------------------------

_words = st.text(alphabet='ab "\\{}[]:,\né\u2028', max_size=40)
_tricky = st.one_of(
    _words,
    st.just('"usage":{"input_tokens":999}'),
    st.just('x"},"requestId":"req_zzz","type":"assistant"'),
    st.just('"type":"user" compact_boundary'),
)
_count = st.integers(0, 10**7)
_usage = st.builds(
    lambda fresh, read, w5, w1, out, extra: {
        "input_tokens": fresh,
        "cache_creation_input_tokens": w5 + w1,
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": w5,
            "ephemeral_1h_input_tokens": w1,
        },
        "output_tokens": out,
        **extra,
    },
    _count,
    _count,
    _count,
    _count,
    st.integers(0, 500),
    st.sampled_from([{}, {"service_tier": "standard"}, {"speed": "fast"}, {"x": {"usage": 1}}]),
)
_block = st.one_of(
    st.builds(lambda t: {"type": "text", "text": t}, _tricky),
    st.builds(
        lambda t: {"type": "tool_use", "id": "toolu_1", "input": {"usage": {"a": t}}}, _tricky
    ),
    st.builds(lambda t: {"type": "thinking", "thinking": t, "signature": "s" * 30}, _tricky),
)


@st.composite
def _transcript(draw: st.DrawFn) -> list[str]:
    """Lines of a transcript, with whatever key order and content a client may write."""
    lines: list[str] = []
    clock = 0
    # Clients write no blanks; only such lines take the quick way.
    separators = draw(st.sampled_from([(",", ":"), (",", ":"), (", ", ": ")]))
    for number in range(draw(st.integers(1, 6))):
        mid = f"msg_{draw(st.integers(0, 4))}"
        request = draw(st.sampled_from([f"req_{mid}", None]))
        usage = draw(_usage)
        model = draw(st.sampled_from(["claude-opus-5-5", "<synthetic>"]))
        for _ in range(draw(st.integers(1, 3))):
            clock += 1
            if draw(st.booleans()):
                usage = {**usage, "output_tokens": draw(st.integers(0, 500))}
            message = {
                "model": model,
                "id": f"{mid}_{model[0]}",  # a client's own messages have ids of their own
                "type": "message",
                "role": "assistant",
                "content": [draw(_block)],
                "stop_reason": draw(st.sampled_from([None, "tool_use", "end_turn"])),
                "usage": usage,
            }
            row: dict[str, Any] = {
                "parentUuid": None,
                "isSidechain": draw(st.booleans()),
                "sessionId": "s",
                "message": message,
                "type": "assistant",
                "timestamp": f"2026-11-01T00:00:{clock % 60:02d}.000Z",
            }
            if request is not None:
                row["requestId"] = request
            if draw(st.booleans()):
                row["message"] = dict(draw(st.permutations(list(message.items()))))
                row = dict(draw(st.permutations(list(row.items()))))
            lines.append(json.dumps(row, ensure_ascii=draw(st.booleans()), separators=separators))
        tool_result = {"content": draw(_tricky), "usage": {"output_tokens": 10**9}}
        lines.append(
            json.dumps(
                {
                    "type": "user",
                    "message": {"role": "user", "content": draw(_tricky)},
                    "sessionId": "s",
                    "timestamp": f"2026-11-01T00:01:{number:02d}.000Z",
                    "toolUseResult": draw(st.sampled_from([tool_result, "text"])),
                },
                separators=separators,
            )
        )
    return lines


def _naive(lines: list[str]) -> dict[tuple[str, str | None], dict[str, Any]]:
    """Highest output wins, and the last stop reason and time; synthetic lines are dropped."""
    best: dict[tuple[str, str | None], dict[str, Any]] = {}
    reasons: dict[tuple[str, str | None], str] = {}
    ends: dict[tuple[str, str | None], float] = {}
    for line in lines:
        row = json.loads(line)
        if row["type"] != "assistant" or row["message"]["model"] == "<synthetic>":
            continue
        key = (row["message"]["id"], row.get("requestId"))
        usage = row["message"]["usage"]
        ends[key] = datetime.fromisoformat(row["timestamp"]).timestamp()
        if row["message"]["stop_reason"] is not None:
            reasons[key] = row["message"]["stop_reason"]
        if key not in best or usage["output_tokens"] > best[key]["output_tokens"]:
            best[key] = usage
    return {
        key: {**usage, "stop_reason": reasons.get(key), "ended_at": ends[key]}
        for key, usage in best.items()
    }


@settings(max_examples=300)
@given(_transcript())
def test_quick_scan_equals_naive_reading(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("t") / "s.jsonl"
    path.write_bytes("\n".join(lines).encode())
    problems = Problems()
    calls = list(SOURCE.read(path, problems))
    found = {
        (c.id, c.dedupe_key.partition(":")[2] or None): (
            c.usage.uncached_input,
            c.usage.cache_read,
            c.usage.write_5m,
            c.usage.write_1h,
            c.usage.output,
            c.stop_reason,
            c.model,
            c.ended_at,
        )
        for c in calls
    }
    expected = {
        key: (
            usage["input_tokens"],
            usage["cache_read_input_tokens"],
            usage["cache_creation"]["ephemeral_5m_input_tokens"],
            usage["cache_creation"]["ephemeral_1h_input_tokens"],
            usage["output_tokens"],
            usage["stop_reason"],
            "claude-opus-5-5",
            usage["ended_at"],
        )
        for key, usage in _naive(lines).items()
    }
    assert found == expected
    assert not problems


# --- broken input ------------------------------------------------------------------------------


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


BROKEN = {
    "truncated_line": _line("msg_x")[:-40].encode(),
    "invalid_json": b'{"type":"assistant","message":{"usage":{]}}',
    "too_deep": b'{"type":"user","usage":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "encoding": _line("msg_bad").encode().replace(b"claude-opus-5-5", b"claude-\xff\xfe"),
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_broken_line_is_counted_and_the_rest_is_read(
    tmp_path: Path, kind: str, position: int
) -> None:
    lines = [_line("msg_1").encode(), _line("msg_2").encode()]
    lines.insert(position, BROKEN[kind])
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    calls, problems = _read(path)
    assert [c.id for c in calls if c.id != "msg_bad"] == ["msg_1", "msg_2"]
    assert problems.count(kind) == 1
    assert f":{position + 1}" in problems.items()[0][2][0]


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"input_tokens": -5}, "negative_part"),
        ({"cache_creation_input_tokens": 11}, "write_split_differs_from_total"),
        ({"input_tokens": "12"}, "wrong_type"),
    ],
)
def test_contradictions_are_flagged_and_counted(
    tmp_path: Path, changes: dict[str, Any], flag: str
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(_line("msg_1", **changes) + "\n" + _line("msg_2"))
    calls, problems = _read(path)
    assert [c.id for c in calls] == ["msg_1", "msg_2"]
    assert problems.count(flag) >= 1
    assert calls[1].usage.flags == ()


def test_an_overlong_line_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cacheaudit.ingest.lines.MAX_LINE", 4 << 20)
    path = tmp_path / "s.jsonl"
    with path.open("wb") as out:
        out.write(_line("msg_1").encode() + b"\n")
        out.write(b'{"type":"user","message":{"content":"')
        out.writelines(b"x" * (1 << 20) for _ in range(12))
        out.write(b'"}}\n' + _line("msg_2").encode())
    calls, problems = _read(path)
    assert [c.id for c in calls] == ["msg_1", "msg_2"]
    assert problems.count("too_long_line") == 1


@pytest.mark.parametrize(
    ("copies", "winner"),
    [
        ([(9, 3), (9, 3), (159, 3)], (159, 3)),
        ([(9, 3), (159, 3), (20, 3)], (159, 3)),
        ([(5, 3), (3, 4), (7, 4)], (7, 4)),  # the second one is not taken, the third one is
        ([(5, 3), (3, 4), (4, 4)], (5, 3)),
    ],
)
@pytest.mark.parametrize("compact", [True, False])
def test_copies_in_one_file_keep_the_highest_output(
    tmp_path: Path, copies: list[tuple[int, int]], winner: tuple[int, int], compact: bool
) -> None:
    path = tmp_path / "s.jsonl"
    lines = [_line("msg_1", output_tokens=out, input_tokens=fresh) for out, fresh in copies]
    if compact:
        lines = [json.dumps(json.loads(line), separators=(",", ":")) for line in lines]
    path.write_text("\n".join(lines))
    calls, _ = _read(path)
    assert [(c.usage.output, c.usage.uncached_input) for c in calls] == [winner]


def test_a_compaction_stands_before_the_next_call(tmp_path: Path) -> None:
    mark = {
        "type": "system",
        "subtype": "compact_boundary",
        "sessionId": "s",
        "timestamp": "2026-11-01T00:00:30.000Z",
        "compactMetadata": {"trigger": "auto", "preTokens": 167389},
    }
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join([_line("msg_1"), json.dumps(mark), _line("msg_2")]))
    first, second = _read(path)[0]
    assert first.boundaries == ()
    (boundary,) = second.boundaries
    assert (boundary.kind, boundary.trigger, boundary.tokens_before) == (
        "compaction",
        "auto",
        167389,
    )


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 900}},
            ("tools_changed", 900),
        ),
        ({"cache_miss_reason": None}, ("pending", None)),
        (None, None),
    ],
)
def test_the_providers_reason_is_read(tmp_path: Path, raw: Any, expected: Any) -> None:
    row = json.loads(_line("msg_1"))
    row["message"]["diagnostics"] = raw
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps(row))
    (call,) = _read(path)[0]
    reason = call.diagnostics
    assert (None if reason is None else (reason.type, reason.missed_tokens)) == expected


def test_lanes_and_purposes_follow_the_layout(tmp_path: Path) -> None:
    main = tmp_path / "proj" / "abc.jsonl"
    sub = tmp_path / "proj" / "abc" / "subagents" / "agent-7.jsonl"
    sub.parent.mkdir(parents=True)
    inline = json.loads(_line("msg_2"))
    inline["isSidechain"] = True
    main.write_text(_line("msg_1") + "\n" + json.dumps(inline))
    sub.write_text(_line("msg_3"))
    calls = [*_read(main)[0], *_read(sub)[0]]
    assert [(c.lane, c.purpose) for c in calls] == [
        ("main", "main"),
        ("sidechain", "subagent"),
        ("agent-7", "subagent"),
    ]
    assert SOURCE.group(main) == SOURCE.group(sub)


def test_usual_places_follow_the_override(tmp_path: Path) -> None:
    def places(environment: dict[str, str]) -> Iterator[Path]:
        return SOURCE.usual_places(environment, tmp_path)

    assert list(places({})) == [
        tmp_path / ".config" / "claude" / "projects",
        tmp_path / ".claude" / "projects",
    ]
    configured = {"CLAUDE_CONFIG_DIR": f"{tmp_path / 'a'}, {tmp_path / 'b' / 'projects'}"}
    assert list(places(configured)) == [tmp_path / "a" / "projects", tmp_path / "b" / "projects"]


@pytest.mark.shared
@pytest.mark.parametrize("share", [0.1, 0.5, 0.93])
def test_an_appended_part_reads_as_in_one_go(shared: Path, tmp_path: Path, share: float) -> None:
    whole = (shared / "data" / "sessions" / "claude_code" / "b.jsonl").read_bytes()
    cut = whole.rindex(b"\n", 0, int(len(whole) * share)) + 1
    path = tmp_path / "b.jsonl"
    path.write_bytes(whole[:cut])
    first = {call.dedupe_key: call for call in SOURCE.read(path, Problems())}
    path.write_bytes(whole)
    line = whole[:cut].count(b"\n") + 1
    problems = Problems()
    rest = {call.dedupe_key: call for call in SOURCE.read_from(path, problems, cut, line)}
    expected = {call.dedupe_key: call for call in SOURCE.read(path, Problems())}
    assert not problems
    assert len(rest) < len(expected) or share < 0.5
    for key in rest.keys() - first.keys():
        assert rest[key] == expected[key]
    assert first.keys() | rest.keys() == expected.keys()
    best = {k: max(o.usage.output for o in (first.get(k), rest.get(k)) if o) for k in expected}
    assert best == {k: call.usage.output for k, call in expected.items()}


def test_parallel_inline_sidechains_are_lanes_of_their_own(tmp_path: Path) -> None:
    def row(uuid: str, parent: str | None, kind: str, second: int, mid: str = "") -> str:
        made = json.loads(_line(mid or "msg_0", output_tokens=second))
        made |= {
            "type": kind,
            "uuid": uuid,
            "parentUuid": parent,
            "isSidechain": True,
            "timestamp": f"2026-11-01T00:00:{second:02d}.000Z",
        }
        if kind == "user":
            made["message"] = {"role": "user", "content": "x"}
        order = ("parentUuid", "isSidechain", "sessionId", "message", "requestId", "type", "uuid")
        return json.dumps({k: made[k] for k in (*order, "timestamp")}, separators=(",", ":"))

    path = tmp_path / "s.jsonl"
    path.write_text(
        "\n".join(
            [
                row("u1", "outside", "user", 1),
                row("u2", "outside", "user", 2),
                row("a1", "u1", "assistant", 3, "msg_1"),
                row("a2", "u2", "assistant", 4, "msg_2"),
                row("a1b", "a1", "assistant", 5, "msg_1"),
                row("u3", "a1b", "user", 6),
                row("a3", "u3", "assistant", 7, "msg_3"),
            ]
        )
    )
    calls, problems = _read(path)
    assert not problems
    assert [(c.id, c.lane, c.usage.output) for c in calls] == [
        ("msg_1", "sidechain-u1", 5),
        ("msg_2", "sidechain-u2", 4),
        ("msg_3", "sidechain-u1", 7),
    ]
    starts = [c.start_span.low % 60 for c in calls]
    assert starts == [1.0, 2.0, 6.0]

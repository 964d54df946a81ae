"""The compiled reader of usual lines: what it takes, what it leaves, and that both ways agree."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.claude_runs import scan, take_usual
from cacheaudit.ingest.problems import Problems
from fixtures.make.make_corpus import Corpus
from tests.unit.ingest.claude_samples import as_lines, seen, transcript, usual, uuid

pytestmark = pytest.mark.skipif(take_usual is None, reason="the compiled scanner was not built")


def _take(data: bytes, start: int = 0, number: int = 0) -> Any:
    assert take_usual is not None
    return take_usual(data, start, len(data), number)


def _user(number: int, **changes: Any) -> dict[str, Any]:
    row = usual(number)
    for name in ("message", "requestId"):
        del row[name]
    return {
        **{k: row[k] for k in ("parentUuid", "isSidechain", "sessionId", "version")},
        "type": "user",
        "message": {"role": "user", "content": "go"},
        "uuid": row["uuid"],
        "timestamp": row["timestamp"],
        **changes,
    }


def _changed(row: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**row, "message": {**row["message"], **changes}}


def test_consecutive_lines_of_a_response_are_one_record() -> None:
    first = _changed(
        usual(2), stop_reason=None, usage={"input_tokens": 3, "output_tokens": 1}, diagnostics=None
    )
    last = usual(3, requestId="req_2", parentUuid=uuid(2))
    last = _changed(
        last,
        id="msg_2",
        stop_reason="tool_use",
        usage={"input_tokens": 3, "output_tokens": 90},
    )
    data = as_lines([_user(1), first, last, _user(4)]) + b"\n"
    lines = data.split(b"\n")
    start, number, runs, user = _take(data, number=10)
    assert (start, number, user) == (len(data), 14, "2026-11-01T00:00:04.000Z")
    assert runs == [
        (
            12,
            len(lines[0]) + 1,
            len(lines[0]) + len(lines[1]) + len(lines[2]) + 3,
            "msg_2",
            "req_2",
            "claude-opus-5-5",
            "s",
            None,
            "2.1.0",
            False,
            None,
            None,
            "2026-11-01T00:00:02.000Z",
            "2026-11-01T00:00:03.000Z",
            "tool_use",
            b'{"input_tokens":3,"output_tokens":90}',
            b"null",
            "2026-11-01T00:00:01.000Z",
        )
    ]


def test_equal_output_keeps_the_first_usage_and_a_stop_reason_outlasts_null() -> None:
    rows = [
        _changed(usual(1), usage={"input_tokens": 1, "output_tokens": 5}),
        _changed(usual(1), usage={"input_tokens": 2, "output_tokens": 5}, stop_reason=None),
        _changed(usual(1), usage={"input_tokens": 3, "output_tokens": 4}, stop_reason=None),
    ]
    ((*_, stop, usage, diagnostics, _),) = _take(as_lines(rows))[2]
    assert (stop, usage) == ("end_turn", b'{"input_tokens":1,"output_tokens":5}')
    assert diagnostics is None


def test_another_request_of_the_same_message_is_another_record() -> None:
    rows = [usual(1), usual(1, requestId="req_x"), usual(1)]
    assert [run[4] for run in _take(as_lines(rows))[2]] == ["req_1", "req_x", "req_1"]


def test_each_line_of_a_sidechain_tells_where_it_hangs() -> None:
    rows = [
        _user(1, isSidechain=True, parentUuid=None),
        usual(2, isSidechain=True),
        usual(3, isSidechain=True),
        {**_user(4, isSidechain=True), "type": "progress", "message": None},
    ]
    rows[3].pop("message")
    runs = _take(as_lines(rows))[2]
    assert [(r[3], r[9], r[10], r[11], r[12]) for r in runs] == [
        (None, True, uuid(1), None, "2026-11-01T00:00:01.000Z"),
        ("msg_2", True, uuid(2), uuid(1), "2026-11-01T00:00:02.000Z"),
        ("msg_3", True, uuid(3), uuid(2), "2026-11-01T00:00:03.000Z"),
        (None, True, uuid(4), uuid(3), None),
    ]


_STOP = '"stop_reason":"end_turn"'
_UNUSUAL: dict[str, Callable[[str], str]] = {
    "a blank between tokens": lambda line: line.replace('":"s"', '": "s"'),
    "an escape in an id": lambda line: line.replace("msg_2", "msg\\u0032"),
    "an escape in a name": lambda line: line.replace('"uuid"', '"uu\\u0069d"'),
    "a name twice": lambda line: line.replace('"type":"a', '"type":"user","type":"a'),
    "a second message": lambda line: line.replace('"type":"a', '"message":{},"type":"a'),
    "a second usage": lambda line: line.replace('"usage"', '"usage":{"output_tokens":1},"usage"'),
    "usage of another kind": lambda line: line.replace('"output_tokens":7', '"output_tokens":7.0'),
    "a negative count": lambda line: line.replace('"output_tokens":7', '"output_tokens":-7'),
    "a count beyond any": lambda line: line.replace('tokens":7', 'tokens":7' + "0" * 15),
    "no count": lambda line: line.replace(',"output_tokens":7', ""),
    "usage null": lambda line: line.replace('{"input_tokens":3,"output_tokens":7}', "null"),
    "no stop reason": lambda line: line.replace(_STOP + ",", ""),
    "a reported cost": lambda line: line.replace('"uuid"', '"costUSD":0.1,"uuid"'),
    "a synthetic answer": lambda line: line.replace("claude-opus-5-5", "<synthetic>"),
    "no time": lambda line: line.replace('"timestamp"', '"time"'),
    "another type": lambda line: line.replace('"type":"assistant"', '"type":"user"'),
    "a letter behind": lambda line: line + "x",
    "a carriage return behind": lambda line: line + "\r",
    "a brace less": lambda line: line[:-1],
    "a brace more": lambda line: line + "}",
    "a number with a leading nought": lambda line: line.replace('tokens":3', 'tokens":03'),
    "a bare word": lambda line: line.replace("false", "False"),
    "nothing": lambda line: "",
}


@pytest.mark.parametrize("oddity", _UNUSUAL)
def test_an_unusual_line_is_left_and_those_before_it_are_taken(oddity: str) -> None:
    rows = [as_lines([usual(n)]).decode() for n in (1, 2, 3)]
    changed = _UNUSUAL[oddity](rows[1])
    assert changed != rows[1]
    data = "\n".join([rows[0], changed, rows[2]]).encode()
    start, number, runs, user = _take(data)
    assert (start, number, user) == (len(rows[0]) + 1, 1, None)
    assert [run[3] for run in runs] == ["msg_1"]


@pytest.mark.parametrize("place", ["parentUuid", "cwd"])
@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\x01", b"\\x", b"\\ud83d"]
)
def test_what_is_no_text_in_front_of_the_content_is_left(place: str, bad: bytes) -> None:
    row = as_lines([{"cwd": "/home/MARK", **usual(1, parentUuid="MARK" + uuid(9)[4:])}])
    front, mark, rest = row.partition(b"MARK") if place == "cwd" else row.rpartition(b"MARK")
    assert mark
    assert _take(front + bad + rest)[0] == 0
    good = "é日🚀".encode()
    assert len(_take(front + good + rest)[2]) == (place == "cwd")


def test_places_outside_the_data_are_refused() -> None:
    assert take_usual is not None
    for start, size in ((-1, 1), (0, 2)):
        with pytest.raises(ValueError, match="within data"):
            take_usual(b"x", start, size, 0)
    assert take_usual(b"x", 1, 1, 4) == (1, 4, [], None)
    assert take_usual(b"", 0, 0, 0) == (0, 0, [], None)


def _settled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines, those of one response all of a sidechain or none of them."""
    sides: dict[str, bool] = {}
    settled = []
    for row in rows:
        own = row.get("message", {}).get("id")
        side = row["isSidechain"] if own is None else sides.setdefault(own, row["isSidechain"])
        settled.append({**row, "isSidechain": side})
    return settled


def _write(folder: pytest.TempPathFactory, data: bytes) -> Path:
    path = folder.mktemp("t") / "s.jsonl"
    path.write_bytes(data)
    return path


@settings(max_examples=300)
@given(
    transcript(),
    st.booleans(),
    st.lists(
        st.tuples(st.sampled_from(["drop", "twice", "cut", "blank", "cr", "odd"]), st.floats(0, 1))
    ),
)
def test_both_ways_leave_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, Any]],
    ensure: bool,
    harm: list[tuple[str, float]],
) -> None:
    lines = as_lines(_settled(rows), ensure).split(b"\n")
    for kind, place in harm:
        at = int(place * (len(lines) - 1))
        line = lines[at]
        lines[at : at + 1] = {
            "drop": [],
            "twice": [line, line],
            "cut": [line[: len(line) * 2 // 3]],
            "blank": [line, b""],
            "cr": [line + b"\r"],
            "odd": [line, b'{"type":"summary","leafUuid":"x"}', b"[]", b"{"],
        }[kind]
        if not lines:
            return
    path = _write(tmp_path_factory, b"\n".join(lines))
    for timing in (True, False):
        assert seen(path, take_usual, timing=timing) == seen(path, None, timing=timing)


@settings(max_examples=300)
@given(transcript(), st.integers(0, 2**32))
def test_a_damaged_byte_harms_no_other_response(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], seed: int
) -> None:
    draw = random.Random(seed)
    lines = as_lines(_settled(rows)).split(b"\n")
    at = draw.randrange(len(lines))
    own = rows[at].get("message", {}).get("id")
    line = bytearray(lines[at])
    for _ in range(draw.randint(1, 3)):
        line[draw.randrange(len(line))] = draw.choice(b'"\\{}[],:x0\xff\x00\x1f ')
    if b"\n" in line:
        return
    lines[at] = bytes(line)
    path = _write(tmp_path_factory, b"\n".join(lines))
    before = {}
    for take in (take_usual, None):
        responses, count, _ = seen(path, take)
        assert count == len(lines)
        # What a damaged line says of time may reach the next response; its usage may not.
        kept = {
            (r.message_id, r.request_id): (r.line, r.model, r.session, r.output, r.stop_reason)
            for r in responses
            if r.message_id != own and r.line != at + 1
        }
        before[take is None] = kept
    assert before[True] == before[False]


def test_both_ways_leave_the_same_of_a_corpus(tmp_path: Path) -> None:
    Corpus(tmp_path, 1_500_000, 5).write()
    paths = sorted(tmp_path.rglob("*.jsonl"))
    taken = 0
    for path in paths:
        for timing in (True, False):
            assert seen(path, take_usual, timing=timing) == seen(path, None, timing=timing)
        data = path.read_bytes()
        start = number = 0
        while start < len(data):
            start, passed, _, _ = _take(data, start, number)
            taken += passed - number
            number = passed + (start < len(data))
            start = data.find(b"\n", start) + 1 or len(data)
    assert len(paths) > 5
    total = sum(path.read_bytes().count(b"\n") for path in paths)
    assert taken > 0.97 * total


def test_both_ways_leave_the_same_of_recorded_sessions(shared: Path) -> None:
    paths = sorted((shared / "data" / "sessions" / "claude_code").rglob("*.jsonl"))
    assert len(paths) > 3
    for path in paths:
        assert seen(path, take_usual) == seen(path, None)


def test_a_run_whose_usage_is_of_another_type_is_read_line_by_line(tmp_path: Path) -> None:
    rows = [_changed(usual(n), usage={"input_tokens": "3", "output_tokens": n}) for n in (1, 1, 2)]
    path = tmp_path / "s.jsonl"
    path.write_bytes(as_lines(rows))
    problems = Problems()
    state = scan(path, problems)
    assert [r.raw_usage for r in state.responses.values()] == [
        {"input_tokens": "3", "output_tokens": n} for n in (1, 2)
    ]
    assert state.lines == 3
    assert json.loads(as_lines(rows[:1]))["type"] == "assistant"

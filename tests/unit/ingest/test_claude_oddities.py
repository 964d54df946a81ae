"""Both ways to read a transcript leave what its responses are by definition, odd as it may be."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.claude_response import Response
from cacheaudit.ingest.claude_runs import take_usual
from tests.unit.ingest.claude_oddities import Oddities, by_definition, damaged
from tests.unit.ingest.claude_samples import as_lines, seen, usual, uuid

if TYPE_CHECKING:
    from cacheaudit.ingest.claude_runs import Taker

_WAYS = pytest.mark.parametrize(
    "take", [pytest.param(None, id="python"), pytest.param(take_usual, id="as built")]
)
_seeds = st.integers(0, 2**32)
_Row: TypeAlias = dict[str, Any]


def _read(path: Path, take: Taker | None, *rows: _Row | bytes) -> list[Response]:
    """Responses of a transcript in which nothing is wrong."""
    path.write_bytes(b"\n".join(r if isinstance(r, bytes) else as_lines([r]) for r in rows))
    responses, lines, problems = seen(path, take)
    assert lines == len(rows)
    assert problems == []
    return responses


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a transcript is written."""
    return tmp_path_factory.mktemp("odd") / "s.jsonl"


@settings(max_examples=400)
@given(_seeds)
@pytest.mark.skipif(take_usual is None, reason="the compiled scanner was not built")
def test_both_ways_leave_the_same_of_whatever_lies_there(path: Path, seed: int) -> None:
    draw = Random(seed)
    data = damaged(draw, Oddities(draw).lines())
    path.write_bytes(data)
    for timing in (True, False):
        assert seen(path, take_usual, timing=timing) == seen(path, None, timing=timing)
    start = data.find(b"\n", len(data) // 2) + 1
    first = data.count(b"\n", 0, start) + 1
    begun = seen(path, take_usual, start=start, first_line=first)
    assert begun == seen(path, None, start=start, first_line=first)


@_WAYS
@settings(max_examples=300)
@given(seed=_seeds)
def test_responses_are_what_their_lines_say(path: Path, take: Taker | None, seed: int) -> None:
    lines = Oddities(Random(seed)).lines()
    path.write_bytes(b"\n".join(lines))
    found = {}
    for response in seen(path, take)[0]:
        own = response.message_id.removeprefix(str(path))
        fields = {name: getattr(response, name) for name in response.__struct_fields__}
        for name in ("cost", "diagnostics"):
            raw = fields[name]
            fields[name] = "absent" if raw is None else json.loads(raw)
        found[own, response.request_id] = fields
    expected = by_definition(lines)
    assert {
        key: {name: fields[name] for name in expected.get(key, fields)}
        for key, fields in found.items()
    } == expected


def _side(number: int, parent: int | None, **changes: Any) -> _Row:
    parent_id = None if parent is None else uuid(parent)
    return usual(number, isSidechain=True, parentUuid=parent_id, **changes)


def _message(row: _Row, **changes: Any) -> _Row:
    return {**row, "message": {**row["message"], **changes}}


def _user(number: int, **changes: Any) -> _Row:
    row = usual(number, **changes)
    del row["requestId"]
    return {**row, "type": "user", "message": {"role": "user", "content": "go"}}


def _last(row: _Row, *names: str) -> _Row:
    """The row with some fields at its very end, but before its id and time."""
    behind = ("uuid", "timestamp")
    kept = {name: value for name, value in row.items() if name not in (*names, *behind)}
    return {**kept, **{name: row[name] for name in (*names, *behind)}}


@_WAYS
def test_a_response_stays_where_its_first_line_placed_it(path: Path, take: Taker | None) -> None:
    main, side = usual(1, requestId=None), _side(2, None)
    later = {**_side(3, None), "message": main["message"], "requestId": None}
    found = _read(path, take, main, side, later, _side(4, 3))
    assert [(r.message_id, r.sidechain, r.root) for r in found] == [
        ("msg_1", False, None),
        ("msg_2", True, uuid(2)),
        ("msg_4", True, uuid(4)),
    ]


@_WAYS
def test_every_line_of_a_sidechains_response_leads_on(path: Path, take: Taker | None) -> None:
    side = _side(1, None)
    later = {**usual(2), "message": side["message"], "requestId": side["requestId"]}
    found = _read(path, take, side, later, _side(3, 2))
    assert [r.root for r in found] == [uuid(1), uuid(1)]


@_WAYS
def test_any_line_of_a_sidechain_leads_on(path: Path, take: Taker | None) -> None:
    progress = {**_side(2, 1), "type": "progress", "data": {"usage": {"output_tokens": 5}}}
    for name in ("message", "requestId"):
        del progress[name]
    synthetic = _message(_side(30, 2), model="<synthetic>")
    without = _message(_side(31, 30), usage=None)
    of_another_type = _message(_side(3, 31), usage={"input_tokens": "3", "output_tokens": 7})
    user_parent_last = _last(_user(4, isSidechain=True, parentUuid=uuid(3)), "parentUuid")
    user_side_last = _last(_user(5, isSidechain=True, parentUuid=uuid(4)), "isSidechain")
    found = _read(
        path,
        take,
        _side(1, None),
        progress,
        synthetic,
        without,
        of_another_type,
        user_parent_last,
        user_side_last,
        _side(6, 5),
    )
    assert [(r.root, r.user_at) for r in found] == [
        (uuid(1), None),
        (uuid(1), None),
        (uuid(1), "2026-11-01T00:00:05.000Z"),
    ]


@_WAYS
def test_a_user_message_inside_another_line_is_none(path: Path, take: Taker | None) -> None:
    progress = {**usual(2), "type": "progress", "data": {"message": {"role": "user"}}}
    for name in ("message", "requestId"):
        del progress[name]
    progress = _last(progress)
    (found,) = _read(path, take, _user(1), progress, usual(3))
    assert found.user_at == "2026-11-01T00:00:01.000Z"


@_WAYS
def test_a_cost_behind_the_time_of_a_later_line_counts(path: Path, take: Taker | None) -> None:
    row = usual(1, parentUuid=None)
    (found,) = _read(path, take, row, row, {**row, "costUSD": 0.25})
    assert found.cost == b"0.25"


@_WAYS
def test_what_stands_between_content_and_stop_reason_counts(path: Path, take: Taker | None) -> None:
    row = usual(1)
    ends = {name: row["message"].pop(name) for name in ("stop_reason", "usage")}
    row["message"] |= {"diagnostics": {"cache_miss_reason": None}, **ends}
    (found,) = _read(path, take, row)
    assert found.diagnostics == b'{"cache_miss_reason":null}'


@_WAYS
def test_usage_of_another_object_beside_the_message_is_not_its_own(
    path: Path, take: Taker | None
) -> None:
    other = {"a": 1, "stop_reason": "x", "usage": {"input_tokens": 1, "output_tokens": 9_999}}
    (found,) = _read(path, take, _last({**usual(1), "toolUseResult": other}, "toolUseResult"))
    assert (found.output, found.stop_reason) == (7, "end_turn")


@_WAYS
def test_an_empty_message_id_is_none(path: Path, take: Taker | None) -> None:
    (found,) = _read(path, take, _message(usual(1), id=""))
    assert (found.message_id, found.request_id) == ("req_1", "req_1")


@_WAYS
@pytest.mark.parametrize(
    ("before", "behind"), [(b"\xef\xbb\xbf", b""), (b"\0\0", b""), (b"", b"\0\0"), (b" ", b"\r")]
)
def test_marks_of_the_encoding_and_padding_lose_no_line(
    path: Path, take: Taker | None, before: bytes, behind: bytes
) -> None:
    found = _read(path, take, before + as_lines([usual(1)]) + behind, usual(2))
    assert [r.message_id for r in found] == ["msg_1", "msg_2"]


@_WAYS
def test_passes_of_a_last_line_without_an_end_are_kept(path: Path, take: Taker | None) -> None:
    passes = [{"type": "message", "input_tokens": 3, "output_tokens": 3}] * 2
    usage = {"input_tokens": 3, "output_tokens": 7, "iterations": passes}
    rows = [usual(n) for n in range(1, 20)]
    found = _read(path, take, *rows, _message(usual(20), usage=usage))
    assert found[-1].raw_usage == usage


@_WAYS
def test_passes_with_a_field_that_cannot_be_decoded_are_read(
    path: Path, take: Taker | None
) -> None:
    passes = [{"type": "message", "input_tokens": 3, "output_tokens": 3}] * 2
    usage = {"input_tokens": 3, "output_tokens": 7, "iterations": passes, "x": "MARK"}
    row = _message(usual(1), usage=usage, id=None)
    found = _read(path, take, as_lines([row]).replace(b"MARK", b"\xff"), usual(2))
    assert [(r.message_id, r.output) for r in found] == [("req_1", 7), ("msg_2", 7)]
    assert found[0].wire is not None
    assert found[0].wire.iterations is not None


@_WAYS
@pytest.mark.parametrize("tier", [b'"\xff"', b'"\\ud83d"'])
def test_usage_with_a_text_that_is_none_is_mended(
    path: Path, take: Taker | None, tier: bytes
) -> None:
    usage = {"input_tokens": 3, "output_tokens": 7, "service_tier": "MARK"}
    for own in ("msg_1", None):
        line = as_lines([_message(usual(1), usage=usage, id=own)]).replace(b'"MARK"', tier)
        path.write_bytes(line)
        (found,), _, problems = seen(path, take)
        assert found.output == 7
        assert problems == [("encoding", f"{path}:1")]


@_WAYS
def test_a_broken_content_is_stepped_over_whatever_the_types_of_the_usage(
    path: Path, take: Taker | None
) -> None:
    usage = {"input_tokens": "3", "output_tokens": 7}
    broken = as_lines([_message(usual(1), content=["MARK"], usage=usage)]).replace(b"MARK", b'"')
    found = _read(path, take, usual(1), broken, broken.replace(b"msg_1", b"msg_2"))
    assert [(r.message_id, r.raw_usage) for r in found] == [("msg_1", None), ("msg_2", usage)]


@_WAYS
def test_a_content_that_is_no_list_is_looked_at(path: Path, take: Taker | None) -> None:
    rows = [usual(1), usual(2), _message(usual(3), content="text")]
    lines = [as_lines([row]) for row in rows]
    path.write_bytes(b"\n".join(lines).replace(b'text","stop', b'text],"stop'))
    found, _, problems = seen(path, take)
    assert [r.message_id for r in found] == ["msg_1", "msg_2"]
    assert problems == [("invalid_json", f"{path}:3")]


@_WAYS
def test_what_is_of_its_type_in_an_odd_line_is_used(path: Path, take: Taker | None) -> None:
    path.write_bytes(as_lines([_side(1, None, version=5)]))
    (found,), _, problems = seen(path, take)
    assert problems == [("wrong_type", f"{path}:1")]
    assert (found.version, found.session, found.stop_reason) == (None, "s", "end_turn")
    assert (found.root, found.output) == (uuid(1), 7)
    assert found.wire is not None


@_WAYS
@pytest.mark.parametrize(
    ("at", "byte"),
    [(-1, b"x"), (-50, b'"'), (-45, b"\xff"), (-10, b"\x1f"), (30, b"\\"), (20, b'"')],
)
def test_damage_in_what_a_line_repeats_is_counted(
    path: Path, take: Taker | None, at: int, byte: bytes
) -> None:
    line = bytearray(as_lines([usual(1)]))
    good = bytes(line)
    line[at] = byte[0]
    path.write_bytes(b"\n".join([good, good, bytes(line), good]))
    (found,), lines, problems = seen(path, take)
    assert (found.output, lines) == (7, 4)
    assert [where for _, where in problems] == [f"{path}:3"]


@_WAYS
@pytest.mark.parametrize("cut", [60, 250, 330, 500])
@pytest.mark.parametrize("first", [usual(1), _user(1)], ids=["a response", "a user line"])
def test_a_line_cut_off_and_written_on_is_two(
    path: Path, take: Taker | None, first: _Row, cut: int
) -> None:
    cut_off = as_lines([_message(first, content=[{"type": "text", "text": "w" * 400}])])[:cut]
    rest = as_lines([usual(2)]) + b"\n" + as_lines([usual(3)])
    for front, cuts in ((cut_off, 1), (cut_off + cut_off, 1)):
        path.write_bytes(front + rest)
        responses, lines, problems = seen(path, take)
        assert [(r.message_id, r.line) for r in responses] == [("msg_2", 1), ("msg_3", 2)]
        assert lines == 2
        assert problems == [("truncated_line", f"{path}:1")] * cuts


@_WAYS
def test_an_object_like_a_line_in_a_tools_input_is_no_second_line(
    path: Path, take: Taker | None
) -> None:
    tool = {"type": "tool_use", "id": "t", "input": {"parentUuid": None, "message": {}}}
    responses = _read(path, take, _message(usual(1), content=[tool]), usual(2))
    assert [r.message_id for r in responses] == ["msg_1", "msg_2"]

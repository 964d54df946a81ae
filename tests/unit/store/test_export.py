"""The written form: reading an export gives back what was exported."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.errors import UsageError
from cacheaudit.ingest.detect import detect, head_of
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.sources.native import SOURCE
from cacheaudit.jobs.export import export_files, export_store
from cacheaudit.jobs.import_ import import_files
from cacheaudit.model.call import Call, CallError, MissReason, Session
from cacheaudit.model.clock import FixedClock
from cacheaudit.model.record import CALL_SCHEMA, RecordReader, RecordWriter, wire_usage
from cacheaudit.model.usage import Usage, UsagePart
from cacheaudit.store import open_store
from cacheaudit.store.types import from_json, to_json
from tests.unit.store.builders import ToySource, inputs, line, sessions, without_canonical
from tests.unit.store.test_round_trip import CANARY, growing


@given(session=sessions(), with_text=st.booleans())
@settings(deadline=None, max_examples=100)
def test_every_call_comes_back_from_its_line(session: Session, with_text: bool) -> None:
    writer, reader, problems = RecordWriter(with_text=with_text), RecordReader(), Problems()
    for call in session.calls:
        text = to_json(writer.record(call))
        back = reader.call(from_json(text), "here", problems)
        assert back == (call if with_text else without_canonical(call))
    assert not problems


def exported(url: str, *, with_text: bool = False) -> bytes:
    out = io.BytesIO()
    with open_store(url) as store:
        export_store(store, out, with_text=with_text)
    return out.getvalue()


@pytest.mark.parametrize("with_text", [False, True])
def test_importing_an_export_gives_the_same_calls(
    url: str, tmp_path: Path, with_text: bool
) -> None:
    made = growing(12, edit_at=6)
    with open_store(url, store_text=with_text) as store:
        store.write(made, source="t")
        first = next(store.sessions())
    file = tmp_path / "x.session.jsonl"
    file.write_bytes(exported(url, with_text=with_text))
    assert detect(head_of(file)) is SOURCE
    other = f"sqlite:///{tmp_path / 'other.db'}"
    with open_store(other, store_text=with_text) as store:
        report = import_files(inputs(file), store, FixedClock())
        second = next(store.sessions())
    assert report.problems == ()
    assert second.calls == first.calls
    assert exported(other, with_text=with_text) == file.read_bytes()
    # Into the store that it came from, it brings nothing new.
    with open_store(url, store_text=with_text) as store:
        assert import_files(inputs(file), store, FixedClock()).calls_unchanged == 12
        assert store.counts() == (1, 12)


def test_the_lines_follow_the_contract(url: str) -> None:
    call = Call(
        id="msg_1",
        session="s",
        provider="anthropic",
        surface="claude_api",
        model="m",
        started_at=1_770_000_000.531,
        ended_at=1_770_000_001.1234567,
        usage=Usage(
            total_input=1111,
            uncached_input=1,
            cache_read=10,
            write_5m=100,
            write_1h=1000,
            output=7,
            parts=(UsagePart(kind="message", output=7, uncached_input=1),),
        ),
        stop_reason="end_turn",
        error=CallError("overloaded_error", 529),
        diagnostics=MissReason("tools_changed", 55),
        reported_cost=Decimal("0.10"),
        tool_seconds=1.5,
        outcome="accepted",
    )
    with open_store(url) as store:
        store.write([call], source="t")
    (text,) = exported(url).splitlines()
    record = json.loads(text)
    exact = record.pop("cacheaudit")
    assert record == {
        "schema": CALL_SCHEMA,
        "id": "msg_1",
        "session": "s",
        "lane": "main",
        "parent": None,
        "task": None,
        "purpose": "main",
        "provider": "anthropic",
        "surface": "claude_api",
        "model": "m",
        "attempt": 0,
        "tool_seconds": 1.5,
        "outcome": "accepted",
        "started_at": "2026-02-02T02:40:00.531000Z",
        "first_token_at": None,
        "ended_at": 1_770_000_001.1234567,
        "request": None,
        "response": {
            "id": "msg_1",
            "model": "m",
            "stop_reason": "end_turn",
            "usage": {
                "input_tokens": 1,
                "cache_read_input_tokens": 10,
                "cache_creation_input_tokens": 1100,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 100,
                    "ephemeral_1h_input_tokens": 1000,
                },
                "output_tokens": 7,
                "iterations": [{"type": "message", "input_tokens": 1, "output_tokens": 7}],
            },
            "diagnostics": {
                "cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 55}
            },
        },
        "error": {"type": "overloaded_error", "status": 529, "message": None},
    }
    assert exact["reported_cost"] == "0.10"


def test_a_reader_that_knows_only_the_contract_gets_the_same_tokens(tmp_path: Path) -> None:
    usage = Usage(
        total_input=1111,
        uncached_input=1,
        cache_read=10,
        write_5m=100,
        write_1h=1000,
        output=7,
        dialect="anthropic",
    )
    record = RecordWriter().record(Call(id="c", session="s", provider="anthropic", usage=usage))
    del record["cacheaudit"]
    file = tmp_path / "a.session.jsonl"
    file.write_text(json.dumps(record) + "\n")
    (call,) = SOURCE.read(file, Problems())
    assert call.usage is not None
    for name in ("total_input", "uncached_input", "cache_read", "write_5m", "write_1h", "output"):
        assert getattr(call.usage, name) == getattr(usage, name), name


def test_an_edited_line_means_what_it_says(tmp_path: Path) -> None:
    call = Call(id="c", session="s", usage=Usage(total_input=6, uncached_input=6, cache_read=0))
    record = RecordWriter().record(call)
    record["response"]["usage"]["cache_read_input_tokens"] = 94
    record["lane"] = "sub"
    file = tmp_path / "a.session.jsonl"
    file.write_text(json.dumps(record) + "\n")
    (back,) = SOURCE.read(file, Problems())
    assert back.lane == "sub"
    assert back.usage is not None
    assert (back.usage.total_input, back.usage.cache_read) == (100, 94)
    assert "cacheaudit" not in back.extra


def test_unknown_usage_is_left_out_and_zero_is_not() -> None:
    assert wire_usage(Usage(total_input=5, cache_read=0)) == {"cache_read_input_tokens": 0}
    assert wire_usage(Usage(write_other=5)) == {"cache_creation_input_tokens": 5}


def test_a_line_whose_base_is_missing_is_counted_and_the_rest_is_read() -> None:
    writer = RecordWriter()
    lines = [to_json(writer.record(call)) for call in growing(4)]
    reader, problems = RecordReader(), Problems()
    back = [reader.call(from_json(text), "f:1", problems) for text in (lines[0], *lines[2:])]
    assert problems.count("missing_base") == 2
    assert [call is not None and call.prompt is not None for call in back] == [True, False, False]
    assert all(call is not None and call.dedupe_key is not None for call in back)


@pytest.mark.parametrize(
    "part",
    [
        {"usage": {"output": "many"}},
        {"prompt": {"own": 7}},
        {"prompt": {"own": {"provider": "p"}, "shared": -3}},
        {"start_span": [1]},
        {"reported_cost": "a lot"},
    ],
)
def test_a_broken_exact_part_is_counted(part: dict[str, object]) -> None:
    problems = Problems()
    record = {"schema": CALL_SCHEMA, "id": "c", "response": None, "cacheaudit": part}
    back = RecordReader().call(record, "f:1", problems)
    assert back is None or back.prompt is None
    assert problems


def test_text_is_written_only_on_demand(tmp_path: Path) -> None:
    made = [
        msgspec.structs.replace(call, extra={"note": CANARY}, error=CallError(None, None, CANARY))
        for call in growing(2)
    ]
    url = str(tmp_path / "a.db")
    with open_store(url, store_text=True) as store:
        store.write(made, source="t")
    for marker in (CANARY.encode(), b"turn 1"):
        assert marker not in exported(url)
        assert marker in exported(url, with_text=True)


def test_files_are_exported_with_their_copies_joined(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text(line("m", s="s", out=1) + line("n", s="t"))
    (folder / "b.jsonl").write_text(line("m", s="s", out=5))
    out = io.BytesIO()
    report, read = export_files(inputs(folder), out, FixedClock(), sources=[ToySource()])
    rows = [json.loads(text) for text in out.getvalue().splitlines()]
    assert (report.sessions, report.calls, read.calls_new) == (2, 2, 2)
    assert [(row["id"], row["response"]["usage"]["output_tokens"]) for row in rows] == [
        ("m", 5),
        ("n", 1),
    ]


def test_one_session_of_several(url: str) -> None:
    out = io.BytesIO()
    with open_store(url) as store:
        store.write([Call(id=name, session=name) for name in "abc"], source="t")
        export_store(store, out, names=["b"])
        assert [json.loads(text)["id"] for text in out.getvalue().splitlines()] == ["b"]
        with pytest.raises(UsageError, match="'nope'"):
            export_store(store, io.BytesIO(), names=["b", "nope"])

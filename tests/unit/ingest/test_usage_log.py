"""Plain usage logs: tables and JSON lines of token counts."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.detect import head_of
from cacheaudit.ingest.sources.usage_log import SOURCE
from tests.unit.ingest.wire_samples import SESSIONS, deep, examples, lines, parts, read


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_exercise_reads_exactly() -> None:
    calls, problems = read(SOURCE, SESSIONS / "exercise-14.csv")
    usages = [call.usage for call in calls if call.usage is not None]
    assert len(calls) == len(usages) == 14
    assert sum(u.total_input or 0 for u in usages) == 592_180
    assert sum(u.cache_write or 0 for u in usages) == 280_420
    assert sum(u.cache_read or 0 for u in usages) == 311_760
    assert sum(u.uncached_input or 0 for u in usages) == 0
    assert round(100 * 311_760 / 592_180, 2) == 52.65
    assert [call.started_at for call in calls] == [
        0,
        30,
        55,
        80,
        115,
        140,
        475,
        505,
        530,
        555,
        580,
        610,
        610,
        610,
    ]
    assert [(call.ended_at or 0) - (call.started_at or 0) for call in calls] == [
        20,
        15,
        18,
        25,
        15,
        150,
        20,
        15,
        15,
        15,
        20,
        25,
        25,
        25,
    ]
    assert all(call.relative_time for call in calls)
    assert {u.output for u in usages} == {None}
    assert problems == {"write_ttl_assumed": 14}
    assert {u.write_other_ttl for u in usages} == {"5m"}


def test_tab_separated_with_the_messages_apis_names() -> None:
    calls, problems = read(SOURCE, SESSIONS / "plain.tsv")
    assert [parts(c) for c in calls] == [
        (12, 0, None, None, 8500, 300),
        (7, 8500, None, None, 1500, 120),
        (30, 0, None, None, 0, 5),
    ]
    assert [c.usage.total_input for c in calls if c.usage] == [8512, 10007, 30]
    assert [(c.started_at, c.ended_at) for c in calls] == [(5, 9.5), (3598, 3601), (3610, 3610.25)]
    assert [c.lane for c in calls] == ["main", "main", "titles"]
    assert problems == {"write_ttl_assumed": 2}


def test_json_lines_with_the_contracts_names() -> None:
    calls, problems = read(SOURCE, SESSIONS / "plain.jsonl")
    assert [c.usage and (c.usage.total_input, c.usage.uncached_input) for c in calls] == [
        (6165, 6165),
        (6165, 149),
        None,
    ]
    assert calls[0].started_at == 1_788_256_800.0
    assert calls[0].ended_at == 1_788_256_802.5
    assert not calls[0].relative_time
    error = calls[2].error
    assert error is not None
    assert (error.type, error.status) == ("rate_limit", 429)
    assert problems == {}


@pytest.mark.parametrize(
    ("header", "row", "uncached", "total"),
    [
        ("start,prompt_tokens,cached_tokens,completion_tokens", "00:01,100,60,5", 40, 100),
        ("start,input_tokens,cached_tokens,output_tokens", "00:01,100,60,5", 40, 100),
        ("start,input_tokens,cache_read_input_tokens,output_tokens", "00:01,100,60,5", 100, 160),
        ("start,uncached_input,cache_read,output", "00:01,100,60,5", 100, 160),
        ("start,total_input,cache_read,output", "00:01,100,60,5", 40, 100),
        (
            "start;promptTokenCount;cachedContentTokenCount;candidatesTokenCount",
            "00:01;100;60;5",
            40,
            100,
        ),
        ("start|Input Tokens|Cached|Output", "00:01|60|100|5", 60, 160),
    ],
)
def test_the_convention_follows_the_names(
    tmp_path: Path, header: str, row: str, uncached: int, total: int
) -> None:
    path = write(tmp_path / "log.csv", f"{header}\n{row}\n")
    calls, _ = read(SOURCE, path)
    usage = calls[0].usage
    assert usage is not None
    assert (usage.uncached_input, usage.total_input, usage.output) == (uncached, total, 5)


def test_an_open_convention_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "start,input,read,output\n00:01,100,60,5\n")
    calls, problems = read(SOURCE, path)
    assert parts(calls[0]) == (40, 60, None, None, None, 5)
    assert problems == {"convention_assumed": 1}
    assert "total_input" in examples(SOURCE, path, "convention_assumed")[0]


def test_writes_by_lifetime(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log.csv",
        "started_at,model,uncached_input,cache_read,cache_write_5m,cache_write_1h,output\n"
        "2026-09-01T10:00:00Z,claude-opus-5,5,10,100,200,7\n",
    )
    calls, problems = read(SOURCE, path)
    assert parts(calls[0]) == (5, 10, 100, 200, None, 7)
    assert problems == {}


def test_the_hour_rolls_over(tmp_path: Path) -> None:
    times = ["58:00", "59:50", "00:20", "00:10", "30:00", "59:00", "01:00"]
    path = write(
        tmp_path / "log.csv",
        "start,total_input,cache_read\n" + "".join(f"{t},10,0\n" for t in times),
    )
    calls, _ = read(SOURCE, path)
    assert [c.started_at for c in calls] == [3480, 3590, 3620, 3610, 5400, 7140, 7260]


def test_unknown_columns_are_named_and_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "start,total_input,cache_read,weather\n00:01,9,0,rain\n")
    calls, problems = read(SOURCE, path)
    assert calls[0].extra == {"weather": "rain"}
    assert problems == {"unknown_column": 1}
    assert examples(SOURCE, path, "unknown_column") == (
        f"{path}:2: column 'weather' is kept but not understood",
    )


def test_broken_rows_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log.csv",
        "start,total_input,cache_read,output,note\n"
        '00:01,10,5,1,"two\nlines"\n'
        "00:02,many,5,1,\n"  # wrong type
        "00:03,-7,5,1,\n"  # negative
        "00:04,10,50,1,\n"  # more cached than there was
        '00:05,10,5,1,"never closed\n'
        "00:06,20,5,1,\n"
        "00:07,30,5,1,x,y,z\n"  # too wide
        "not a time,40,5,1,\n"
        "00:08,5",  # cut off
    )
    calls, problems = read(SOURCE, path)
    assert [c.origin and c.origin.line for c in calls] == [2, 4, 5, 6, 8, 10]
    assert [c.usage and c.usage.total_input for c in calls] == [10, None, None, None, 20, 40]
    assert calls[5].started_at is None
    assert problems == {
        "wrong_type": 2,  # the count, the time
        "negative_part": 1,
        "cache_exceeds_input": 1,
        "truncated_line": 2,  # the open quote, the cut row
        "wrong_width": 1,
    }


def test_broken_json_lines_are_counted(tmp_path: Path) -> None:
    good = '{"start": "00:01", "total_input": 10, "cache_read": 4, "output": 1}'
    path = lines(
        tmp_path / "log.jsonl",
        [good, good[:30], "[1, 2]", deep(), good, '{"start": "00:05", "note": "no counts"}'],
    )
    calls, problems = read(SOURCE, path)
    assert [parts(c) for c in calls] == [(6, 4, None, None, None, 1)] * 2
    assert problems.pop("too_deep", 0) + problems.pop("invalid_json", 0) == 1
    assert problems == {"truncated_line": 1, "wrong_type": 1, "missing_usage": 1}


def test_other_encodings(tmp_path: Path) -> None:
    text = "start,total_input,cache_read,note\n00:01,10,4,naïve\n00:02,20,4,b\n"
    wide = tmp_path / "wide.csv"
    wide.write_bytes(text.encode("utf-16"))
    calls, problems = read(SOURCE, wide)
    assert [c.usage and c.usage.total_input for c in calls] == [10, 20]
    assert problems == {"encoding": 1}
    old = tmp_path / "old.csv"
    old.write_bytes(text.encode("latin-1"))
    calls, problems = read(SOURCE, old)
    assert [c.usage and c.usage.total_input for c in calls] == [10, 20]
    assert problems == {"encoding": 1}


def test_a_vanished_file_is_counted(tmp_path: Path) -> None:
    assert read(SOURCE, tmp_path / "gone.csv") == ([], {"vanished_file": 1})


def test_tables_of_other_things_are_not_claimed(tmp_path: Path) -> None:
    for text in ("name,age\nx,1\n", "input,output\n1,2\n", "start,end\n1,2\n", "a\n1\n", ""):
        assert SOURCE.detect(head_of(write(tmp_path / "t.csv", text))) == 0


COUNT = st.integers(min_value=0, max_value=10**9)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(COUNT, COUNT, COUNT, COUNT), min_size=1, max_size=20))
def test_any_disjoint_counts_survive(tmp_path: Path, rows: list[tuple[int, int, int, int]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["start", "uncached_input", "cache_read", "cache_write_1h", "output"])
    for number, row in enumerate(rows):
        writer.writerow([f"{number // 60:02}:{number % 60:02}", *row])
    calls, problems = read(SOURCE, write(tmp_path / "log.csv", out.getvalue()))
    assert [(p[0], p[1], p[3], p[5]) for p in map(parts, calls)] == rows
    assert [c.usage and c.usage.total_input for c in calls] == [sum(row[:3]) for row in rows]
    assert problems == {}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("20.000", None),  # grouped by dots, or a fraction of zero: nobody can tell
        ("1.234.567", None),
        ("20,000", 20_000),
        ("20 000", 20_000),
        ("20000.0", 20_000),
        ("20000.000", 20_000),
        ("20.0", 20),
        ("0.000", 0),
    ],
)
def test_a_count_that_reads_two_ways_is_unknown(
    tmp_path: Path, text: str, tokens: int | None
) -> None:
    path = write(
        tmp_path / "log.csv",
        f"start;total_input;cache_read;cache_write;output\n00:01;20010;0;{text};5\n",
    )
    ((call,), problems) = read(SOURCE, path)
    assert call.usage is not None
    assert call.usage.cache_write == tokens
    assert ("wrong_type" in problems) == (tokens is None)


def test_lines_may_end_in_a_carriage_return_alone(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log.csv",
        "start,total_input,cache_read,output\r00:01,10,5,1\r00:09,20,10,2\r",
    )
    calls, problems = read(SOURCE, path)
    assert [(c.usage.total_input, c.usage.cache_read) for c in calls if c.usage] == [
        (10, 5),
        (20, 10),
    ]
    assert [c.origin and c.origin.line for c in calls] == [2, 3]
    assert not problems

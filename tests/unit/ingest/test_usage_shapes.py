"""Usual rows of a log are read without detour: the same calls as by the careful reader."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.records import record_of
from cacheaudit.ingest.sources.usage_log import SOURCE
from cacheaudit.model.call import Call

# The first of each is what a log usually has there.
CELLS: dict[str, list[Any]] = {
    "id": ["r1", "msg_0123456789", 7, " x ", "", "n/a", None, True],
    "session": ["s1", "s2", 5, "", None],
    "agent": ["main", "sub", "-"],
    "parent": ["r0", None],
    "task": ["t", 3],
    "model": ["claude-opus-4-8", "gpt-5.2", "none", ["x"]],
    "provider": ["anthropic", "openai", None],
    "purpose": ["main", "subagent", "odd"],
    "attempt": [0, "2", -1, "x", 10**9],
    "currency": ["USD", "EUR"],
    "started_at": [
        "2026-10-05T10:00:00Z",
        "2026-10-05 10:00:00 UTC",
        1_790_848_800,
        "05:30",
        12,
        "no",
        None,
    ],
    "ended_at": ["2026-10-05T10:00:09Z", "", "06:00", "no"],
    "duration_ms": [2500, "2500", "2.5 s", "", -1, 1e300],
    "ttft": [0.5, "0.5", ".", "1e3"],
    "total_input": [100, "100", "1,000", 60, 12.0, -3, 10**13, None, ""],
    "uncached_input": [40, "50", 100],
    "input_tokens": [30, "70", 100],
    "cache_read": [50, "50", 0, None, "x"],
    "cache_write": [10, "50", 0, ""],
    "cache_write_5m": [10, 5, 0],
    "cache_write_ttl": ["5m", "1h", "300", 3600, "2d", None],
    "output": [7, "8", None],
    "reasoning_tokens": [3, 90],
    "service_tier": ["batch", "standard", None, 5],
    "speed": ["fast", 83.2, "83.2", "standard"],
    "web_searches": [2, "1", "x"],
    "cost": [0.25, "$1.50", "free", None],
    "status": [200, "success"],
    "error": [None, "", "overloaded"],
    "Note": ["a", "", None],
    "my column": [1, "b", None],
}
NAMES = st.lists(st.sampled_from(sorted(CELLS)), min_size=3, max_size=14, unique=True)


@st.composite
def logs(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(NAMES)
    if draw(st.integers(0, 9)):
        names += [n for n in ("started_at", "total_input", "cache_read") if n not in names]
    usual = {name: CELLS[name][0] for name in names}
    for name in draw(st.lists(st.sampled_from(names), max_size=2)):
        usual[name] = draw(st.sampled_from(CELLS[name]))
    rows = []
    for _ in range(draw(st.integers(2, 6))):
        row = dict(usual)
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            row[name] = draw(st.sampled_from(CELLS[name]))
        rows.append(row)
    return rows


def read(path: Path) -> tuple[list[Call], dict[str, int], list[Any], dict[str, int]]:
    """Read calls and records, each with what was counted."""
    found: list[Any] = []
    for reader in (SOURCE.read, SOURCE.usages):
        problems = Problems()
        found.append(list(reader(path, problems)))
        found.append({kind: count for kind, count, _ in problems.items()})
    return tuple(found)  # type: ignore[return-value]


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=logs())
def test_usual_rows_are_read_as_the_careful_reader_reads_them(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    calls, problems, records, quick_problems = read(path)
    # An empty usage object says nothing, but is nothing usual.
    path.write_text("".join(json.dumps({**row, "usage": {}}) + "\n" for row in rows))
    careful, expected, _, _ = read(path)
    assert calls == careful
    assert problems == expected == quick_problems
    assert records == [record for call in careful if (record := record_of(call)) is not None]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=logs())
def test_a_table_says_what_the_same_texts_say_in_json(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    texts = [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    names = list(texts[0])
    table = io.StringIO()
    writer = csv.DictWriter(table, names)
    writer.writeheader()
    writer.writerows(texts)
    (tmp_path / "log.csv").write_text(table.getvalue())
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    from_table, _, _, _ = read(tmp_path / "log.csv")
    from_json, _, _, _ = read(tmp_path / "log.jsonl")
    assert [_bare(call) for call in from_table] == [_bare(call) for call in from_json]


def _bare(call: Call) -> Call:
    """Leave out what tells the two files apart."""
    named = call.id.startswith("log#")
    extra = {name: str(value).strip() for name, value in call.extra.items()}
    return msgspec.structs.replace(call, origin=None, id="" if named else call.id, extra=extra)


@pytest.mark.parametrize(
    ("fields", "cost"),
    [
        ({}, "6.25"),
        ({"cache_write_ttl": "1h"}, "10"),
        ({"cache_write_ttl": 3600}, "10"),
        ({"cache_write_ttl": "1h", "service_tier": "batch"}, "5"),
        ({"inference_geo": "us"}, "6.875"),
        ({"web_searches": "3"}, "6.28"),
        ({"speed": 83.2}, "6.25"),
    ],
)
def test_what_decides_the_bill_beside_the_counts_is_read(
    tmp_path: Path, fields: dict[str, Any], cost: str
) -> None:
    from tests.unit.cases.bills import bill

    row = {
        "started_at": "2026-10-05T10:00:00Z",
        "provider": "anthropic",
        "model": "claude-opus-4-8",
        "total_input": 1_000_000,
        "cache_write": 1_000_000,
        "cache_read": 0,
        "output": 0,
        **fields,
    }
    path = tmp_path / "log.jsonl"
    path.write_text((json.dumps(row) + "\n") * 2)
    assert bill(tmp_path, path).cost == 2 * Decimal(cost)

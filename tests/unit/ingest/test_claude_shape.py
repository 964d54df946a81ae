"""Claude Code transcripts of the usual build: what is taken by comparison is what stands there."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.sources.claude_code import SOURCE
from tests.unit.ingest.claude_samples import as_lines, transcript, usual, uuid

pytestmark = pytest.mark.usefixtures("scanner")


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


@settings(max_examples=200)
@given(transcript(), st.booleans())
def test_lines_of_the_usual_build_read_as_they_stand(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], ensure: bool
) -> None:
    path = tmp_path_factory.mktemp("t") / "s.jsonl"
    path.write_bytes(as_lines(rows, ensure))
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


@pytest.mark.parametrize("cut", range(1, 160, 7))
def test_a_line_cut_off_behind_usual_ones_is_counted(tmp_path: Path, cut: int) -> None:
    whole = as_lines([usual(1), usual(2), usual(3)], ensure=True)
    path = tmp_path / "s.jsonl"
    path.write_bytes(whole + b"\n" + as_lines([usual(4)], ensure=True)[:-cut])
    problems = Problems()
    assert [c.id for c in SOURCE.read(path, problems)] == ["msg_1", "msg_2", "msg_3"]
    assert problems.count("truncated_line") == 1


@pytest.mark.parametrize("place", ["parent", "id", "request"])
def test_bytes_that_are_no_text_are_counted_in_usual_lines(tmp_path: Path, place: str) -> None:
    bad = as_lines([usual(4)], ensure=True)
    old = {"parent": uuid(3).encode(), "id": b"msg_4", "request": b"req_4"}[place]
    path = tmp_path / "s.jsonl"
    whole = as_lines([usual(1), usual(2), usual(3)], ensure=True)
    path.write_bytes(whole + b"\n" + bad.replace(old, b"\xff" * len(old)))
    problems = Problems()
    assert len(list(SOURCE.read(path, problems))) == 4
    assert problems.count("encoding") == 1

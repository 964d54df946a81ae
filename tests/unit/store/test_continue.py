"""Recordings and logs that grow: read on from where they were, they end as if read at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.sources import native, usage_log
from cacheaudit.jobs.import_ import ContinuingSource, ImportReport, import_files
from cacheaudit.model.call import Session
from cacheaudit.model.clock import FixedClock
from cacheaudit.model.record import RecordWriter
from cacheaudit.store import open_store
from tests.unit.store.builders import inputs

ROWS = 560


def _row(number: int) -> dict[str, Any]:
    return {
        "id": f"row{number}",
        "session": f"s{number // 300}",
        "model": "claude-opus-4-8",
        "started_at": f"2026-10-05T{number // 60:02d}:{number % 60:02d}:00Z",
        "total_input": 1_000 + number,
        "cache_read": 500,
        "output": 1_000 + number,
    }


def json_log() -> list[str]:
    return [json.dumps(_row(number)) for number in range(ROWS)]


def table() -> list[str]:
    rows = [",".join(map(str, _row(number).values())) for number in range(ROWS)]
    return [",".join(_row(0)), *rows]


def table_without_ids() -> list[str]:
    # The last cell is a name, so that a row cut in two names another session.
    names = ["started_at", "total_input", "cache_read", "output", "session"]
    rows = [",".join(str(_row(number)[name]) for name in names) for number in range(ROWS)]
    return [",".join(names), *rows]


def quoted_table() -> list[str]:
    rows = [",".join(map(str, _row(n).values())) + f',"note\n{n}, more"' for n in range(ROWS)]
    return [",".join([*_row(0), "note"]), *rows]


def table_without_dates() -> list[str]:
    rows = [f"{n % 60:02d}:30,{1_000 + n},500,{n}" for n in range(ROWS)]
    return ["start,total_input,cache_read,output", *rows]


def table_that_its_figures_explain() -> list[str]:
    rows = [f"2026-10-05T{n // 60:02d}:{n % 60:02d}:00Z,{100 + n},{90 if n < 540 else 9_000},5"
            for n in range(ROWS)]  # fmt: skip
    return ["started_at,input,cache_read,output", *rows]


def _body(turns: int, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": f"turn {i}"} for i in range(2 * turns + 1)]
    return {"model": "claude-opus-4-8", "system": "Be brief.", "messages": messages, **more}


def _call(number: int, request: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "schema": "cacheaudit.call/1",
        "id": f"c{number}",
        "session": "s",
        "provider": "anthropic",
        "model": "claude-opus-4-8",
        "started_at": f"2026-10-05T10:{number:02d}:00Z",
        "request": request,
        "response": {
            "id": f"msg_{number}",
            "content": [{"type": "text", "text": f"answer {number}"}],
            "usage": {"input_tokens": 9, "cache_read_input_tokens": 0, "output_tokens": number},
        },
    }


def recording() -> list[str]:
    return [json.dumps(_call(number, _body(number))) for number in range(12)]


def recording_of_a_thread() -> list[str]:
    first = _body(0, thread={"type": "create"})
    requests = [first]
    for number in range(1, 12):
        more = [{"role": "user", "content": f"more {number}"}]
        thread = {"type": "continue", "previous_message_id": f"msg_{number - 1}"}
        requests.append({"model": "claude-opus-4-8", "thread": thread, "messages": more})
    return [json.dumps(_call(number, request)) for number, request in enumerate(requests)]


def export(tmp_path: Path) -> list[str]:
    path = tmp_path / "first.session.jsonl"
    path.write_text("\n".join(recording()) + "\n")
    writer = RecordWriter()
    found = native.SOURCE.read(path, Problems())
    return [json.dumps(writer.record(call)) for call in found]


MAKERS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    made.__name__: (name, made)
    for name, made in (
        ("log.jsonl", json_log),
        ("log.csv", table),
        ("log.csv", table_without_ids),
        ("log.csv", quoted_table),
        ("log.csv", table_without_dates),
        ("log.csv", table_that_its_figures_explain),
        ("x.session.jsonl", recording),
        ("x.session.jsonl", recording_of_a_thread),
    )
}


def _import(url: str, path: Path) -> ImportReport:
    with open_store(url) as store:
        return import_files(inputs(path), store, FixedClock(1_000.0))


def _sessions(url: str) -> list[Session]:
    with open_store(url) as store:
        return list(store.sessions())


def _grow(tmp_path: Path, name: str, lines: list[str], shares: tuple[float, ...]) -> list[int]:
    """Import a file in portions and at once; returns how many of the imports read on."""
    data = ("\n".join(lines) + "\n").encode()
    path, whole = tmp_path / name, tmp_path / "whole" / name
    whole.parent.mkdir()
    whole.write_bytes(data)
    continued = []
    for share in (*shares, 1.0):
        path.write_bytes(data[: int(len(data) * share)])
        continued.append(_import(f"sqlite:///{tmp_path}/grown.db", path).files_continued)
    # The same name, so that ids made of it agree.
    path.unlink()
    whole.rename(path)
    _import(f"sqlite:///{tmp_path}/whole.db", path)
    assert _sessions(f"sqlite:///{tmp_path}/grown.db") == _sessions(
        f"sqlite:///{tmp_path}/whole.db"
    )
    return continued


@pytest.mark.parametrize("made", MAKERS)
@pytest.mark.parametrize("shares", [(0.5,), (0.1, 0.8003, 0.9)])
def test_a_file_that_grows_ends_as_if_read_at_once(
    tmp_path: Path, made: str, shares: tuple[float, ...]
) -> None:
    name, make = MAKERS[made]
    assert _grow(tmp_path, name, make(), shares)[-1] == 1


@pytest.mark.parametrize("shares", [(0.5,), (0.1, 0.8, 0.9)])
def test_an_export_that_grows_keeps_its_prompts(tmp_path: Path, shares: tuple[float, ...]) -> None:
    assert _grow(tmp_path, "x.session.jsonl", export(tmp_path), shares)[-1] == 1
    (session,) = _sessions(f"sqlite:///{tmp_path}/grown.db")
    assert all(call.prompt is not None for call in session.calls)
    assert len(session.calls[-1].prompt.blocks) == 24  # type: ignore[union-attr]


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    for source, name, lines in (
        (usage_log.SOURCE, "log.csv", table()),
        (usage_log.SOURCE, "log.jsonl", json_log()),
        (native.SOURCE, "x.session.jsonl", recording()),
    ):
        assert isinstance(source, ContinuingSource)
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        count = len(lines) - 5
        start = len(("\n".join(lines[:count]) + "\n").encode())
        calls = list(source.read_from(path, Problems(), start, count + 1))
        expected = list(source.read(path, Problems()))[-5:]
        assert [(c.id, c.usage, c.origin) for c in calls] == [
            (c.id, c.usage, c.origin) for c in expected
        ]
        assert all(
            (c.prompt is None) == (e.prompt is None) for c, e in zip(calls, expected, strict=True)
        )

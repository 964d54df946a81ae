"""Lets the lives of a soak pass, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from local_backend.soak.config import End, Life
from local_backend.soak.server import Books, Child
from local_backend.soak.users import Notes, User

_SAMPLE_S = 0.25
_JOIN_S = 90.0
_SUMS = ("engine_evicted_pages_total", "engine_preempted_total", "disconnects_total")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a soak.

    Attributes:
        counts: What was done, by name.
        problems: What must not happen; empty where all is well.
        pages: Pages of the last life, all of them accounted for where there is no problem.
    """

    counts: dict[str, int]
    problems: tuple[str, ...]
    pages: int


def soak(lives: Sequence[Life], seed: int, say: Callable[[str], None]) -> Result:
    """Run it.

    Args:
        lives: Of the server.
        seed: Of what clients ask.
        say: Receives a line for each life.
    """
    notes = Notes()
    pages = 0
    for life in lives:
        pages = _live(life, seed, notes, say)
    return Result(dict(notes.counts), tuple(notes.problems), pages)


def _live(life: Life, seed: int, notes: Notes, say: Callable[[str], None]) -> int:
    """One life; how many pages its server had."""
    child = Child(life.options)
    known = len(notes.problems)
    stop, ending = threading.Event(), threading.Event()
    users = [
        User(child.address, f"{seed}-{life.number}-{user}", notes, stop, ending.is_set)
        for user in range(life.users)
    ]
    for user in users:
        user.start()
    books = _watch(child, life.seconds, notes)
    if life.end is End.QUIET:
        stop.set()
        _join(users, notes)
        books = child.settle()
        if not books.is_settled or books.lost:
            notes.problem(f"life {life.number}: pages or requests are left: {dict(books.pages)}")
    else:
        ending.set()
    if life.end is End.KILLED:
        child.kill()
    else:
        code, errors = child.stop()
        if code or (errors and life.end is End.QUIET):
            notes.problem(f"life {life.number} ended with {code}: {errors[-300:]}")
    stop.set()
    _join(users, notes)
    notes.count(starts=1, **{f"ends {life.end}": 1})
    notes.count(**{name.removesuffix("_total"): books.values[name] for name in _SUMS})
    counts = notes.counts
    say(
        f"life {life.number} ({life.end}, {books.total} pages): {counts['requests']} requests,"
        f" {counts['answers']} answers, {len(notes.problems)} problems so far"
    )
    for problem in notes.problems[known:]:
        say(f"  PROBLEM: {problem}")
    return books.total


def _watch(child: Child, seconds: float, notes: Notes) -> Books:
    """Look at the books now and then until time is up; the last ones."""
    until = time.monotonic() + seconds
    while True:
        books = child.books()
        notes.count(samples=1)
        if books.lost:
            notes.problem(f"{books.lost} pages are not accounted for: {dict(books.pages)}")
        left = until - time.monotonic()
        if left <= 0:
            return books
        time.sleep(min(_SAMPLE_S, left))


def _join(users: Sequence[User], notes: Notes) -> None:
    for user in users:
        user.join(_JOIN_S)
        if user.is_alive():
            notes.problem("a client still waits for its answer")

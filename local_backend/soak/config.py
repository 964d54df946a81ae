"""How the lives of the server in a soak are drawn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from local_backend.server.settings import RULES


class End(StrEnum):
    """How a life of the server ends."""

    QUIET = "quiet"
    """Nobody asks any more; the books are compared; then it is told to stop."""
    LOADED = "loaded"
    """It is told to stop while it answers."""
    KILLED = "killed"
    """It is killed while it answers."""


@dataclass(frozen=True, slots=True)
class Life:
    """One start of the server.

    Attributes:
        number: Counted from 0.
        options: Of its command line.
        seconds: How long clients ask.
        end: How it ends.
        users: Clients at the same time.
    """

    number: int
    options: tuple[str, ...]
    seconds: float
    end: End
    users: int


def draw_lives(seed: int, seconds: float, count: int, users: int, disk: str) -> Sequence[Life]:
    """Draw what the server is like each time it starts.

    Memory is always far too small for what is asked. The last life ends quietly, so that there are
    books to compare at the end.

    Args:
        seed: Of all draws.
        seconds: Of all lives together.
        count: How many.
        users: Clients at the same time.
        disk: Folder of the tier that outlives the server.
    """
    draw = random.Random(seed)  # noqa: S311 - no secret depends on it
    lives = []
    for number in range(count):
        size = draw.choice([1, 4, 16])
        tokens = draw.choice([800, 1600])
        options = [
            *("--model", "tiny", "--port", "0", "--threads", "1"),
            *("--rules", RULES[number % len(RULES)], "--min-cache-tokens", "32"),
            *("--page-size", str(size), "--pages", str(tokens // size)),
            *("--context-length", str(tokens // 2)),
            *("--max-running", str(draw.choice([2, 4])), "--max-waiting", str(draw.choice([1, 8]))),
            *("--host-mib", str(draw.choice([0, 1]))),
        ]
        if draw.random() < 0.7:
            options += ["--disk", disk, "--disk-mib", "4"]
        last = number == count - 1
        end = End.QUIET if last else draw.choice([End.KILLED, End.LOADED, End.QUIET])
        lives.append(Life(number, tuple(options), seconds / count, end, users))
    return lives

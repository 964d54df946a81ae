"""What the clients of a soak ask for, and how they behave."""

from __future__ import annotations

import json
import random
import string
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_BODIES = 300
_LETTERS = string.ascii_lowercase + "     "


class Manner(StrEnum):
    """What a client does with the answer."""

    READS = "reads"
    STREAMS = "streams"
    LEAVES = "leaves"
    """It streams, and goes after a few events."""
    HANGS_UP = "hangs_up"
    """It sends its request and closes at once."""
    BREAKS_OFF = "breaks_off"
    """It closes in the middle of its request."""
    GARBLES = "garbles"
    """It sends no JSON."""


_WEIGHTS = {
    Manner.READS: 45,
    Manner.STREAMS: 20,
    Manner.LEAVES: 18,
    Manner.HANGS_UP: 8,
    Manner.BREAKS_OFF: 5,
    Manner.GARBLES: 4,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request.

    Attributes:
        number: Requests of one number must have the same answer, streamed or not, whenever they are
            sent and whatever the cache then holds.
        body: As sent.
        workspace: Whose cache.
        manner: See there.
        events: After how many events a client leaves that does.
    """

    number: int
    body: bytes
    workspace: str
    manner: Manner
    events: int

    @property
    def is_stream(self) -> bool:
        """Whether the answer comes in events."""
        return b'"stream": true' in self.body


def draw_request(draw: random.Random) -> Asked:
    """One of a few hundred requests; many begin alike, and all come again."""
    manner = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    number = draw.randrange(_BODIES)
    body = _body(random.Random(number))  # noqa: S311 - no secret depends on it
    if manner in (Manner.STREAMS, Manner.LEAVES) and body["max_tokens"]:
        body["stream"] = True
    data = json.dumps(body).encode()
    if manner is Manner.GARBLES:
        data = data[: len(data) // 2]
    return Asked(number, data, draw.choice(["a", "a", "b"]), manner, draw.randrange(1, 9))


def _body(draw: random.Random) -> dict[str, Any]:
    mark = {"cache_control": {"type": "ephemeral"}} if draw.random() < 0.6 else {}
    stem = _text(draw.randrange(6), draw.choice([30, 90, 150, 200]))
    turns: list[dict[str, Any]] = []
    for number in range(draw.choice([1, 1, 3])):
        text = _text(100 + draw.randrange(4), draw.choice([1, 20, 45]))
        turns.append({"role": ("user", "assistant")[number % 2], "content": text})
    return {
        "model": "tiny",
        "max_tokens": draw.choice([0, 1, 1, 8, 8, 40, 40, 40]),
        "system": [{"type": "text", "text": stem, **mark}],
        "messages": turns,
        "temperature": draw.choice([0, 1]),
        "seed": draw.randrange(2),
    }


def _text(family: int, size: int) -> str:
    source = random.Random(family)  # noqa: S311 - no secret depends on it
    return "".join(source.choices(_LETTERS, k=size - 1)) + "."

"""What a compaction costs: the summary request, the first request after it, and the later ones."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final, Literal

import msgspec

from cacheaudit.agent.compaction.settings import Mode
from cacheaudit.model.money import ZERO
from cacheaudit.pricing.card import RateCard

INSTRUCTION: Final = 250
MOST_TURNS: Final = 500

# Price row of a model (``None``: the conversation's own) for a prompt of so many tokens.
CardOf = Callable[[str | None, int], RateCard | None]


class NoPrice(Exception):  # noqa: N818 - a signal inside the package
    """A rate that is needed is not known."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation at the moment of a decision; sizes in tokens.

    Attributes:
        size: The next request as it is.
        stored: How much of it the provider has stored, or had.
        front: Tools and system.
        front_stored: The front alone can be read.
        older: Messages that a summary would stand for.
        after: Messages after a compaction, summary included.
        freed: What clearing tool results would free; 0: not enough.
        growth: By how much each request is larger than the one before it.
        turns: Requests still to come, the next one included.
        summary: Size of a summary.
        warm: What is stored can still be read.
        pause: A pause comes first in which everything expires.
        probability: How likely the requests still to come are.
        lifetime: Name of the lifetime of what is written.
        standalone_model: Model of a standalone summary.
    """

    size: int
    stored: int
    front: int
    front_stored: bool
    older: int
    after: int
    freed: int = 0
    growth: int = 0
    turns: int = 1
    summary: int = 1_500
    warm: bool = True
    pause: bool = False
    probability: Decimal = Decimal(1)
    lifetime: str = "5m"
    standalone_model: str | None = None

    @property
    def readable(self) -> int:
        """What the next request could read now."""
        return min(self.stored, self.size) if self.warm else 0

    @property
    def caches(self) -> bool:
        """Whether the conversation is cached at all."""
        return self.stored > 0


class Stages(msgspec.Struct, frozen=True, kw_only=True):
    """Price of one way to go on.

    Attributes:
        mode: ``keep``, or how to compact.
        summary: Of the summary request; 0 where there is none.
        first: Expected, of the first request after it.
        later: Expected, of all requests behind that.
        size: Tokens of the first request.
    """

    mode: Mode | Literal["keep"]
    summary: Decimal
    first: Decimal
    later: Decimal
    size: int

    @property
    def total(self) -> Decimal:
        """All three."""
        return self.summary + self.first + self.later


def priced(mode: Mode | Literal["keep"], shape: Shape, card_of: CardOf) -> Stages:
    """Price one way to go on.

    Raises:
        NoPrice: A rate that is needed is not known.
    """
    size = _size_after(mode, shape)
    will_read = not shape.pause
    if mode == "keep":
        read = shape.readable if will_read else 0
    else:
        stored = shape.front_stored if shape.warm else mode == "prefix" and shape.caches
        read = min(shape.front, size) if stored and will_read else 0
    first = _request(card_of, shape, size, read=read) if shape.turns else ZERO
    later = ZERO
    for turn in range(1, shape.turns):
        grown = size + turn * shape.growth
        later += _request(card_of, shape, grown, read=grown - shape.growth)
    return Stages(
        mode=mode,
        summary=_summary(mode, shape, card_of),
        first=first * shape.probability,
        later=later * shape.probability,
        size=size,
    )


def _size_after(mode: Mode | Literal["keep"], shape: Shape) -> int:
    if mode == "keep":
        return shape.size
    if mode == "clear":
        return max(0, shape.size - shape.freed)
    return shape.front + shape.after


def _summary(mode: Mode | Literal["keep"], shape: Shape, card_of: CardOf) -> Decimal:
    if mode == "prefix":
        read = shape.readable
        # When cold, the front alone is marked: the next request reads it.
        write = shape.front if shape.caches and not shape.warm else 0
        size = shape.size + INSTRUCTION
        return _bill(card_of, shape, size, read=read, write=write, output=shape.summary)
    if mode == "server":
        size = shape.front + shape.older
        read = min(shape.readable, size)
        return _bill(card_of, shape, size, read=read, output=shape.summary)
    if mode == "standalone":
        size = shape.older + INSTRUCTION
        model = shape.standalone_model
        return _bill(card_of, shape, size, output=shape.summary, model=model)
    return ZERO


def _request(card_of: CardOf, shape: Shape, size: int, *, read: int) -> Decimal:
    """Price an ordinary request: what is not read is written, where the conversation is cached."""
    if not shape.caches:
        return _bill(card_of, shape, size)
    return _bill(card_of, shape, size, read=read, write=size - read)


def _bill(
    card_of: CardOf,
    shape: Shape,
    size: int,
    *,
    read: int = 0,
    write: int = 0,
    output: int = 0,
    model: str | None = None,
) -> Decimal:
    card = card_of(model, size)
    if card is None:
        raise NoPrice
    rate = card.write_rate(shape.lifetime)
    if (write and rate is None) or (output and card.output is None):
        raise NoPrice
    return (
        read * card.read
        + write * (rate or ZERO)
        + (size - read - write) * card.uncached
        + output * (card.output or ZERO)
    )


def break_even(mode: Mode, shape: Shape, card_of: CardOf) -> int | None:
    """Return the number of requests still to come from which a way is cheaper than going on.

    ``None``: not within the next 500.
    """
    low, high = 0, MOST_TURNS
    if not _is_cheaper(mode, shape, card_of, high):
        return None
    while low < high:
        middle = (low + high) // 2
        if _is_cheaper(mode, shape, card_of, middle):
            high = middle
        else:
            low = middle + 1
    return high


def _is_cheaper(mode: Mode, shape: Shape, card_of: CardOf, turns: int) -> bool:
    asked = msgspec.structs.replace(shape, turns=turns)
    return priced(mode, asked, card_of).total < priced("keep", asked, card_of).total

"""What a refresh costs and what a miss costs, by the prices and the lifetime of one request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from cacheaudit.errors import PromptError
from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import calibrated, tokens_of
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.equivalents import find_card
from cacheaudit.providers.facts import rules
from cacheaudit.providers.registry import expand
from cacheaudit.simulate.edits.keep_alive import refresh_after

DEFAULT_TTL: Final = "5m"


class Stakes(msgspec.Struct, frozen=True, kw_only=True):
    """What is at stake between a refresh and a miss.

    Attributes:
        ttl: Seconds that the entry lives.
        every: Seconds from the start of a request to its refresh.
        read_tokens: What a refresh reads.
        lost_tokens: What would have to be written again; less than ``read_tokens`` where the front
            of the prompt has a longer lifetime.
        read: Price of a token that is read.
        write: Price of a token that is written, for the lifetime in use.
        uncached: Price of a token of ordinary input.
        output: Price of a token of output; ``None``: not known.
        currency: ISO code.
        output_tokens: What a refresh generates: 0 or 1.
        fresh_tokens: What stands behind the last marker and is sent uncached each time.
    """

    ttl: float
    every: float
    read_tokens: int
    lost_tokens: int
    read: Decimal
    write: Decimal
    uncached: Decimal
    output: Decimal | None
    currency: str = "USD"
    output_tokens: int = 0
    fresh_tokens: int = 0

    @property
    def refresh_cost(self) -> Decimal:
        """Price of one refresh."""
        return (
            self.read_tokens * self.read
            + self.fresh_tokens * self.uncached
            + self.output_tokens * (self.output or Decimal(0))
        )

    def paid(self, usage: Usage) -> Decimal:
        """Price of a refresh by what was reported of it."""
        return (
            (usage.cache_read or 0) * self.read
            + (usage.cache_write or 0) * self.write
            + (usage.uncached_input or 0) * self.uncached
            + (usage.output or 0) * (self.output or Decimal(0))
        )

    @property
    def miss_cost(self) -> Decimal:
        """What writing again costs beyond what reading would cost; 0 where writing is no dearer."""
        return max(Decimal(0), self.lost_tokens * (self.write - self.read))

    @property
    def affordable(self) -> int:
        """Most refreshes that together still cost less than a miss: the ski-rental bound.

        Whoever refreshes that often and then gives up has paid less than twice what the best
        foresight would have paid for writing and reading.
        """
        if self.refresh_cost <= 0:
            return 0 if self.miss_cost <= 0 else 1_000
        return max(0, math.ceil(self.miss_cost / self.refresh_cost) - 1)

    @property
    def grace(self) -> float:
        """Seconds by which a refresh may be late."""
        return (self.ttl - self.every) / 2


class Ineligible(msgspec.Struct, frozen=True):
    """Why a request is not refreshed."""

    reason: str


def stakes(
    call: Call,
    body: Mapping[str, Any],
    book: PriceBook,
    *,
    every: float | None = None,
    output_tokens: int = 0,
) -> Stakes | Ineligible:
    """Work out what is at stake for a request that was answered.

    Args:
        call: What was recorded of it, usage included.
        body: What was sent.
        book: Prices.
        every: Seconds to the refresh, where the user set them.
        output_tokens: What a refresh will generate.
    """
    usage = call.usage
    size = None if usage is None else usage.prompt_size
    known = rules(call.provider, call.model, call.started_at, call.surface)
    if size is None or usage is None:
        return Ineligible("usage_unknown")
    if known is None or not known.lifetimes:
        return Ineligible("lifetime_unknown")
    try:
        prompt = calibrated(expand(body, provider=call.provider), size)
    except PromptError:
        return Ineligible("body_unreadable")
    end, front, label = reach(prompt, known.lifetimes)
    if end < 0:
        return Ineligible("no_marker")
    ttl = known.lifetimes.get(label)
    if ttl is None:
        return Ineligible("lifetime_unknown")
    wait = refresh_after(ttl) if every is None else every
    if not 0 < wait < ttl:
        return Ineligible("refresh_beyond_lifetime")
    card = find_card(book, call, call.model, size)
    write = None if card is None else card.write_rate(label)
    if card is None or write is None or (output_tokens and card.output is None):
        return Ineligible("price_unknown")
    whole, _ = tokens_of(prompt.blocks[: end + 1])
    kept, _ = tokens_of(prompt.blocks[: front + 1])
    if whole < known.integer("minimum_tokens"):
        return Ineligible("too_short")
    return Stakes(
        ttl=ttl,
        every=wait,
        read_tokens=whole,
        lost_tokens=whole - kept,
        read=card.read,
        write=write,
        uncached=card.uncached,
        output=card.output,
        currency=card.currency,
        output_tokens=output_tokens,
        fresh_tokens=max(0, size - whole),
    )


def reach(prompt: Prompt, lifetimes: Mapping[str, float]) -> tuple[int, int, str]:
    """Find the end of what is stored and the end of what is stored for longer.

    Returns:
        Position of the last content block that is stored (-1: none), of the last one that has a
        longer lifetime than it (-1: none), and the lifetime's name.
    """
    marks: list[tuple[int, str]] = [
        (index, marker.ttl or DEFAULT_TTL)
        for index in prompt.marked
        if (marker := prompt.blocks[index].marker) is not None
    ]
    if prompt.automatic_marker is not None:
        marks.append((_last(prompt), prompt.automatic_marker.ttl or DEFAULT_TTL))
    if not marks or marks[-1][0] < 0:
        return -1, -1, DEFAULT_TTL
    end, label = max(marks)
    mine = lifetimes.get(label, 0.0)
    longer = [index for index, name in marks if lifetimes.get(name, 0.0) > mine]
    return end, max(longer, default=-1), label


def _last(prompt: Prompt) -> int:
    """Return the content block on which an automatic marker comes to stand."""
    index = len(prompt.blocks) - 1
    while index >= 0 and prompt.blocks[index].kind in ("thinking", "redacted_thinking", "settings"):
        index -= 1
    return index

"""What refreshes brought, told from recorded calls alone, whoever sent them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

import msgspec

from cacheaudit.agent.keep_alive.economy import DEFAULT_TTL, reach
from cacheaudit.model.call import Call
from cacheaudit.model.money import ZERO
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.cost import price_call
from cacheaudit.pricing.equivalents import find_card
from cacheaudit.providers.facts import rules

_ASIDE = frozenset({"keep_alive", "probe", "warm_up", "compaction"})
_SECONDS = {"5m": 300.0, "1h": 3600.0, "30m": 1800.0, "12h": 43_200.0}


class Realised(msgspec.Struct, frozen=True, kw_only=True):
    """What the refreshes of a session brought.

    Attributes:
        refreshes: How many there were.
        needed: Pauses that they bridged: the call behind came after the lifetime, and read.
        tokens: Tokens that those calls read and would have had to write.
        cost: What the refreshes cost.
        saved: What those calls would have cost more without them.
        unpriced: Refreshes and calls without a price; they are in neither sum.
        currency: Currency of both sums; other currencies count as unpriced.
    """

    refreshes: int
    needed: int
    tokens: int
    cost: Decimal
    saved: Decimal
    unpriced: int
    currency: str

    @property
    def gain(self) -> Decimal:
        """What was saved, less what it cost; may be negative."""
        return self.saved - self.cost


def realised(calls: Sequence[Call], book: PriceBook, currency: str = "USD") -> Realised | None:
    """Work out what refreshes brought.

    Args:
        calls: The calls of a session, those of each lane in order.
        book: Prices.
        currency: Currency of the sums.

    Returns:
        ``None`` where there were no refreshes.
    """
    refreshes = needed = tokens = unpriced = 0
    cost = saved = ZERO
    for before, pings, after in _series(calls):
        for ping in pings:
            refreshes += 1
            price = price_call(ping, book)
            if price.amount is None or price.currency != currency:
                unpriced += 1
                continue
            cost += price.amount
        kept = _kept(before, pings, after)
        if before is None or after is None or not kept:
            continue
        needed += 1
        tokens += kept
        worth = _difference(after, _label(before), book, currency)
        if worth is None:
            unpriced += 1
        else:
            saved += kept * worth
    if not refreshes:
        return None
    return Realised(
        refreshes=refreshes,
        needed=needed,
        tokens=tokens,
        cost=cost,
        saved=saved,
        unpriced=unpriced,
        currency=currency,
    )


def _series(
    calls: Sequence[Call],
) -> Iterator[tuple[Call | None, list[Call], Call | None]]:
    """Yield the real call before, the refreshes behind it, and the real call behind those."""
    before: dict[str, Call] = {}
    waiting: dict[str, list[Call]] = {}
    for call in calls:
        if call.error is not None and call.usage is None:
            continue
        if call.purpose == "keep_alive":
            waiting.setdefault(call.lane, []).append(call)
        elif call.purpose not in _ASIDE:
            if pings := waiting.pop(call.lane, None):
                yield before.get(call.lane), pings, call
            before[call.lane] = call
    for lane, pings in waiting.items():
        yield before.get(lane), pings, None


def _kept(before: Call | None, pings: Sequence[Call], after: Call | None) -> int:
    """Count the tokens that the call behind would have had to write without the refreshes."""
    if before is None or after is None or before.started_at is None or after.started_at is None:
        return 0
    if after.started_at - before.started_at <= _SECONDS.get(_label(before), _SECONDS[DEFAULT_TTL]):
        return 0
    read = 0 if after.usage is None else after.usage.cache_read or 0
    most = max((ping.usage.cache_read or 0 for ping in pings if ping.usage is not None), default=0)
    return max(0, min(read, most) - _longer(before))


def _label(call: Call) -> str:
    """Name the lifetime of what a call left behind."""
    if call.prompt is not None:
        known = rules(call.provider, call.model, call.started_at, call.surface)
        end, _, label = reach(call.prompt, _SECONDS if known is None else known.lifetimes)
        if end >= 0:
            return label
    usage = call.usage
    return "1h" if usage is not None and usage.write_1h and not usage.write_5m else DEFAULT_TTL


def _longer(call: Call) -> int:
    """Count the tokens in front that live longer and would have been there still."""
    if call.prompt is None:
        return 0
    _, front, _ = reach(call.prompt, _SECONDS)
    return sum(block.tokens or 0 for block in call.prompt.blocks[: front + 1])


def _difference(call: Call, label: str, book: PriceBook, currency: str) -> Decimal | None:
    """Price of writing a token less that of reading it."""
    size = None if call.usage is None else call.usage.prompt_size
    card = find_card(book, call, call.model, size)
    write = None if card is None else card.write_rate(label)
    if card is None or write is None or card.currency != currency:
        return None
    return max(ZERO, write - card.read)

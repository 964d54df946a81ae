"""One session under other lifetime settings, from sizes and times alone.

Each lane is followed call by call. What a call repeats of the one before it is known from the
sizes; whether it was read, or lost to a pause, from the record. Under another setting a pause that
the entry outlives is a read instead of a write, one that it does not outlive a write instead of a
read, and everything written costs what the other lifetime costs. What was lost for other reasons
stays lost, and what was read stays read under the same lifetime or a longer one.

Tokens are summed by price row first and priced once: exact, and a few microseconds a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from cacheaudit.model.call import Call, Session
from cacheaudit.model.clock import day
from cacheaudit.model.money import ZERO
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.equivalents import default_multipliers, find_card
from cacheaudit.simulate.bill import Saving
from cacheaudit.simulate.edits.keep_alive import refresh_after
from cacheaudit.simulate.policy import Policy, Setting

_SECONDS: Final = {"5m": 300.0, "1h": 3600.0}
_EVERY: Final = {name: refresh_after(seconds) for name, seconds in _SECONDS.items()}
_BROKEN: Final = frozenset({"compaction", "clear", "branch"})
_DAY: Final = 86_400
_NO_DAY: Final = -1
# Less is rounding at a marker, not a lost prefix.
_SMALL: Final = 1024


class Turn(msgspec.Struct, frozen=True, gc=False):
    """One call as its sizes tell it.

    Attributes:
        uncached: Tokens sent uncached.
        read: Tokens read.
        written: Tokens written.
        repeated: Tokens that could have been read, had the prefix outlived the pause.
        expired: Some were lost to a pause longer than the lifetime then in force.
        lifetime: That lifetime, in seconds.
        gap: Seconds since the start of the call before it; ``None`` for the first of a lane.
        following: Seconds to the start of the next call; infinite for the last.
    """

    uncached: int
    read: int
    written: int
    repeated: int
    expired: bool
    lifetime: float
    gap: float | None
    following: float


class Parts(msgspec.Struct, frozen=True, gc=False):
    """Tokens of a call under a setting."""

    uncached: int
    read: int
    written: int


class Tokens:
    """Token sums of one price row on one day."""

    __slots__ = (
        "again",
        "gained",
        "long",
        "lost",
        "read",
        "refreshed",
        "refreshes",
        "short",
        "uncached",
    )

    def __init__(self) -> None:
        self.uncached = self.read = self.short = self.long = 0
        # Refreshes sent, what they read and what they sent uncached again.
        self.refreshes = self.refreshed = self.again = 0
        self.gained = self.lost = 0


class Rates(msgspec.Struct, frozen=True):
    """Prices of one token relative to ordinary input, and of that in money."""

    read: Decimal
    short: Decimal
    long: Decimal
    unit: Decimal | None
    output: Decimal | None = None
    search: Decimal | None = None

    def price(self, tokens: Tokens) -> Saving:
        """Price the input side; refreshes are in the reads already."""
        weight = (
            tokens.uncached
            + tokens.read * self.read
            + tokens.short * self.short
            + tokens.long * self.long
        )
        return self.of(weight)

    def of(self, weight: Decimal) -> Saving:
        """Turn input equivalents into both sums."""
        return Saving(weight, None if self.unit is None else weight * self.unit)


class UnderPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A session under one policy; token counts include refreshes.

    Attributes:
        saves: Against what was billed; negative where it would have cost more.
        by_day: The same by day, in money or, without prices, in input equivalents.
        uncached_input: Tokens sent uncached.
        cache_read: Tokens read.
        cache_writes: Tokens written, by lifetime.
        refreshes: Refreshes sent.
        refresh_cost: What they cost.
        reads_gained: Calls that read more than recorded.
        reads_lost: Calls that read less.
    """

    saves: Saving
    by_day: dict[int, Decimal]
    uncached_input: int
    cache_read: int
    cache_writes: dict[str, int]
    refreshes: int
    refresh_cost: Saving
    reads_gained: int
    reads_lost: int


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A session under every policy.

    Attributes:
        calls: Calls that were judged.
        unpriced: Those of them without a price.
        billed: What they were billed, output included.
        uncached_input: Tokens they sent uncached.
        cache_read: Tokens they read.
        cache_writes: Tokens they wrote, by lifetime.
        expiries: Calls that lost their prefix to a pause.
        rewritten: Tokens that those could have read under a longer lifetime.
        policies: One a policy, in order.
    """

    calls: int
    unpriced: int
    billed: Saving
    uncached_input: int
    cache_read: int
    cache_writes: dict[str, int]
    expiries: int
    rewritten: int
    policies: tuple[UnderPolicy, ...]


class Judge:
    """Tries policies on sessions, one after another.

    Args:
        policies: What to try.
        book: Prices; ``None``: input equivalents by documented multipliers only.
        currency: Money is summed in this currency only.

    Attributes:
        left_out: Calls that were not judged, by reason.
    """

    def __init__(
        self, policies: Sequence[Policy], book: PriceBook | None, currency: str = "USD"
    ) -> None:
        self.policies = tuple(policies)
        self.left_out: dict[str, int] = {}
        self._book = book
        self._currency = currency
        self._rates: dict[tuple[object, ...], Rates | None] = {}
        self._by_card: dict[tuple[str, Decimal], Rates] = {}

    def session(self, session: Session) -> Judged:
        """Try every policy on a session."""
        work = _Session(self.policies)
        for lane in session.lanes().values():
            for call, usage, turn in self._turns(lane):
                rates = self._rates_of(call, usage)
                if rates is None:
                    self._leave_out("no_rates")
                else:
                    work.add(call, usage, turn, rates)
        return work.judged()

    def _turns(self, lane: Sequence[Call]) -> Iterator[tuple[Call, Usage, Turn]]:
        fit: list[tuple[Call, Usage, float]] = []
        for call in lane:
            usage, at = call.usage, call.at
            reason = _unfit(call, usage, at)
            if reason is not None or usage is None or at is None:
                self._leave_out(reason or "no_usage")
            else:
                fit.append((call, usage, at))
        return turns(fit)

    def _leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def _rates_of(self, call: Call, usage: Usage) -> Rates | None:
        at = None if call.relative_time else call.at
        key: tuple[object, ...] = (
            call.provider,
            call.model,
            call.surface,
            usage.speed,
            usage.service_tier,
            usage.inference_geo,
            None if at is None else at // _DAY,
            usage.dialect,
        )
        if key in self._rates:
            found = self._rates[key]
            if found is not None or self._book is None:
                return found
        if self._is_tiered(call, usage):
            return self._look_up(call, usage)
        found = self._rates[key] = self._look_up(call, usage)
        return found

    def _is_tiered(self, call: Call, usage: Usage) -> bool:
        return self._book is not None and self._book.is_tiered(
            call.provider,
            call.model,
            surface=call.surface,
            speed=usage.speed,
            service_tier=usage.service_tier,
            geo=usage.inference_geo,
        )

    def _look_up(self, call: Call, usage: Usage) -> Rates | None:
        if self._book is not None:
            card = find_card(self._book, call, call.model, usage.prompt_size)
            if card is not None and card.uncached:
                key = (card.id, card.uncached)
                if key in self._by_card:
                    return self._by_card[key]
                read, short, long = card.read_ratio, card.write_ratio("5m"), card.write_ratio("1h")
                if read is not None and short is not None and long is not None:
                    unit = card.uncached if card.currency == self._currency else None
                    found = Rates(read, short, long, unit, card.output, card.web_search)
                    self._by_card[key] = found
                    return found
        known = default_multipliers(call.provider, usage.dialect)
        if known is None or known.read is None or not _SECONDS.keys() <= known.writes.keys():
            return None
        return Rates(known.read, known.writes["5m"], known.writes["1h"], None)


class _Session:
    """Sums of one session: by price row and day, as recorded and under each policy."""

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self._policies = policies
        self._sums: dict[tuple[int, int], tuple[Rates, list[Tokens]]] = {}
        self._calls = self._unpriced = self._expiries = self._rewritten = 0
        self._extra = ZERO

    def add(self, call: Call, usage: Usage, turn: Turn, rates: Rates) -> None:
        """Add one call."""
        at = None if call.relative_time else call.at
        when = _NO_DAY if at is None else int(at // _DAY)
        key = (id(rates), when)
        row = self._sums.get(key)
        if row is None:
            row = self._sums[key] = (rates, [Tokens() for _ in range(len(self._policies) + 1)])
        self._calls += 1
        self._unpriced += not self._add_extra(usage, rates)
        if turn.expired:
            self._expiries += 1
            self._rewritten += turn.repeated - turn.read
        sums = row[1]
        recorded = sums[0]
        recorded.uncached += turn.uncached
        recorded.read += turn.read
        recorded.long += usage.write_1h or 0
        recorded.short += turn.written - (usage.write_1h or 0)
        for policy, tokens in zip(self._policies, sums[1:], strict=True):
            _add(tokens, turn, policy.main if call.lane == "main" else policy.subagents)

    def _add_extra(self, usage: Usage, rates: Rates) -> bool:
        """Add what no lifetime changes: output, searches; say whether all has a price."""
        output, searches = usage.output, usage.web_searches
        if rates.unit is None or output is None or (output and rates.output is None):
            return False
        self._extra += output * (rates.output or ZERO)
        if searches:
            self._extra += searches * (rates.search or ZERO)
        return True

    def judged(self) -> Judged:
        """Price the sums."""
        recorded = self._total(0)
        billed = total_of(rates.price(sums[0]) for rates, sums in self._sums.values())
        billed = Saving(
            billed.input_equivalents, None if billed.cost is None else billed.cost + self._extra
        )
        return Judged(
            calls=self._calls,
            unpriced=self._unpriced,
            billed=billed,
            uncached_input=recorded.uncached,
            cache_read=recorded.read,
            cache_writes=_writes(recorded),
            expiries=self._expiries,
            rewritten=self._rewritten,
            policies=tuple(self._under(n + 1) for n in range(len(self._policies))),
        )

    def _total(self, index: int) -> Tokens:
        total = Tokens()
        for _, sums in self._sums.values():
            for name in Tokens.__slots__:
                setattr(total, name, getattr(total, name) + getattr(sums[index], name))
        return total

    def _under(self, index: int) -> UnderPolicy:
        saves, refresh_cost = Saving(), Saving()
        by_day: dict[int, Decimal] = {}
        is_priced = any(rates.unit is not None for rates, _ in self._sums.values())
        for (_, when), (rates, sums) in self._sums.items():
            saved = rates.price(sums[0]) - rates.price(sums[index])
            saves = plus(saves, saved)
            counted = saved.cost if is_priced else saved.input_equivalents
            by_day[when] = by_day.get(when, ZERO) + (counted or ZERO)
            spent = sums[index].again + sums[index].refreshed * rates.read
            refresh_cost = plus(refresh_cost, rates.of(spent))
        tokens = self._total(index)
        return UnderPolicy(
            saves=saves,
            by_day=by_day,
            uncached_input=tokens.uncached,
            cache_read=tokens.read,
            cache_writes=_writes(tokens),
            refreshes=tokens.refreshes,
            refresh_cost=refresh_cost,
            reads_gained=tokens.gained,
            reads_lost=tokens.lost,
        )


def turns(fit: Sequence[tuple[Call, Usage, float]]) -> Iterator[tuple[Call, Usage, Turn]]:
    """Read the calls of a lane, with their starts, as turns."""
    cached = 0
    lifetime = "5m"
    last = len(fit) - 1
    for index, (call, usage, at) in enumerate(fit):
        read, written = usage.cache_read or 0, usage.cache_write or 0
        gap: float | None = None
        repeated, expired = read, False
        if index:
            gap = max(0.0, at - fit[index - 1][2])
            if gap >= _SECONDS[lifetime] and _goes_on(call, fit[index - 1][0]):
                expired = min(cached, read + written) - read > _SMALL
                if expired and read + written >= cached:
                    # What a shorter prompt has in common with the one before is not known.
                    repeated = cached
        following = max(0.0, fit[index + 1][2] - at) if index < last else float("inf")
        uncached = usage.uncached_input or 0
        seconds = _SECONDS[lifetime]
        yield call, usage, Turn(uncached, read, written, repeated, expired, seconds, gap, following)
        cached = read + written
        lifetime = "1h" if usage.write_1h else "5m" if usage.write_5m else lifetime


def _goes_on(call: Call, before: Call) -> bool:
    """Whether a call continues the conversation of the one before."""
    if call.model != before.model:
        return False
    return not (call.boundaries and any(b.kind in _BROKEN for b in call.boundaries))


def _unfit(call: Call, usage: Usage | None, at: float | None) -> str | None:
    if usage is None or usage.uncached_input is None or usage.cache_read is None:
        return "no_usage"
    if usage.parts or call.requests != 1:
        return "several_passes"
    if call.purpose == "keep_alive":
        return "refreshes"
    if at is None:
        return "no_start_time"
    if usage.cache_write is None or usage.write_30m or usage.write_12h:
        return "no_choice_of_lifetime"
    return None


def _add(tokens: Tokens, turn: Turn, setting: Setting) -> None:
    """Add one call to a policy's sums."""
    parts = under(turn, setting)
    tokens.uncached += parts.uncached
    tokens.read += parts.read
    if setting.lifetime == "1h":
        tokens.long += parts.written
    else:
        tokens.short += parts.written
    tokens.gained += parts.read > turn.read
    tokens.lost += parts.read < turn.read
    if setting.keep_alive:
        sent = refreshes_after(turn, setting)
        prefix = turn.read + turn.written
        tokens.refreshes += sent
        tokens.refreshed += sent * prefix
        tokens.read += sent * prefix
        tokens.again += sent * turn.uncached
        tokens.uncached += sent * turn.uncached


def under(turn: Turn, setting: Setting) -> Parts:
    """Tokens of a call under a setting."""
    if setting.lifetime == "none":
        return Parts(turn.uncached + turn.read + turn.written, 0, 0)
    if _is_there(turn, setting):
        more = turn.repeated - turn.read
        if not more:
            return Parts(turn.uncached, turn.read, turn.written)
        written = max(0, turn.written - more)
        total = turn.uncached + turn.read + turn.written
        return Parts(total - turn.repeated - written, turn.repeated, written)
    return Parts(turn.uncached, 0, turn.read + turn.written)


def _is_there(turn: Turn, setting: Setting) -> bool:
    """Whether what the call before wrote or read can still be read."""
    lifetime = _SECONDS[setting.lifetime]
    if turn.gap is None or turn.gap < lifetime:
        return True
    if not turn.expired and lifetime >= turn.lifetime:
        return True
    every = _EVERY[setting.lifetime]
    return turn.gap - every * _count(turn.gap, setting, every) < lifetime


def refreshes_after(turn: Turn, setting: Setting) -> int:
    """Count the refreshes between a call and the next, or until the cap after the last one."""
    if not setting.keep_alive or not (turn.read or turn.written):
        return 0
    return _count(turn.following, setting, _EVERY[setting.lifetime])


def _count(pause: float, setting: Setting, every: float) -> int:
    """Refreshes within a pause; at the very moment of the next call none is needed."""
    if not setting.keep_alive:
        return 0
    whole = int(min(pause, setting.cap) // every)
    return whole - 1 if whole and whole * every >= pause else whole


def _writes(tokens: Tokens) -> dict[str, int]:
    return {ttl: n for ttl, n in (("5m", tokens.short), ("1h", tokens.long)) if n}


def plus(a: Saving, b: Saving) -> Saving:
    """Add what is known; a call without a price counts in input equivalents only."""
    return Saving(
        (a.input_equivalents or ZERO) + (b.input_equivalents or ZERO),
        (a.cost or ZERO) + (b.cost or ZERO),
    )


def total_of(savings: Iterator[Saving]) -> Saving:
    """Add up what is known."""
    found = Saving()
    for saving in savings:
        found = plus(found, saving)
    return found


def day_name(number: int) -> str:
    """Write a day as people do."""
    return "unknown" if number == _NO_DAY else day(number * _DAY).isoformat()

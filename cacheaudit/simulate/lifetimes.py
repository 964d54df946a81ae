"""One session under other lifetime settings, from sizes and times alone.

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
from cacheaudit.simulate.edits.keep_alive import pings_worth
from cacheaudit.simulate.policy import Policy, Setting
from cacheaudit.simulate.turns import (
    SECONDS,
    SHORTEST,
    SOONEST,
    Figures,
    Turn,
    is_plain,
    refreshes_after,
    turns,
    under,
    unfit,
)

_DAY: Final = 86_400
_NO_DAY: Final = -1
_NEVER: Final = float("inf")
_Service = tuple[str | None, str | None, str | None, str | None, str | None, str | None, str, bool]
"""What prices of a call depend on, its day and size apart."""


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
    """Prices of one token relative to ordinary input, and of that in money.

    ``most_short`` and ``most_long``: refreshes that cost less than writing again.
    """

    read: Decimal
    short: Decimal
    long: Decimal
    unit: Decimal | None
    output: Decimal | None = None
    search: Decimal | None = None
    most_short: int = 0
    most_long: int = 0

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
        ideal: The same calls if each had read all that it can share with the one before it, and
            nothing had been written in vain: no setting does better.
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
    ideal: UnderPolicy


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
        self._rates: dict[tuple[_Service, int], Rates | None] = {}
        self._by_card: dict[tuple[str, Decimal], Rates] = {}

    def session(self, session: Session) -> Judged:
        """Try every policy on a session."""
        work = _Session(self.policies)
        for lane in session.lanes().values():
            fit = self._fit(lane)
            row: _Row | None = None
            known: _Service | None = None
            begins = ends = 0.0
            for (call, usage, at), turn in zip(fit, turns(fit), strict=True):
                service = (
                    call.provider,
                    call.model,
                    call.surface,
                    usage.speed,
                    usage.service_tier,
                    usage.inference_geo,
                    usage.dialect,
                    call.relative_time,
                )
                if service != known or not begins <= at < ends:  # most calls are as the one before
                    day, begins, ends = _day_of(call, at)
                    rates, holds = self._rates_of(call, usage, (service, day))
                    known = service if holds else None
                    row = None if rates is None else work.row(rates, day, call.lane == "main")
                if row is None:
                    self._leave_out("no_rates")
                else:
                    work.add(row, usage, turn)
        return work.judged()

    def _fit(self, lane: Sequence[Call]) -> list[tuple[Call, Usage, float]]:
        """Pick the calls that can be judged, each with its usage and start."""
        fit: list[tuple[Call, Usage, float]] = []
        for call in lane:
            usage, at = call.usage, call.at
            if usage is None or at is None or not is_plain(call, usage):
                reason = unfit(call, usage, at)
                if reason is not None or usage is None or at is None:
                    self._leave_out(reason or "no_usage")
                    continue
            fit.append((call, usage, at))
        return fit

    def _leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def _rates_of(
        self, call: Call, usage: Usage, key: tuple[_Service, int]
    ) -> tuple[Rates | None, bool]:
        """Find the rates of a call, and say whether they hold for all calls of its service and day.

        They do not where they depend on the size of the prompt.
        """
        found = self._rates.get(key)
        if found is None and (self._book is not None or key not in self._rates):
            found = self._look_up(call, usage)
            if self._is_tiered(call, usage):
                return found, False
            self._rates[key] = found
        return found, found is not None

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
                    found = _rates(read, short, long, unit, card.output, card.web_search)
                    self._by_card[key] = found
                    return found
        known = default_multipliers(call.provider, usage.dialect)
        if known is None or known.read is None or not SECONDS.keys() <= known.writes.keys():
            return None
        return _rates(known.read, known.writes["5m"], known.writes["1h"], None)


def _rates(
    read: Decimal,
    short: Decimal,
    long: Decimal,
    unit: Decimal | None,
    output: Decimal | None = None,
    search: Decimal | None = None,
) -> Rates:
    most = [pings_worth(write, read) if read else 0 for write in (short, long)]
    return Rates(read, short, long, unit, output, search, *most)


class _Row:
    """Sums of one price row, one day, one kind of lane.

    ``quiet`` holds the calls that no setting treats otherwise: no pause before or after them is
    long enough to lose or refresh anything; only the price of what they wrote differs. ``loud``
    holds the others.
    """

    __slots__ = (
        "day", "ideal", "is_priced", "loud", "output", "policies", "quiet", "rates", "searches",
        "settings",
    )  # fmt: skip

    def __init__(self, rates: Rates, day: int, settings: Sequence[Setting]) -> None:
        self.rates = rates
        self.is_priced = rates.unit is not None
        self.day = day
        self.loud = Tokens()
        self.ideal = Tokens()
        self.quiet = Tokens()
        self.settings = settings
        self.policies = [Tokens() for _ in settings]
        self.output = self.searches = 0

    def recorded(self) -> Tokens:
        """All calls as they were."""
        return _total((self.quiet, self.loud))

    def extra(self) -> Decimal:
        """Price what no lifetime changes."""
        rates = self.rates
        return self.output * (rates.output or ZERO) + self.searches * (rates.search or ZERO)


class _Session:
    """Sums of one session: by price row, day and lane, as recorded and under each policy."""

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self._policies = policies
        self._rows: dict[tuple[int, int, bool], _Row] = {}
        self._calls = self._unpriced = self._expiries = self._rewritten = 0

    def row(self, rates: Rates, day: int, is_main: bool) -> _Row:
        """Return the sums of a price row, a day and a kind of lane."""
        key = (id(rates), day, is_main)
        row = self._rows.get(key)
        if row is None:
            settings = [p.main if is_main else p.subagents for p in self._policies]
            row = self._rows[key] = _Row(rates, day, settings)
        return row

    def add(self, row: _Row, usage: Usage, figures: Figures) -> None:
        """Add one call."""
        self._calls += 1
        output = usage.output
        if output is None or not row.is_priced or (output and row.rates.output is None):
            self._unpriced += 1
        else:
            row.output += output
            row.searches += usage.web_searches or 0
        uncached, read, written, long, _, _, _, _, gap, following, shared = figures
        ideal = row.ideal
        ideal.read += shared
        # Of what is new, only what a later call repeats is worth writing.
        new = uncached + read + written - shared
        if following == _NEVER:
            ideal.uncached += new
        else:
            ideal.short += new
        is_quiet = following < SOONEST and (gap is None or gap < SHORTEST)
        recorded = row.quiet if is_quiet else row.loud
        recorded.uncached += uncached
        recorded.read += read
        recorded.long += long
        recorded.short += written - long
        if read:
            recorded.gained += 1
        if is_quiet:
            return
        turn = Turn(*figures)
        if turn.expired:
            self._expiries += 1
            self._rewritten += turn.repeated - turn.read
        for setting, tokens in zip(row.settings, row.policies, strict=True):
            _add(tokens, turn, setting, row.rates)

    def judged(self) -> Judged:
        """Price the sums."""
        for row in self._rows.values():
            for setting, tokens in zip(row.settings, row.policies, strict=True):
                _add_quiet(tokens, row.quiet, setting)
        rows = [(row, row.recorded()) for row in self._rows.values()]
        billed = total_of(row.rates.price(tokens) for row, tokens in rows)
        extra = sum((row.extra() for row, _ in rows), ZERO)
        recorded = _total([tokens for _, tokens in rows])
        return Judged(
            calls=self._calls,
            unpriced=self._unpriced,
            billed=Saving(billed.input_equivalents, (billed.cost or ZERO) + extra),
            uncached_input=recorded.uncached,
            cache_read=recorded.read,
            cache_writes=_writes(recorded),
            expiries=self._expiries,
            rewritten=self._rewritten,
            policies=tuple(
                _against([(row, was, row.policies[n]) for row, was in rows])
                for n in range(len(self._policies))
            ),
            ideal=_against([(row, was, row.ideal) for row, was in rows]),
        )


def _against(parts: Sequence[tuple[_Row, Tokens, Tokens]]) -> UnderPolicy:
    """Compare what was recorded with what would have been, price row by price row."""
    saves, refresh_cost = Saving(), Saving()
    by_day: dict[int, Decimal] = {}
    is_priced = any(row.rates.unit is not None for row, _, _ in parts)
    for row, was, mine in parts:
        rates, when = row.rates, row.day
        saved = rates.price(was) - rates.price(mine)
        saves = plus(saves, saved)
        counted = saved.cost if is_priced else saved.input_equivalents
        by_day[when] = by_day.get(when, ZERO) + (counted or ZERO)
        if mine.refreshes:
            refresh_cost = plus(refresh_cost, rates.of(mine.again + mine.refreshed * rates.read))
    tokens = _total([mine for _, _, mine in parts])
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


def _add_quiet(tokens: Tokens, quiet: Tokens, setting: Setting) -> None:
    """Add the calls that differ by the price of their writes only."""
    written = quiet.short + quiet.long
    tokens.uncached += quiet.uncached
    if setting.lifetime == "none":
        tokens.uncached += quiet.read + written
        # Here ``gained`` counts the calls that read anything at all.
        tokens.lost += quiet.gained
        return
    long = {"1h": written, "recorded": quiet.long}.get(setting.lifetime, 0)
    tokens.read += quiet.read
    tokens.long += long
    tokens.short += written - long


def _total(parts: Sequence[Tokens]) -> Tokens:
    """Add sums up; the result is for reading only."""
    if len(parts) == 1:
        return parts[0]
    total = Tokens()
    for tokens in parts:
        for name in Tokens.__slots__:
            setattr(total, name, getattr(total, name) + getattr(tokens, name))
    return total


def _day_of(call: Call, at: float) -> tuple[int, float, float]:
    """Number the day of a call, and say when it begins and ends."""
    if call.relative_time:
        return _NO_DAY, -_NEVER, _NEVER
    number = int(at // _DAY)
    return number, number * _DAY, (number + 1) * _DAY


def _add(tokens: Tokens, turn: Turn, setting: Setting, rates: Rates) -> None:
    """Add one call to a policy's sums."""
    is_long = setting.lifetime == "1h" or (setting.lifetime == "recorded" and turn.long)
    most = rates.most_long if is_long else rates.most_short
    parts = under(turn, setting, most)
    tokens.uncached += parts.uncached
    tokens.read += parts.read
    tokens.long += parts.long
    tokens.short += parts.written - parts.long
    tokens.gained += parts.read > turn.read
    tokens.lost += parts.read < turn.read
    if setting.keep_alive:
        sent = refreshes_after(turn, setting, most)
        prefix = turn.read + turn.written
        tokens.refreshes += sent
        tokens.refreshed += sent * prefix
        tokens.read += sent * prefix
        tokens.again += sent * turn.uncached
        tokens.uncached += sent * turn.uncached


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

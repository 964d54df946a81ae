"""Lifetime settings tried on a whole history, from sizes and times alone.

Each lane is followed call by call. What a call repeats of the one before it is known from the
sizes; whether it was read, or lost to a pause, from the record. Under another setting a pause that
the entry outlives is a read instead of a write, one that it does not outlive a write instead of a
read, and everything written costs what the other lifetime costs. What was lost for other reasons
stays lost, and what was read stays read under the same lifetime or a longer one.

One session is in memory at a time; what is kept are sums, one of them a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from cacheaudit.model.call import Call, Session
from cacheaudit.model.clock import day
from cacheaudit.model.money import ZERO
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.cost import price_call
from cacheaudit.pricing.equivalents import default_multipliers, find_card
from cacheaudit.simulate.bill import Saving
from cacheaudit.simulate.edits.keep_alive import refresh_after
from cacheaudit.simulate.policy import Policy, Setting

_SECONDS: Final = {"5m": 300.0, "1h": 3600.0}
_BROKEN: Final = frozenset({"compaction", "clear", "branch"})
# Less is rounding at a marker, not a lost prefix.
_SMALL: Final = 1024


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call as its sizes tell it.

    Attributes:
        call: The call.
        usage: Its usage.
        uncached: Tokens sent uncached.
        read: Tokens read.
        written: Tokens written.
        repeated: Tokens that it shares with the cached part of the call before it.
        expired: Some were lost to a pause longer than the lifetime then in force.
        lifetime: That lifetime, in seconds.
        gap: Seconds since the start of the call before it; ``None`` for the first of a lane.
        following: Seconds to the start of the next call; ``None`` for the last.
    """

    call: Call
    usage: Usage
    uncached: int
    read: int
    written: int
    repeated: int
    expired: bool
    lifetime: float
    gap: float | None
    following: float | None

    @property
    def cached(self) -> int:
        """Tokens that could be read by the next call."""
        return self.read + self.written


class Parts(msgspec.Struct, frozen=True):
    """Tokens of a call under a setting."""

    uncached: int
    read: int
    written: int
    lifetime: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One policy over a history.

    Attributes:
        policy: As written.
        cost: What all calls that have a choice would have cost, refreshes included.
        saves: Against what was billed; negative where it would have cost more.
        sessions: Sessions with a choice.
        lost_sessions: Sessions that it would have made dearer.
        won_sessions: Sessions that it would have made cheaper.
        days: Days with a call that has a choice.
        lost_days: Days that it would have made dearer.
        worst_session: Session that it would have cost most, and what.
        worst: What that session would have lost; negative.
        refreshes: Refreshes sent.
        refresh_cost: What they cost; contained in ``cost``.
        reads_gained: Calls that would have read what they wrote again after a pause.
        reads_lost: Calls that would have written again what they read.
    """

    policy: str
    cost: Saving
    saves: Saving
    sessions: int
    lost_sessions: int
    won_sessions: int
    days: int
    lost_days: int
    worst_session: str | None
    worst: Saving
    refreshes: int
    refresh_cost: Saving
    reads_gained: int
    reads_lost: int


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """Policies over a history.

    Attributes:
        sessions: Sessions read.
        calls: Calls read.
        judged_calls: Calls that have a choice of lifetime and whose sizes and times are known.
        left_out: Why the others were left out, with how many.
        unpriced_calls: Judged calls without a price: they count in input equivalents only.
        billed: What the judged calls were billed.
        expiries: Calls that lost their prefix to a pause.
        rewritten: Tokens that those wrote again.
        currency: Currency of all money here; calls billed in another count as unpriced.
        outcomes: One a policy, in the order given.
    """

    sessions: int
    calls: int
    judged_calls: int
    left_out: dict[str, int]
    unpriced_calls: int
    billed: Saving
    expiries: int
    rewritten: int
    currency: str
    outcomes: tuple[Outcome, ...]


def backtest(
    history: Iterable[Session],
    policies: Sequence[Policy],
    book: PriceBook | None = None,
    currency: str = "USD",
) -> Backtest:
    """Try policies on a history.

    Args:
        history: Sessions; read once.
        policies: What to try.
        book: Prices; without them sums are input equivalents only.
        currency: Currency that money is summed in.
    """
    work = _Work(policies, book, currency)
    for session in history:
        work.take(session)
    return work.result()


class _Rates(msgspec.Struct, frozen=True):
    """Prices of one token, relative to ordinary input and in money."""

    uncached: Decimal
    read: Decimal
    writes: dict[str, Decimal]
    unit: Decimal | None

    def price(self, parts: Parts) -> Saving:
        """Price the input side of a call."""
        weight = parts.uncached + parts.read * self.read
        if parts.written:
            weight += parts.written * self.writes[parts.lifetime]
        return Saving(weight, None if self.unit is None else weight * self.unit)


class _Trial:
    """One policy's sums."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.cost = Saving()
        self.refreshes = 0
        self.refresh_cost = Saving()
        self.gained = self.lost = 0
        self.lost_sessions = self.won_sessions = 0
        self.days: dict[str, Decimal] = {}
        self.worst: tuple[Decimal, str | None, Saving] = (ZERO, None, Saving())
        self.session = Saving()

    def close(self, name: str) -> None:
        """End a session."""
        rank = self.session.rank
        self.lost_sessions += rank < 0
        self.won_sessions += rank > 0
        if rank < self.worst[0]:
            self.worst = (rank, name, self.session)
        self.session = Saving()


class _Work:
    def __init__(self, policies: Sequence[Policy], book: PriceBook | None, currency: str) -> None:
        self._book = book
        self._currency = currency
        self._trials = [_Trial(policy) for policy in policies]
        self._sessions = self._judged_sessions = self._calls = self._judged = self._unpriced = 0
        self._left_out: dict[str, int] = {}
        self._billed = Saving()
        self._expiries = self._rewritten = 0
        self._no_prices = PriceBook()

    def take(self, session: Session) -> None:
        """Add one session."""
        self._sessions += 1
        self._calls += len(session.calls)
        judged = 0
        for lane in session.lanes().values():
            for step in self._steps(lane):
                judged += self._judge(step)
        if judged:
            self._judged_sessions += 1
            for trial in self._trials:
                trial.close(session.id)

    def _steps(self, lane: list[Call]) -> list[Step]:
        steps, left_out = follow(lane)
        for reason, count in left_out.items():
            self._left_out[reason] = self._left_out.get(reason, 0) + count
        return steps

    def _judge(self, step: Step) -> bool:
        rates = self._rates(step)
        if rates is None:
            self._left_out["no_rates"] = self._left_out.get("no_rates", 0) + 1
            return False
        self._judged += 1
        if step.expired:
            self._expiries += 1
            self._rewritten += step.repeated - step.read
        whole = self._whole(step.call)
        if whole is None or rates.unit is None:
            rates, whole = msgspec.structs.replace(rates, unit=None), None
            self._unpriced += self._book is not None
        recorded = _recorded(step, rates)
        paid = Saving(recorded.input_equivalents, whole)
        self._billed = _add(self._billed, paid)
        moment = step.call.at
        when = "unknown" if moment is None or step.call.relative_time else day(moment).isoformat()
        for trial in self._trials:
            _try(trial, step, rates, recorded, paid, when)
        return True

    def _whole(self, call: Call) -> Decimal | None:
        """What the call was billed in all, output included."""
        if self._book is None:
            return None
        cost = price_call(call, self._book)
        return cost.amount if cost.currency == self._currency else None

    def _rates(self, step: Step) -> _Rates | None:
        call, usage = step.call, step.usage
        card = None
        if self._book is not None:
            card = find_card(self._book, call, call.model, usage.prompt_size)
        known = default_multipliers(call.provider, usage.dialect)
        if card is not None and card.uncached:
            writes = {ttl: card.write_ratio(ttl) for ttl in _SECONDS}
            read = card.read_ratio
            priced = {ttl: ratio for ttl, ratio in writes.items() if ratio is not None}
            if read is not None and len(priced) == len(_SECONDS):
                return _Rates(Decimal(1), read, priced, card.uncached)
        if known is None or known.read is None or not _SECONDS.keys() <= known.writes.keys():
            return None
        return _Rates(Decimal(1), known.read, known.writes, None)

    def result(self) -> Backtest:
        """Close all sums."""
        return Backtest(
            sessions=self._sessions,
            calls=self._calls,
            judged_calls=self._judged,
            left_out=dict(sorted(self._left_out.items())),
            unpriced_calls=self._unpriced,
            billed=self._money(self._billed),
            expiries=self._expiries,
            rewritten=self._rewritten,
            currency=self._currency,
            outcomes=tuple(self._outcome(trial) for trial in self._trials),
        )

    def _outcome(self, trial: _Trial) -> Outcome:
        return Outcome(
            policy=trial.policy.name,
            cost=self._money(trial.cost),
            saves=self._money(self._billed - trial.cost),
            sessions=self._judged_sessions,
            lost_sessions=trial.lost_sessions,
            won_sessions=trial.won_sessions,
            days=len(trial.days),
            lost_days=sum(saved < 0 for saved in trial.days.values()),
            worst_session=trial.worst[1],
            worst=self._money(trial.worst[2]),
            refreshes=trial.refreshes,
            refresh_cost=self._money(trial.refresh_cost),
            reads_gained=trial.gained,
            reads_lost=trial.lost,
        )

    def _money(self, amounts: Saving) -> Saving:
        """Leave money out where no call has a price."""
        if self._book is None or self._unpriced == self._judged:
            return Saving(amounts.input_equivalents, None)
        return amounts


def follow(lane: Sequence[Call]) -> tuple[list[Step], dict[str, int]]:
    """Read a lane's calls as steps.

    Returns:
        The steps, and why other calls were left out, with how many.
    """
    steps: list[Step] = []
    left_out: dict[str, int] = {}
    before: Step | None = None
    lifetime = "5m"
    for call in lane:
        reason = _unfit(call)
        if reason is not None or call.usage is None:
            name = reason or "no_usage"
            left_out[name] = left_out.get(name, 0) + 1
            continue
        step = _step(call, call.usage, before, _SECONDS[lifetime])
        if before is not None:
            steps[-1] = msgspec.structs.replace(steps[-1], following=step.gap)
        steps.append(step)
        before = step
        usage = call.usage
        lifetime = "1h" if usage.write_1h else "5m" if usage.write_5m else lifetime
    return steps, left_out


def _unfit(call: Call) -> str | None:
    usage = call.usage
    if usage is None or not usage.is_split_known:
        return "no_usage"
    if usage.parts or call.requests != 1:
        return "several_passes"
    if call.purpose == "keep_alive":
        return "refreshes"
    if call.at is None:
        return "no_start_time"
    if usage.cache_write is None or usage.write_30m or usage.write_12h:
        return "no_choice_of_lifetime"
    return None


def _step(call: Call, usage: Usage, before: Step | None, lifetime: float) -> Step:
    read, written = usage.cache_read or 0, usage.cache_write or 0
    gap: float | None = None
    repeated, expired = read, False
    if before is not None and before.call.at is not None and call.at is not None:
        gap = max(0.0, call.at - before.call.at)
        grown = read + written >= before.cached
        intact = not any(boundary.kind in _BROKEN for boundary in call.boundaries)
        same = call.model == before.call.model
        lost = min(before.cached, read + written) - read
        expired = intact and same and gap >= lifetime and lost > _SMALL
        if expired and grown:
            # What a shorter prompt has in common with the one before it is not known: nothing.
            repeated = before.cached
    return Step(
        call=call,
        usage=usage,
        uncached=usage.uncached_input or 0,
        read=read,
        written=written,
        repeated=repeated,
        expired=expired,
        lifetime=lifetime,
        gap=gap,
        following=None,
    )


def _try(
    trial: _Trial, step: Step, rates: _Rates, recorded: Saving, paid: Saving, when: str
) -> None:
    """Add one call to a policy's sums."""
    setting = trial.policy.of(step.call)
    parts = under(step, setting)
    trial.gained += parts.read > step.read
    trial.lost += parts.read < step.read
    cost = paid + (rates.price(parts) - recorded)
    refreshes = refreshes_after(step, setting)
    if refreshes:
        one = rates.price(Parts(step.uncached, step.cached, 0, setting.lifetime))
        extra = _times(one, refreshes)
        trial.refreshes += refreshes
        trial.refresh_cost = _add(trial.refresh_cost, extra)
        cost = cost + extra
    trial.cost = _add(trial.cost, cost)
    saved = paid - cost
    trial.session = _add(trial.session, saved)
    trial.days[when] = trial.days.get(when, ZERO) + saved.rank


def under(step: Step, setting: Setting) -> Parts:
    """Tokens of a call under a setting."""
    total = step.uncached + step.read + step.written
    if setting.lifetime == "none":
        return Parts(total, 0, 0, "none")
    if _is_there(step, setting):
        more = step.repeated - step.read
        written = max(0, step.written - more)
        return Parts(total - step.repeated - written, step.repeated, written, setting.lifetime)
    return Parts(step.uncached, 0, step.read + step.written, setting.lifetime)


def _is_there(step: Step, setting: Setting) -> bool:
    """Whether what the call before wrote or read can still be read."""
    lifetime = _SECONDS[setting.lifetime]
    if step.gap is None or (not step.expired and lifetime >= step.lifetime):
        return True
    every = refresh_after(lifetime)
    return step.gap - every * _count(step.gap, setting, every) < lifetime


def refreshes_after(step: Step, setting: Setting) -> int:
    """Count the refreshes between a call and the next, or until the cap after the last one."""
    if not setting.keep_alive or not step.cached:
        return 0
    pause = float("inf") if step.following is None else step.following
    return _count(pause, setting, refresh_after(_SECONDS[setting.lifetime]))


def _count(pause: float, setting: Setting, every: float) -> int:
    """Refreshes within a pause; at the very moment of the next call none is needed."""
    if not setting.keep_alive:
        return 0
    whole = int(min(pause, setting.cap) // every)
    return whole - 1 if whole and whole * every >= pause else whole


def _recorded(step: Step, rates: _Rates) -> Saving:
    usage = step.usage
    long = usage.write_1h or 0
    short = Parts(step.uncached, step.read, step.written - long, "5m")
    return rates.price(short) + rates.price(Parts(0, 0, long, "1h"))


def _add(a: Saving, b: Saving) -> Saving:
    """Add what is known; a call without a price counts in input equivalents only."""
    return Saving(
        (a.input_equivalents or ZERO) + (b.input_equivalents or ZERO),
        (a.cost or ZERO) + (b.cost or ZERO),
    )


def _times(amounts: Saving, count: int) -> Saving:
    weight, cost = amounts.input_equivalents, amounts.cost
    return Saving(
        None if weight is None else weight * count, None if cost is None else cost * count
    )

"""Plays recorded calls through their providers' cache machines and compares with what was billed.

Calls of all sessions and lanes are merged in order of their start: one workspace has one cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from cacheaudit.model.call import Call, Session
from cacheaudit.model.usage import TTLS, Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.cost import price_call
from cacheaudit.pricing.equivalents import call_input_equivalents
from cacheaudit.providers.facts import RULES_VERSION, Rules
from cacheaudit.simulate.build import Builder, Refusal, in_order
from cacheaudit.simulate.machine import Machine, kind
from cacheaudit.simulate.request import Outcome, SimRequest, is_sketch
from cacheaudit.simulate.sizes import Known, SizesLanes, told_of
from cacheaudit.simulate.switches import Switches

Mode = Literal["bodies", "sizes", "none"]
_WRITES: Final[dict[str, str]] = {ttl: f"write_{ttl}" for ttl in TTLS}
_PARTS: Final = ("total_input", "uncached_input", "cache_read")
_WRITE: Final = "cache_write"


class SimCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, predicted and reported.

    Attributes:
        id: Call id.
        session: Session of the call.
        lane: Lane of the call.
        mode: What the prediction rests on: ``bodies``, or ``sizes`` alone.
        predicted: What the cache should have done; ``None`` where that cannot be said.
        reported: What was billed.
        exact: The predicted read equals the reported one.
        exact_writes: The predicted writes equal the reported ones, all lifetimes together;
            ``None`` where one of them is not known.
        error_tokens: Predicted read minus reported read; ``None`` where one is not known.
        refused: Why nothing is predicted.
        detail: What exactly is missing.
        sized: Where the sizes of content blocks come from: ``recorded``, ``calibrated`` on the
            recorded total, ``estimated``.
    """

    id: str
    session: str = ""
    lane: str = "main"
    mode: Mode = "none"
    predicted: Outcome | None = None
    reported: Usage | None = None
    exact: bool = False
    exact_writes: bool | None = None
    error_tokens: int | None = None
    refused: str | None = None
    detail: str = ""
    sized: str | None = None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the calls that have a prediction; ``None`` where no call tells a part.

    Attributes:
        calls: How many those are.
        total_input: Input tokens.
        uncached_input: Neither read nor written.
        cache_read: Read.
        cache_write: Written, by lifetime.
        input_equivalents: In ordinary input tokens; ``None`` where a multiplier is not known.
        cost: In ``currency``; ``None`` where a price is not known.
        currency: ISO code.
        unknown_calls: Calls that do not tell a part, by its name: the sum is a lower bound.
    """

    calls: int = 0
    total_input: int | None = None
    uncached_input: int | None = None
    cache_read: int | None = None
    cache_write: dict[str, int] | None = None
    input_equivalents: Decimal | None = None
    cost: Decimal | None = None
    currency: str = "USD"
    unknown_calls: dict[str, int] = {}

    @property
    def hit_ratio(self) -> Decimal | None:
        """Tokens read of all input tokens, to four places."""
        if not self.total_input or self.cache_read is None:
            return None
        return (Decimal(self.cache_read) / self.total_input).quantize(Decimal("0.0001"))


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How well predictions and reports agree.

    Attributes:
        calls: Calls with a predicted and a reported read.
        exact_calls: Those where both are equal.
        exact_writes: Those where writes are equal too.
        mean_abs_error_tokens: Mean distance of the reads.
        unexplained_tokens: Tokens that should have been read and were not.
        surplus_tokens: Tokens that were read and should not have been.
        refused: Calls without a prediction, by reason.
    """

    calls: int = 0
    exact_calls: int = 0
    exact_writes: int = 0
    mean_abs_error_tokens: float | None = None
    unexplained_tokens: int = 0
    surplus_tokens: int = 0
    refused: dict[str, int] = {}


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run.

    Attributes:
        calls: One entry a call, in order of start.
        totals: What the predictions add up to.
        reported: What was billed for the same calls.
        accuracy: How well both agree.
        rules_version: Day of the newest fact.
        switches: Disputed rules that were set to something else than their default.
        assumed: Facts in use that rest on one secondary source or on inference, as
            ``model: fact``.
    """

    calls: tuple[SimCall, ...]
    totals: Totals
    reported: Totals
    accuracy: Accuracy
    rules_version: str = RULES_VERSION
    switches: dict[str, str] = {}
    assumed: tuple[str, ...] = ()

    def by_id(self) -> dict[str, SimCall]:
        """Index the calls by id."""
        return {call.id: call for call in self.calls}


def run(
    calls: Session | Iterable[Session] | Iterable[Call],
    book: PriceBook | None = None,
    *,
    switches: Switches | None = None,
    known: Mapping[str, Known] | None = None,
) -> Simulated:
    """Simulate calls.

    Args:
        calls: A session, several, or calls; in any order.
        book: Prices for the totals; without it they hold tokens only.
        switches: Disputed rules.
        known: For calls without a body: what is known of them besides their sizes, by call id.
    """
    ordered = in_order(calls)
    player = Player(switches or Switches(), known)
    rows = tuple(player.play(call) for call in ordered)
    return Simulated(
        calls=rows,
        totals=_totals(ordered, rows, book, predicted=True),
        reported=_totals(ordered, rows, book, predicted=False),
        accuracy=accuracy(rows),
        switches=player.switches.changed(),
        assumed=tuple(sorted(player.assumed)),
    )


class Player:
    """Caches of all providers, fed call by call in order of start.

    Args:
        switches: Disputed rules.
        known: As for :func:`run`.
    """

    def __init__(self, switches: Switches, known: Mapping[str, Known] | None = None) -> None:
        self.switches = switches
        self.assumed: set[str] = set()
        self._builder = Builder(switches)
        self._sizes = SizesLanes(known or {})
        self._machines: dict[str, Machine] = {}
        self._rules: dict[int, tuple[Rules, Any]] = {}

    def play(self, call: Call) -> SimCall:
        """Predict one call."""
        if call.prompt is None:
            return self._from_sizes(call)
        built = self._builder.build(call)
        if isinstance(built, Refusal):
            return _refused(call, built)
        outcome = self.step(built.request, built.rules)
        if built.doubt is not None:
            return _refused(call, built.doubt)
        mode: Mode = "sizes" if is_sketch(call.prompt) else "bodies"
        return _compared(call, outcome, mode, built.sized)

    def _from_sizes(self, call: Call) -> SimCall:
        told = told_of(call)
        if isinstance(told, Refusal):
            return _refused(call, told)
        built = self._sizes.build(call, told)
        outcome = self.step(built.request, built.rules)
        if built.doubt is not None:
            return _refused(call, built.doubt)
        return _compared(call, outcome, "sizes", built.sized)

    def step(self, request: SimRequest, facts: Rules) -> Outcome:
        """Feed one request to the machine that its facts name."""
        name = facts.machine or ""
        machine = self._machines.get(name)
        if machine is None:
            machine = self._machines[name] = kind(name).make()
        return machine.step(request, self._rules_for(facts))

    def _rules_for(self, facts: Rules) -> Any:
        found = self._rules.get(id(facts))
        if found is None:
            found = (facts, kind(facts.machine or "").rules(facts, self.switches))
            self._rules[id(facts)] = found  # holds the facts, so that the id stays theirs
            self.assumed.update(f"{facts.model}: {name}" for name in facts.weak())
        return found[1]


def usage_of(outcome: Outcome, reported: Usage | None = None) -> Usage:
    """Write a prediction as usage; output and modifiers are taken from the report."""
    base = reported or Usage()
    parts: dict[str, int | None] = dict.fromkeys(_WRITES.values(), 0)
    for ttl, tokens in outcome.writes.items():
        field = _WRITES.get(ttl, "write_other")
        parts[field] = (parts[field] or 0) + tokens
    return msgspec.structs.replace(
        base,
        total_input=outcome.read + outcome.written + outcome.uncached,
        uncached_input=outcome.uncached,
        cache_read=outcome.read,
        context_input=None,
        parts=(),
        write_other_ttl=None,
        flags=(),
        **parts,
    )


def _refused(call: Call, refusal: Refusal) -> SimCall:
    return SimCall(
        id=call.id,
        session=call.session,
        lane=call.lane,
        reported=call.usage,
        refused=refusal.reason,
        detail=refusal.detail,
    )


def _compared(call: Call, outcome: Outcome, mode: Mode, sized: str) -> SimCall:
    usage = call.usage
    read = None if usage is None or usage.parts else usage.cache_read
    written = None if usage is None or usage.parts else usage.cache_write
    if outcome.refused is not None:
        read = None
    error = None if read is None else outcome.read - read
    return SimCall(
        id=call.id,
        session=call.session,
        lane=call.lane,
        mode=mode,
        predicted=outcome,
        reported=usage,
        exact=error == 0,
        exact_writes=None if written is None or error is None else outcome.written == written,
        error_tokens=error,
        sized=sized,
    )


def accuracy(rows: Iterable[SimCall]) -> Accuracy:
    """Sum up how well predictions and reports agree."""
    errors: list[int] = []
    refused: Counter[str] = Counter()
    writes = 0
    for row in rows:
        if row.refused is not None:
            refused[row.refused] += 1
        elif row.error_tokens is not None:
            errors.append(row.error_tokens)
            writes += bool(row.exact and row.exact_writes)
    count = len(errors)
    return Accuracy(
        calls=count,
        exact_calls=errors.count(0),
        exact_writes=writes,
        mean_abs_error_tokens=round(sum(map(abs, errors)) / count, 1) if count else None,
        unexplained_tokens=sum(error for error in errors if error > 0),
        surplus_tokens=-sum(error for error in errors if error < 0),
        refused=dict(sorted(refused.items())),
    )


def _totals(
    calls: list[Call], rows: tuple[SimCall, ...], book: PriceBook | None, *, predicted: bool
) -> Totals:
    """Add up what was predicted, or what was reported for the same calls."""
    sums = _Sums(book)
    for call, row in zip(calls, rows, strict=True):
        outcome = row.predicted
        if outcome is None:
            continue
        if predicted and book is None:
            sums.outcome(outcome)
            continue
        usage = usage_of(outcome, row.reported) if predicted else row.reported
        if usage is not None:
            sums.usage(call, usage)
    return sums.totals()


class _Sums:
    """Running totals."""

    def __init__(self, book: PriceBook | None) -> None:
        self._book = book
        self._calls = 0
        self._counts = dict.fromkeys(_PARTS, 0)
        self._unknown: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()
        self._weight: Decimal | None = Decimal(0) if book is not None else None
        self._cost: Decimal | None = self._weight
        self._currency = ""

    def outcome(self, outcome: Outcome) -> None:
        """Add tokens alone."""
        self._calls += 1
        self._counts["uncached_input"] += outcome.uncached
        self._counts["cache_read"] += outcome.read
        self._counts["total_input"] += outcome.uncached + outcome.read + outcome.written
        for ttl, tokens in outcome.writes.items():
            self._writes[ttl] += tokens

    def usage(self, call: Call, usage: Usage) -> None:
        """Add one call's usage and what it costs."""
        self._calls += 1
        for part in _PARTS:
            value = getattr(usage, part)
            if value is None:
                self._unknown[part] += 1
            else:
                self._counts[part] += value
        if usage.cache_write is None:
            self._unknown[_WRITE] += 1
        for ttl, field in _WRITES.items():
            if tokens := getattr(usage, field):
                self._writes[ttl] += tokens
        if self._book is None:
            return
        priced = msgspec.structs.replace(call, usage=usage)
        self._weight = _plus(self._weight, call_input_equivalents(priced, self._book))
        bill = price_call(priced, self._book)
        same = self._currency in ("", bill.currency)
        self._cost = _plus(self._cost, bill.amount if same else None)
        self._currency = bill.currency

    def totals(self) -> Totals:
        """Close the sums."""
        writes: dict[str, int] = {ttl: self._writes[ttl] for ttl in TTLS if self._writes[ttl]}
        has_calls = self._calls > 0
        return Totals(
            calls=self._calls,
            total_input=self._known("total_input"),
            uncached_input=self._known("uncached_input"),
            cache_read=self._known("cache_read"),
            cache_write=writes if self._calls > self._unknown[_WRITE] else None,
            input_equivalents=self._weight if has_calls else None,
            cost=self._cost if has_calls else None,
            currency=self._currency or "USD",
            unknown_calls={part: n for part, n in self._unknown.items() if n},
        )

    def _known(self, part: str) -> int | None:
        return self._counts[part] if self._calls > self._unknown[part] else None


def _plus(a: Decimal | None, b: Decimal | None) -> Decimal | None:
    return None if a is None or b is None else a + b

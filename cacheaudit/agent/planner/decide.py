"""Chooses the markers of one request: the most useful set that its session can afford."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from cacheaudit.agent.planner.account import Pool, gain
from cacheaudit.agent.planner.forecast import CacheRules, Forecast, forecast
from cacheaudit.agent.planner.gaps import Stage
from cacheaudit.agent.planner.layout import Layout
from cacheaudit.agent.planner.lifetime import NONE, Choice, Rates, choose
from cacheaudit.agent.planner.memory import Line, SessionMemory
from cacheaudit.agent.planner.places import Marks, with_lifetimes
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.agent.planner.shelf import Shelf
from cacheaudit.agent.planner.spots import FRONT, Candidate, candidates

_SHOWN: Final = {"front": "system", "talk": "tail"}


class Case(msgspec.Struct, frozen=True):
    """All that is known of one request while it is planned.

    Attributes:
        layout: The request in pieces.
        line: The line of conversation that it goes on with, as it was before.
        session: Its session.
        shelf: What the cache should hold.
        rules: Rules of the cache.
        rates: The model's rates.
        scale: Tokens of the provider for one of ours.
        now: Start of the request.
        own: Blocks that the caller marked, with their lifetimes.
        pool: What must pay for the worst; ``None``: nothing must.
        spare: Tokens of the provider for one of ours, at the most.
    """

    layout: Layout
    line: Line
    session: SessionMemory
    shelf: Shelf
    rules: CacheRules
    rates: Rates
    scale: float
    now: float
    own: tuple[tuple[int, str], ...]
    pool: Pool | None = None
    spare: Decimal = Decimal(1)

    def play(self, marks: Sequence[tuple[int, str]]) -> Forecast:
        """Foretell what comes of the request with given markers."""
        return forecast(self.layout, marks, self.shelf, self.now, self.rules, self.scale)

    def worst(self, marks: Sequence[tuple[int, str]]) -> Decimal:
        """Return what markers add to the caller's own cost if nothing can be read, in tokens."""
        if self.pool is None:
            return Decimal(0)
        rules = msgspec.structs.replace(self.rules, minimum=0)
        mine, own = (
            forecast(self.layout, found, Shelf(), self.now, rules) for found in (marks, self.own)
        )
        return max(Decimal(0), gain(own, self.rates) - gain(mine, self.rates)) * self.spare


class Decision(msgspec.Struct, frozen=True):
    """What is marked.

    Attributes:
        marks: All markers in render order, the caller's too.
        roles: Why each of ours stands where it stands.
        found: What should come of it.
        choices: Lifetimes and their prices, by level.
        reason: Why nothing is added; ``None`` where something is.
        worst: What they cost if nothing is read, in tokens of the provider.
    """

    marks: Marks
    roles: dict[int, str]
    found: Forecast
    choices: dict[str, Choice]
    reason: str | None = None
    worst: Decimal = Decimal(0)


def decide(case: Case, body: Mapping[str, Any], policy: PlanPolicy) -> Decision:
    """Choose the markers of a request.

    Args:
        case: What is known of it.
        body: The request as it was given.
        policy: What may be done.
    """
    as_is = case.play(case.own)
    places = _places(case, body, policy)
    if isinstance(places, str):
        return Decision(list(case.own), {}, as_is, {}, places)
    choices = _choices(case, places, policy.ttl)
    wanted = {level: choice.ttl for level, choice in choices.items()}
    if case.own and policy.ttl == "auto":
        # Lifetimes are the caller's: what is added pays no premium of its own.
        wanted = {level: ttl if ttl == NONE else "5m" for level, ttl in wanted.items()}
        choices = {}
    base, account = gain(as_is, case.rates), case.session.account
    reason = "what would be written may not be read often enough to pay"
    slots = case.rules.most - case.layout.markers
    for kept, ttls in _sets(places, wanted, slots, is_ahead=account.balance > 0):
        plan = with_lifetimes(kept, case.own, ttls, case.rules)
        if plan is None or not plan[1]:
            continue
        found, worst = case.play(plan[0]), case.worst(plan[0])
        if case.pool is not None and not case.pool.affords(worst):
            reason = "nothing saved so far pays for what may not be read"
        elif account.allows(gain(found, case.rates) - base):
            return Decision(*plan, found, _told(choices, ttls), worst=worst)
    return Decision(list(case.own), {}, as_is, _told(choices, dict.fromkeys(choices, NONE)), reason)


def _places(case: Case, body: Mapping[str, Any], policy: PlanPolicy) -> list[Candidate] | str:
    """Return the places to choose from, or why there are none."""
    layout = case.layout
    if layout.markers and not policy.complete:
        return "the caller placed markers"
    if case.rules.most <= layout.markers or not layout.blocks or _is_repeated(case):
        return "no marker is missing"
    with_tail = body.get("max_tokens") != 0 and layout.automatic is None
    found = candidates(
        layout, case.line, case.shelf, case.now, case.rules, case.scale, with_tail=with_tail
    )
    if not found:
        return "shorter than the model caches"
    taken = {index for index, _ in case.own}
    return [place for place in found if place.index not in taken] or "no marker is missing"


def _choices(case: Case, places: list[Candidate], ttl: str) -> dict[str, Choice]:
    """Choose a lifetime for the front and for the conversation."""
    gaps, sizes = case.session.gaps, case.layout.sizes
    stage: Stage = "first" if case.line.requests <= 1 else "later"
    front = max((sizes[place.index] for place in places if place.role in FRONT), default=0)
    talk = max(sizes[place.index] for place in places) - front
    offered = [name for name in case.rates.writes if name in case.rules.seconds]
    return {
        "front": choose(gaps.odds("front", case.now), case.rates, front, ttl, offered),
        "talk": choose(gaps.odds(stage, case.now), case.rates, talk, ttl, offered),
    }


def _told(choices: Mapping[str, Choice], ttls: Mapping[str, str]) -> dict[str, Choice]:
    """Return the choices as they were carried out, by the names of the report."""
    return {
        _SHOWN[level]: msgspec.structs.replace(choice, kept=ttls[level])
        for level, choice in choices.items()
        if choice.tokens > 0
    }


def own_marks_of(layout: Layout, rules: CacheRules) -> tuple[tuple[int, str], ...] | None:
    """Return the caller's markers by block; ``None`` where one of them cannot stand there."""
    found: dict[int, str] = {}
    for mark in layout.marks:
        index = layout.index_of(mark.level, mark.outer, mark.inner)
        if index is None or (mark.ttl or rules.default) not in rules.seconds:
            return None
        found[index] = mark.ttl or rules.default
    if layout.automatic is not None:
        ttl = layout.automatic or rules.default
        last = next(
            (i for i in range(len(layout.blocks) - 1, -1, -1) if layout.blocks[i].markable), None
        )
        if ttl not in rules.seconds:
            return None
        if last is not None:
            found.setdefault(last, ttl)
    return tuple(sorted(found.items()))


def _is_repeated(case: Case) -> bool:
    """Whether the very request that was planned last comes again, with its markers."""
    before = case.line.layout
    if before is None or not case.layout.markers or before.keys != case.layout.keys:
        return False
    return {index for index, _ in case.line.marks} <= {index for index, _ in case.own}


def _sets(
    places: list[Candidate], wanted: Mapping[str, str], slots: int, *, is_ahead: bool
) -> Iterator[tuple[list[Candidate], Mapping[str, str]]]:
    """Yield what could be marked, from the most ambitious to the safest.

    Where an hour is wanted and cannot be afforded, a session that is ahead takes five minutes; one
    that is behind saves up, since a write that expires too early brings nothing.
    """
    shorter = "5m" if is_ahead else NONE
    short = {level: shorter if ttl == "1h" else ttl for level, ttl in wanted.items()}
    nothing = dict.fromkeys(wanted, NONE)
    front = [place for place in places if place.role in FRONT or place.anchor]
    yield _first(places, wanted, slots), wanted
    yield _first(places, short, slots), short
    yield _first(front, short, slots), {**short, "talk": NONE}
    yield _first(places, nothing, slots), nothing


def _first(places: list[Candidate], ttls: Mapping[str, str], slots: int) -> list[Candidate]:
    """Take as many places as there is room for, leaving out what is not to be marked."""
    fit = [
        place
        for place in places
        if place.anchor or ttls["front" if place.role in FRONT else "talk"] != NONE
    ]
    return fit[:slots]

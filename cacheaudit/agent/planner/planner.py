"""The planner: from a request that is about to be sent to the one that is sent instead."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from cacheaudit.agent.plan import Outgoing
from cacheaudit.agent.planner import implicit, tools, volatile
from cacheaudit.agent.planner.account import gain
from cacheaudit.agent.planner.apply import Spot, marked, marker
from cacheaudit.agent.planner.forecast import CacheRules, Forecast, forecast, keep
from cacheaudit.agent.planner.gaps import Stage
from cacheaudit.agent.planner.layout import Layout, lay_out, texts_of
from cacheaudit.agent.planner.lifetime import NONE, Choice, Rates, choose
from cacheaudit.agent.planner.memory import Latest, Line, Memory, SessionMemory
from cacheaudit.agent.planner.places import Marks, with_lifetimes
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.agent.planner.shelf import Shelf
from cacheaudit.agent.planner.spots import FRONT, Candidate, candidates, shared_blocks
from cacheaudit.agent.planner.target import Target, cache_rules, rates_of, target_of
from cacheaudit.errors import PromptError
from cacheaudit.model.call import Call
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers.shape import is_chat, is_messages, is_responses

_PENDING: Final = 4096
_OPENAI: Final = ("openai_v1", "openai_v2")
_DIAGNOSES: Final = "claude_api"
_SECONDS: Final = {"5m": 300.0, "1h": 3600.0}


class _Pending(msgspec.Struct, frozen=True):
    """A call whose outcome is not known yet; ``alone``: every marker of it is ours."""

    session: str
    found: Forecast
    amount: Decimal
    written: tuple[bytes, ...]
    hit: bytes | None
    rates: Rates
    family: str
    alone: bool


class _Case(msgspec.Struct, frozen=True):
    """All that is known of one request while it is planned."""

    layout: Layout
    line: Line
    session: SessionMemory
    rules: CacheRules
    rates: Rates
    scale: float
    now: float
    own: tuple[tuple[int, str], ...]


class BreakpointPlanner:
    """Places cache markers; see :class:`cacheaudit.agent.plan.Planner`.

    Safe to use from many threads. What it remembers is bounded: 64 sessions of 12 lines of
    conversation each, 64 MiB of requests, 16,384 prefixes.

    Args:
        policy: What it may do.
        book: Prices; the built-in tables where none are given.
    """

    def __init__(self, policy: PlanPolicy | None = None, book: PriceBook | None = None) -> None:
        self.policy = policy or PlanPolicy()
        self._book = book or PriceBook()
        self._memory = Memory(self.policy)
        self._shelf = Shelf()
        self._lock = threading.Lock()
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._lines = Latest()
        self._seeded = False
        self._scales: dict[str, tuple[int, int]] = {}
        self._routes = implicit.Routes()

    # ── before a call ────────────────────────────────────────────────────────────────────────────

    def plan(self, request: Outgoing) -> Mapping[str, Any] | None:
        """Return the body to send instead; ``None``: as it is."""
        with self._lock:
            session = self._memory.session(request.scope.session or "")
            session.notes.calls += 1
            made = self._plan(request, session)
            return None if made is request.body else made

    def _plan(self, request: Outgoing, session: SessionMemory) -> Mapping[str, Any]:
        body = request.body
        target = target_of(body, request.url, request.at)
        reason = _unfit(body, target)
        if reason is not None or target is None or target.facts is None:
            session.notes.leave(reason or "no cache rules are known of the model")
            return body
        if self.policy.stable_tools:
            body = tools.in_order(body, session)
        machine = target.facts.machine
        if machine == "claude" and is_messages(body):
            try:
                return self._messages(request, body, session, target)
            except PromptError:
                session.notes.leave("the request has not the shape of its API")
                return body
        if machine in _OPENAI and (is_chat(body) or is_responses(body)):
            line = session.line(request.scope.lane or "main", (), f"openai/{target.model}")
            self._lines.put(request.logical, line)
            return implicit.plan(request, body, session, line, target, self.policy, self._routes)
        session.notes.leave("the provider caches by itself: there is nothing to mark")
        return body

    def _messages(
        self, request: Outgoing, body: Mapping[str, Any], session: SessionMemory, target: Target
    ) -> Mapping[str, Any]:
        facts = target.facts
        if facts is None:
            return body
        texts = texts_of(body, session.layouts())
        family = f"{target.home.decode(errors='replace')}/{facts.provider}/{facts.model}"
        line = session.line(request.scope.lane, texts.plain, family)
        sent, behind = volatile.taken_out(body, line, session, self.policy, facts)
        donor = session.donor(texts.plain, line)
        layout = lay_out(sent, facts, target.home, donor, texts)
        rules = cache_rules(facts)
        rates = rates_of(self._book, target, request.at, layout.sizes[-1] if layout.sizes else 0)
        own = _own(layout, rules)
        self._notice(line, layout, session, request.at, target)
        if own is None:
            session.notes.leave("carries markers that the provider may refuse")
            return body
        case = _Case(layout, line, session, rules, rates, self._scale(family), request.at, own)
        marks, roles, found, choices = self._decide(case, body)
        self._book_in(request, case, marks, found, family)
        made: Mapping[str, Any] = (
            body
            if not roles
            else marked(sent, [_spot(layout, index, ttl) for index, ttl in marks if index in roles])
        )
        if behind and (roles or not own):
            made = volatile.put_behind(made if roles else sent, behind)
        session.notes.marked += bool(roles)
        session.notes.roles.update(roles.values())
        session.notes.choices.update(choices)
        return self._diagnosed(made, line, target, own)

    def _decide(
        self, case: _Case, body: Mapping[str, Any]
    ) -> tuple[Marks, dict[int, str], Forecast, dict[str, Choice]]:
        """Choose the markers: the most useful set that the session can afford."""
        layout, notes = case.layout, case.session.notes
        mine = list(case.own)
        as_is = self._play(case, mine)
        nothing: tuple[Marks, dict[int, str], Forecast, dict[str, Choice]] = (mine, {}, as_is, {})
        if layout.markers and not self.policy.complete:
            notes.leave("the caller placed markers")
            return nothing
        slots = case.rules.most - layout.markers
        if slots <= 0 or not layout.blocks or _is_repeated(case):
            notes.leave("no marker is missing")
            return nothing
        with_tail = body.get("max_tokens") != 0 and layout.automatic is None
        places = candidates(
            layout, case.line, self._shelf, case.now, case.rules, case.scale, with_tail=with_tail
        )
        if not places:
            notes.leave("shorter than the model caches")
            return nothing
        taken = {index for index, _ in case.own}
        places = [place for place in places if place.index not in taken]
        if not places:
            notes.leave("no marker is missing")
            return nothing
        choices = self._choices(case, places)
        wanted = {level: choice.ttl for level, choice in choices.items()}
        if case.own and self.policy.ttl == "auto":
            # Lifetimes are the caller's: what is added pays no premium of its own.
            wanted = {level: ttl if ttl == NONE else "5m" for level, ttl in wanted.items()}
            choices = {}
        base = gain(as_is, case.rates)
        ahead = case.session.account.balance > 0
        for kept, ttls in _sets(places, wanted, slots, is_ahead=ahead):
            plan = with_lifetimes(kept, case.own, ttls, case.rules)
            if plan is None or not plan[1]:
                continue
            found = self._play(case, plan[0])
            if case.session.account.allows(gain(found, case.rates) - base):
                shown = {_shown(name): c for name, c in choices.items() if c.tokens > 0}
                return plan[0], plan[1], found, shown
        notes.leave("what would be written may not be read often enough to pay")
        return nothing

    def _play(self, case: _Case, marks: Marks) -> Forecast:
        return forecast(case.layout, marks, self._shelf, case.now, case.rules, case.scale)

    def _choices(self, case: _Case, places: list[Candidate]) -> dict[str, Choice]:
        """Choose a lifetime for the front and for the conversation."""
        gaps, sizes = case.session.gaps, case.layout.sizes
        stage: Stage = "first" if case.line.requests <= 1 else "later"
        front = max((sizes[p.index] for p in places if p.role in FRONT), default=0)
        whole = max(sizes[p.index] for p in places)
        return {
            "front": choose(gaps.odds("front", case.now), case.rates, front, self.policy.ttl),
            "talk": choose(gaps.odds(stage, case.now), case.rates, whole - front, self.policy.ttl),
        }

    def _notice(
        self, line: Line, layout: Layout, session: SessionMemory, now: float, target: Target
    ) -> None:
        """Note what this request tells of the one before it, and of the pause between them."""
        stage: Stage = "first" if line.requests == 0 else "later"
        front = layout.keys[layout.front - 1].hex() if layout.front else target.model
        for gaps, name in ((session.gaps, ""), (self._memory.wide, f"{id(session)}")):
            gaps.sent(f"{name}/{line.name}", stage, now)
            gaps.sent(f"front/{front}", "front", now)
        line.requests += 1
        before = line.layout
        if before is None:
            return
        count = len(before.messages)
        if len(layout.roles) > count and layout.roles[count] == "assistant":
            self._shelf.begun(line.written, line.logical)
        for level, same in (
            ("tools", layout.tools == before.tools),
            ("system", layout.system == before.system),
        ):
            line.churn[level] = 0 if same else line.churn[level] + 1
        if line.churn["tools"]:
            volatile.tools_changed(before.tools, layout.tools, session)
        end = before.ends[-1] if before.ends else before.front
        loose = max(0, end - max(shared_blocks(layout, before), before.front))
        line.steady_loose = 0 < loose == line.loose
        line.loose = loose

    def _book_in(
        self, request: Outgoing, case: _Case, marks: Marks, found: Forecast, family: str
    ) -> None:
        """Note what is sent, as long as nothing else is known."""
        line, layout = case.line, case.layout
        mine = self._play(case, list(case.own))
        amount = gain(found, case.rates) - gain(mine, case.rates)
        case.session.account.book(amount, found.total)
        hit = layout.keys[found.hit] if found.hit >= 0 else None
        line.written = keep(found, layout, self._shelf, case.now, case.rules, request.logical)
        line.layout, line.marks, line.logical = layout, tuple(marks), request.logical
        self._lines.put(request.logical, line)
        self._pending[request.logical] = _Pending(
            request.scope.session or "",
            found,
            amount,
            line.written,
            hit,
            case.rates,
            family,
            alone=not case.own,
        )
        while len(self._pending) > _PENDING:
            self._pending.popitem(last=False)
        self._memory.trim()

    def _diagnosed(
        self,
        body: Mapping[str, Any],
        line: Line,
        target: Target,
        own: tuple[tuple[int, str], ...],
    ) -> Mapping[str, Any]:
        """Ask why the prefix of the request before was not reused, where that is answered."""
        surface = line.surface or target.surface
        if not self.policy.diagnostics or surface != _DIAGNOSES or "diagnostics" in body:
            return body
        if own and not self.policy.complete:
            return body
        return {**body, "diagnostics": {"previous_message_id": line.answer}}

    def _scale(self, family: str) -> float:
        told, guessed = self._scales.get(family, (1, 1))
        return told / guessed

    # ── after a call ─────────────────────────────────────────────────────────────────────────────

    def learn(self, call: Call) -> None:
        """Compare a recorded call with what was foretold of it."""
        logical = call.extra.get("logical_call") or (call.dedupe_key or "").partition(":")[2]
        with self._lock:
            if call.purpose == "keep_alive":
                self._kept_alive(call)
            line = self._lines.get(logical)
            if line is None:
                return
            line.surface = call.surface or line.surface
            if call.error is None and line.logical == logical:
                line.answer = _answer(call) or line.answer
            pending = self._pending.get(logical)
            if pending is not None and call.error is None:
                self._shelf.begun(pending.written, logical)
            if pending is not None and not call.extra.get("unfinished"):
                del self._pending[logical]
                self._settle(call, pending)

    def _kept_alive(self, call: Call) -> None:
        """Note that a refresh read what the latest request of a session had written."""
        usage, session = call.usage, self._memory.known(call.session)
        if usage is None or not usage.cache_read or session is None or call.started_at is None:
            return
        for line in list(session.lines.values())[-1:]:
            if line.layout is not None:
                for index, _ in line.marks:
                    self._shelf.renew(line.layout.keys[index], call.started_at, _SECONDS)

    def _settle(self, call: Call, pending: _Pending) -> None:
        session = self._memory.known(pending.session)
        usage, found = call.usage, pending.found
        if usage is None or not usage.prompt_size:
            if call.error is not None:
                self._shelf.lost(pending.written)
                if session is not None:
                    session.account.correct(-pending.amount)
            return
        told, guessed = self._scales.get(pending.family, (0, 0))
        self._scales[pending.family] = (told + usage.prompt_size, guessed + max(1, found.total))
        if usage.cache_read is None:
            return
        if usage.cache_read == 0 and pending.hit is not None and pending.hit not in pending.written:
            self._shelf.lost((pending.hit,))
        real = _seen(call, found, pending.rates) if pending.alone else None
        if session is not None and real is not None:
            session.account.correct(real - gain(found, pending.rates))

    def seed(self, pauses: Iterable[tuple[Stage, float | None]]) -> None:
        """Take in the pauses that a store remembers; only the first time that it is called.

        Args:
            pauses: As :func:`~.gaps.pauses_of` tells them.
        """
        with self._lock:
            if self._seeded:
                return
            self._seeded = True
            for stage, gap in pauses:
                if gap is None:
                    self._memory.wide.ended(stage)
                else:
                    self._memory.wide.add(stage, gap)

    def report(self, session: str | None) -> list[str]:
        """Say what was done in a session and why."""
        with self._lock:
            found = self._memory.known(session or "")
            return [] if found is None else list(found.notes.lines(found.account.balance))


def _unfit(body: Mapping[str, Any], target: Target | None) -> str | None:
    """Say why nothing can be planned, if so."""
    if body.get("thread") is not None or body.get("previous_response_id") is not None:
        return "the server completes the request from what it remembers"
    return "the request names no model" if target is None else None


def _own(layout: Layout, rules: CacheRules) -> tuple[tuple[int, str], ...] | None:
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


def _is_repeated(case: _Case) -> bool:
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


def _spot(layout: Layout, index: int, ttl: str) -> Spot:
    block = layout.blocks[index]
    return Spot(block.level, block.outer, block.inner, marker(ttl))


def _shown(level: str) -> str:
    return "system" if level == "front" else "tail"


def _answer(call: Call) -> str | None:
    name = call.id.partition("#")[0]
    return name if name.startswith(("msg_", "resp_")) else None


def _seen(call: Call, found: Forecast, rates: Rates) -> Decimal | None:
    """Return what a call saved by what was billed, in our own tokens."""
    usage = call.usage
    if usage is None or not usage.prompt_size or usage.cache_read is None:
        return None
    ratio = Decimal(found.total) / usage.prompt_size
    amount = (1 - rates.read) * usage.cache_read
    for ttl, tokens in (("5m", usage.write_5m), ("1h", usage.write_1h)):
        amount -= (rates.writes.get(ttl, Decimal(1)) - 1) * (tokens or 0)
    return amount * ratio

"""The planner: from a request that is about to be sent to the one that is sent instead."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from cacheaudit.agent.plan import Outgoing
from cacheaudit.agent.planner import implicit, order, sight, tools, volatile
from cacheaudit.agent.planner.account import Pool, gain
from cacheaudit.agent.planner.apply import Spot, marked, marker
from cacheaudit.agent.planner.decide import Case, Decision, decide, own_marks_of
from cacheaudit.agent.planner.forecast import Forecast, keep
from cacheaudit.agent.planner.gaps import Stage
from cacheaudit.agent.planner.layout import Layout, lay_out, texts_of
from cacheaudit.agent.planner.lifetime import Rates
from cacheaudit.agent.planner.memory import Latest, Line, Memory, SessionMemory
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.agent.planner.pools import Past, Pools, saved, spare
from cacheaudit.agent.planner.shelf import Shelf
from cacheaudit.agent.planner.spots import shared_blocks
from cacheaudit.agent.planner.target import Target, cache_rules, rates_of, target_of
from cacheaudit.errors import PromptError
from cacheaudit.model.call import Call
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers.shape import is_chat, is_messages, is_responses, may_be_messages

_PENDING: Final = 4096
_OPENAI: Final = ("openai_v1", "openai_v2")
# The bundled engine takes the same markers; other local servers pay no heed to them.
_MARKED: Final = ("claude", "local")
_DIAGNOSES: Final = "claude_api"
_RETRIED: Final = (408, 409, 429)
_SECONDS: Final = {"5m": 300.0, "1h": 3600.0}


class _Pending(msgspec.Struct, frozen=True):
    """A call whose outcome is not known yet.

    ``alone``: every marker of it is ours. ``pool``: what pays for it if nothing is read, ``worst``.
    ``failed``: the server refused it, and it may be tried again.
    """

    session: str
    found: Forecast
    amount: Decimal
    written: tuple[bytes, ...]
    hit: bytes | None
    rates: Rates
    family: str
    alone: bool
    marked: bool = False
    failed: bool = False
    pool: Pool | None = None
    worst: Decimal = Decimal(0)


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
        self._book = book or PriceBook(genai_prices=False)  # loading it would hold up a request
        self._memory = Memory(self.policy)
        self._shelf = Shelf()
        self._lock = threading.Lock()
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._lines = Latest()
        self._seeded = False
        self._scales: dict[str, tuple[int, int]] = {}
        self._routes = implicit.Routes()
        self._pools = Pools(self.policy, self._book)
        _renew_after_fork(self)

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
            made = implicit.continued(body, session, target, self.policy)
            if made is body:
                session.notes.leave(reason or "no cache rules are known of the model")
            return made
        if self.policy.stable_tools:
            body = tools.in_order(body, session)
        if self.policy.stable_inputs:
            body = order.restored(body, session)
        machine = target.facts.machine
        if machine in _MARKED and _speaks_messages(body, request.url):
            try:
                return self._messages(request, body, session, target)
            except PromptError:
                session.notes.leave("the request has not the shape of its API")
                return body
        if machine in _OPENAI and (is_chat(body) or is_responses(body)):
            line = session.line(request.scope.lane or "main", (), f"openai/{target.model}")
            self._lines.put(request.logical, line)
            return implicit.plan(request, body, session, line, target, self.policy, self._routes)
        session.notes.leave(
            "markers are placed in requests of the Messages API"
            if machine == "claude"
            else "the provider caches by itself: there is nothing to mark"
        )
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
        if texts.reordered:
            session.notes.rewritten(texts.reordered, "key order")
        sent, behind = volatile.taken_out(body, line, session, self.policy, facts)
        donor = session.donor(texts.plain, line)
        layout = lay_out(sent, facts, target.home, donor, texts)
        rules = cache_rules(facts)
        rates = rates_of(self._book, target, request.at, layout.sizes[-1] if layout.sizes else 0)
        own = own_marks_of(layout, rules)
        self._notice(line, layout, session, request, target)
        if own is None:
            session.notes.leave("carries markers that the provider may refuse")
            return body
        before = self._pending.get(line.logical)
        if before is not None and before.failed:  # nobody tried it again
            _settle_pool(self._pending.pop(line.logical), Decimal(0))
        scale, pool = self._scale(family), self._pools.of(facts)
        case = Case(
            layout, line, session, self._shelf, rules, rates, scale, request.at, own, pool,
            spare(scale, is_told=family in self._scales),
        )  # fmt: skip
        made = decide(case, body, self.policy)
        session.notes.decided(list(made.roles.values()), made.choices, made.reason)
        self._book_in(request, case, made, family)
        planned: Mapping[str, Any] = body
        if made.roles:
            ours = [(index, ttl) for index, ttl in made.marks if index in made.roles]
            planned = marked(sent, [_spot(layout, index, ttl) for index, ttl in ours])
        if behind and (made.roles or not own):
            planned = volatile.put_behind(planned if made.roles else sent, behind)
        return self._diagnosed(planned, line, target, own)

    def _notice(
        self, line: Line, layout: Layout, session: SessionMemory, request: Outgoing, target: Target
    ) -> None:
        """Note what this request tells of the one before it, and of the pause between them."""
        now, body = request.at, request.body
        stage: Stage = "first" if line.requests == 0 else "later"
        front = layout.keys[layout.front - 1].hex() if layout.front else target.model
        for gaps, name in ((session.gaps, ""), (self._memory.wide, str(session.number))):
            gaps.sent(f"{name}/{line.name}", stage, now)
            gaps.sent(f"front/{front}", "front", now)
        line.requests += 1
        before = line.layout
        if before is None:
            sight.look(body, session.notes)
            return
        self._compare(line, layout, before, session)

    def _compare(self, line: Line, layout: Layout, before: Layout, session: SessionMemory) -> None:
        """Note what differs from the request before it."""
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
        for name in sorted(before.settings.keys() | layout.settings.keys()):
            if before.settings.get(name) != layout.settings.get(name):
                session.notes.changed(name, "parameter")
        end = before.ends[-1] if before.ends else before.front
        shared = shared_blocks(layout, before)
        is_rest_equal = layout.seeds == before.seeds and shared >= before.front
        if is_rest_equal and shared < min(end, len(layout.blocks)):
            was, now = before.blocks[shared], layout.blocks[shared]
            kind = "earlier content" if was.kind == now.kind else f"{was.kind} became {now.kind}"
            session.notes.rewritten(f"messages[{was.outer}]", kind)
        loose = max(0, end - max(shared, before.front))
        line.steady_loose = 0 < loose == line.loose
        line.loose = loose

    def _book_in(self, request: Outgoing, case: Case, made: Decision, family: str) -> None:
        """Note what is sent, as long as nothing else is known."""
        line, layout, found = case.line, case.layout, made.found
        amount = gain(found, case.rates)
        if case.own:
            amount -= gain(case.play(case.own), case.rates)
        case.session.account.book(amount, found.total)
        hit = layout.keys[found.hit] if found.hit >= 0 else None
        line.written = keep(found, layout, self._shelf, case.now, case.rules, request.logical)
        line.layout, line.marks, line.logical = layout, tuple(made.marks), request.logical
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
            marked=bool(made.roles),
            pool=case.pool if made.worst else None,
            worst=made.worst,
        )
        if case.pool is not None:
            case.pool.reserve(made.worst)
        while len(self._pending) > _PENDING:
            _settle_pool(self._pending.popitem(last=False)[1], None)
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
                if _may_be_retried(call):
                    self._refused(logical, pending)
                else:
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

    def _refused(self, logical: str, pending: _Pending) -> None:
        """Note that an attempt failed; the next one is the same request."""
        self._shelf.lost(pending.written)
        session = self._memory.known(pending.session)
        if session is not None and not pending.failed:
            session.account.correct(-pending.amount)
        self._pending[logical] = msgspec.structs.replace(pending, failed=True)

    def _settle(self, call: Call, pending: _Pending) -> None:
        session = self._memory.known(pending.session)
        usage, found = call.usage, pending.found
        if usage is None or not usage.prompt_size:
            if call.error is not None:
                # What the server refused costs nothing; what was only not answered may have.
                _settle_pool(pending, None if call.error.status is None else Decimal(0))
                self._shelf.lost(pending.written)
                if session is not None and not pending.failed:
                    session.account.correct(-pending.amount)
            else:
                _settle_pool(pending, None)
            return
        told, guessed = self._scales.get(pending.family, (0, 0))
        self._scales[pending.family] = (told + usage.prompt_size, guessed + max(1, found.total))
        _settle_pool(pending, saved(call.usage, pending.rates) if pending.alone else None)
        if usage.cache_read is None:
            return
        if usage.cache_read == 0 and pending.hit is not None and pending.hit not in pending.written:
            self._shelf.lost((pending.hit,))
        real = _seen(call, found, pending.rates) if pending.alone else None
        if session is not None and real is not None:
            booked = Decimal(0) if pending.failed else gain(found, pending.rates)
            session.account.correct(real - booked)

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

    @property
    def wants_past(self) -> bool:
        """Whether what earlier sessions saved makes a difference."""
        return self.policy.strict

    def credit(self, past: Iterable[Past]) -> None:
        """Take in what the store remembers of requests with our markers, once."""
        with self._lock:
            self._pools.remember(past)

    def is_ours(self, logical: str) -> bool:
        """Whether a call on its way carries markers, and all of them are ours."""
        with self._lock:
            pending = self._pending.get(logical)
            return pending is not None and pending.alone and pending.marked

    def report(self, session: str | None) -> list[str]:
        """Say what was done in a session and why."""
        with self._lock:
            found = self._memory.known(session or "")
            return [] if found is None else list(found.notes.lines(found.account.balance))


def _renew_after_fork(planner: BreakpointPlanner) -> None:
    """Give a forked child a lock of its own: a thread that holds it exists in the parent alone."""
    found = weakref.ref(planner)

    def renew() -> None:
        alive = found()
        if alive is not None:
            alive._lock = threading.Lock()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)


def _may_be_retried(call: Call) -> bool:
    status = None if call.error is None else call.error.status
    return status is not None and (status in _RETRIED or status >= 500)


def _settle_pool(pending: _Pending, real: Decimal | None) -> None:
    if pending.pool is not None:
        pending.pool.settle(pending.worst, real)


def _unfit(body: Mapping[str, Any], target: Target | None) -> str | None:
    """Say why nothing can be planned, if so."""
    if body.get("thread") is not None or body.get("previous_response_id") is not None:
        return "the server completes the request from what it remembers"
    return "the request names no model" if target is None else None


def _speaks_messages(body: Mapping[str, Any], url: str) -> bool:
    """Whether a request is one of the Messages API, by its shape or else by its address."""
    path = url.partition("?")[0].rstrip("/")
    return is_messages(body) or (path.endswith("/messages") and may_be_messages(body))


def _spot(layout: Layout, index: int, ttl: str) -> Spot:
    block = layout.blocks[index]
    return Spot(block.level, block.outer, block.inner, marker(ttl))


def _answer(call: Call) -> str | None:
    name = call.id.partition("#")[0]
    return name if name.startswith(("msg_", "resp_")) else None


def _seen(call: Call, found: Forecast, rates: Rates) -> Decimal | None:
    """Return what a call saved by what was billed, in our own tokens."""
    usage, amount = call.usage, saved(call.usage, rates)
    if amount is None or usage is None or not usage.prompt_size:
        return None
    return amount * Decimal(found.total) / usage.prompt_size

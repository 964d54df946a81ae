"""Compacts a running conversation: decides, asks for the summary, puts the new history together.

Whatever fails on the way leaves the history as it was.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cacheaudit.agent.compaction.answer import Refused, read_compaction, read_summary
from cacheaudit.agent.compaction.clearing import Batch, batch, clear
from cacheaudit.agent.compaction.decide import FORCED, Decision, decide, occasion
from cacheaudit.agent.compaction.economy import CardOf
from cacheaudit.agent.compaction.history import Block, Message, blocks_of, faults
from cacheaudit.agent.compaction.kept import Kept, OpenFile, Pin
from cacheaudit.agent.compaction.log import Audit, note_decision, note_outcome
from cacheaudit.agent.compaction.originals import Originals, result_text
from cacheaudit.agent.compaction.outcome import Outcome
from cacheaudit.agent.compaction.request import (
    again,
    obstacle,
    prefix_request,
    server_request,
    standalone_request,
)
from cacheaudit.agent.compaction.rewrite import NOTHING, Parts, gain, kept_beside, parts, rewritten
from cacheaudit.agent.compaction.settings import Compaction, Mode
from cacheaudit.agent.compaction.track import PROVIDER, Track, usage_of
from cacheaudit.agent.fan_out.plain import plain
from cacheaudit.agent.outputs.store import OutputStore
from cacheaudit.errors import OutputError, UsageError
from cacheaudit.model.call import Call
from cacheaudit.model.clock import Clock, SystemClock
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.card import RateCard

_UNKEPT: Final = "not-kept-yet"
_LONGEST_REST: Final = 32


class _Plan(msgspec.Struct, frozen=True):
    """A decision and what it was made on."""

    body: dict[str, Any]
    decision: Decision
    found: Parts
    kept: Kept
    chosen: Batch | None
    warm: bool


_Result = tuple[Outcome, list[Message] | None]
_Steps = Generator[dict[str, Any], Mapping[str, Any] | None, _Result]


class Compactor:
    """Keeps one conversation short.

    Hand every request to :meth:`prepare` before it is sent and to :meth:`took` with its answer; go
    on with the messages that ``prepare`` gives back.

    Args:
        client: An ``Anthropic`` client; an ``AsyncAnthropic`` for :meth:`aprepare`.
        store: Where originals are kept.
        settings: When and how.
        audit: Records summary requests under the purpose ``compaction``, and every decision.
        prices: Price tables.
        clock: Tells the time.

    Attributes:
        outcome: What came of the last question; ``None``: none yet.
    """

    def __init__(
        self,
        client: Any,
        store: OutputStore,
        settings: Compaction | None = None,
        *,
        audit: Audit | None = None,
        prices: PriceBook | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._settings = settings or Compaction()
        self._originals = Originals(store)
        self._audit = audit
        self._book = prices or PriceBook(genai_prices=False)  # loading it would hold up a turn
        self._now = (clock or SystemClock()).now
        self._pins: dict[str, str] = {}
        self._pinned_calls: set[str] = set()
        self._files: dict[str, str | Callable[[], str]] = {}
        self._places_markers = audit is not None and audit.mode == "auto"
        self._track = Track(self._settings, places_markers=self._places_markers)
        self._sent_at: float | None = None
        self._failures = 0
        self._rest = 0
        self.outcome: Outcome | None = None
        if audit is not None:
            audit.learners.append(_heard_by(self._track))

    def pin(self, name: str, text: str) -> None:
        """Keep a piece of evidence word for word through every compaction."""
        self._pins[name] = text

    def unpin(self, name: str) -> None:
        """Let a piece of evidence go with the next compaction."""
        self._pins.pop(name, None)

    def pin_result(self, tool_use_id: str) -> None:
        """Keep the result of a tool call: clearing leaves it, a summary has it beside it."""
        self._pinned_calls.add(tool_use_id)

    def open_file(self, path: str, text: str | Callable[[], str]) -> None:
        """Name a file that is being worked on: its present text stays beside a summary.

        Args:
            path: What it is called.
            text: Its text, or a function that reads it. Where that raises, its place says so.
        """
        self._files[path] = text

    def close_file(self, path: str) -> None:
        """Say that a file is worked on no longer."""
        self._files.pop(path, None)

    def original(self, handle: str) -> list[dict[str, Any]]:
        """Read a history back as it was before a compaction.

        Raises:
            OutputError: Nothing is kept under the handle.
        """
        return self._originals.messages(handle)

    def took(self, request: Mapping[str, Any], reply: Any) -> None:
        """Note a request that was answered, with what it consumed.

        Args:
            request: As it was sent.
            reply: The response: the SDK's object or its JSON.
        """
        at = self._now() if self._sent_at is None else self._sent_at
        self._track.took(self._track.copy(request), usage_of(plain(reply)), at)
        self._sent_at = None

    def expires_in(self) -> float | None:
        """Seconds after which :meth:`idle` should be asked; ``None``: nothing is cached."""
        last = self._track.last
        if last is None:
            return None
        now = self._now()
        wait = self._track.lifetime_seconds(now) * self._settings.lead
        return max(0.0, last.kept_at + wait - now)

    def prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request to send: shortened, or as it is."""
        return self._settled(request, self._run(self._plan(request)))

    def compact(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Compact now, whatever it costs; the cheapest allowed way is taken."""
        return self._settled(request, self._run(self._plan(request, manual=True)))

    def idle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Compact an idle session before its prefix expires, where that is worth it.

        Args:
            request: The conversation up to the model's last answer, as the next request would
                send it.
        """
        return self._settled(request, self._run(self._plan(request, idle=True)))

    async def aprepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Like :meth:`prepare`, with an asynchronous client."""
        return self._settled(request, await self._arun(self._plan(request)))

    async def acompact(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Like :meth:`compact`, with an asynchronous client."""
        return self._settled(request, await self._arun(self._plan(request, manual=True)))

    async def aidle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Like :meth:`idle`, with an asynchronous client."""
        return self._settled(request, await self._arun(self._plan(request, idle=True)))

    def _plan(
        self, request: Mapping[str, Any], *, idle: bool = False, manual: bool = False
    ) -> _Plan:
        refused = obstacle(request)
        if refused is not None:
            raise UsageError(
                f"This request cannot be compacted: {refused.reason}.",
                "The body of a Messages request without a thread is needed.",
            )
        body = self._track.copy(request)
        at = self._now()
        warm = self._track.is_warm(at)
        size = self._track.size_of(body)
        why = occasion(size, self._settings, warm=warm, idle=idle, manual=manual)
        if why == "none":
            made = Decision(action="keep", reason="no_occasion", occasion=why)
            return _Plan(body, made, NOTHING, Kept(), None, warm)
        if self._rest and why not in FORCED:
            self._rest -= 1
            made = Decision(action="keep", reason="failed_before", occasion=why)
            note_decision(self._audit, made)
            return _Plan(body, made, NOTHING, Kept(), None, warm)
        found = parts(body["messages"], self._settings.keep_recent)
        kept = self._kept(found, _UNKEPT)
        wants_clearing = "clear" in self._settings.modes
        chosen = (
            batch(body["messages"], self._settings.clearing, self._pinned_calls)
            if wants_clearing
            else None
        )
        shape = self._track.shape(body, found, kept, chosen, at, idle=idle)
        card_of, currency = self._cards(body, at)
        made = decide(shape, self._settings, why, card_of, currency)
        note_decision(self._audit, made)
        return _Plan(body, made, found, kept, chosen, warm)

    def _kept(self, found: Parts, original: str) -> Kept:
        pins = [Pin(name, text) for name, text in self._pins.items()]
        pins += self._pinned_results(found)
        files = [
            OpenFile(path, text if isinstance(text, str) else _present(text))
            for path, text in self._files.items()
        ]
        return kept_beside(found, pins, files, self._settings.longest_words, original)

    def _pinned_results(self, found: Parts) -> Iterator[Pin]:
        for message in found.dropped:
            for block in blocks_of(message):
                name = str(block.get("tool_use_id"))
                if block.get("type") == "tool_result" and name in self._pinned_calls:
                    yield Pin(name, result_text(block))

    def _cards(self, body: Mapping[str, Any], at: float) -> tuple[CardOf, str]:
        own = body.get("model")
        tier = None if self._track.last is None else self._track.last.usage.service_tier

        def card_of(model: str | None, size: int) -> RateCard | None:
            name = model or (own if isinstance(own, str) else None)
            return self._book.card(PROVIDER, name, at, service_tier=tier, total_input=size)

        card = card_of(None, 0)
        return card_of, "USD" if card is None else card.currency

    def _run(self, plan: _Plan) -> _Result:
        steps = self._steps(plan)
        try:
            request = next(steps)
            while True:
                request = steps.send(self._ask(request))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _arun(self, plan: _Plan) -> _Result:
        steps = self._steps(plan)
        try:
            request = next(steps)
            while True:
                request = steps.send(await self._aask(request))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _ask(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        try:
            with self._as_compaction():
                return _object(self._messages(request).create(**request))
        except Exception:  # whatever the client raises: the conversation must go on
            return None

    async def _aask(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        try:
            with self._as_compaction():
                return _object(await self._messages(request).create(**request))
        except Exception:  # whatever the client raises: the conversation must go on
            return None

    def _messages(self, request: Mapping[str, Any]) -> Any:
        return self._client.beta.messages if "betas" in request else self._client.messages

    def _as_compaction(self) -> contextlib.AbstractContextManager[Any]:
        if self._audit is None:
            return contextlib.nullcontext()
        return self._audit.purpose("compaction")

    def _steps(self, plan: _Plan) -> _Steps:
        """Yield requests, take their answers, return what came of it."""
        action = plan.decision.action
        before = len(plan.body["messages"])
        base = Outcome(decision=plan.decision, messages_before=before, messages_after=before)
        if action == "keep":
            return base, None
        original = self._keep(plan.body["messages"])
        if original is None:
            return _failed(base, "not_kept"), None
        base = msgspec.structs.replace(base, original=original)
        if action == "clear":
            return self._cleared(plan, base)
        usages: list[Mapping[str, Any]] = []
        answer: str | Block | Refused = Refused("request_failed")
        request: dict[str, Any] | None = self._request(plan, action)
        while request is not None and len(usages) < self._settings.attempts:
            reply = yield request
            if reply is None:
                break
            usages.append(reply.get("usage") or {})
            answer = read_compaction(reply) if action == "server" else read_summary(reply)
            is_call = answer == Refused("called_a_tool")
            request = again(request, _content(reply)) if is_call else None
        base = msgspec.structs.replace(base, attempts=len(usages), usage=tuple(usages))
        if isinstance(answer, Refused):
            return _failed(base, answer.reason), None
        return self._joined(plan, base, answer)

    def _keep(self, messages: Sequence[Message]) -> str | None:
        try:
            return self._originals.keep(messages)
        except (OutputError, OSError, TypeError, ValueError):
            return None

    def _request(self, plan: _Plan, action: Mode) -> dict[str, Any]:
        settings = self._settings
        if action == "prefix":
            last = self._track.last
            return prefix_request(
                plan.body,
                settings.structure,
                settings.summary_tokens,
                last=None if last is None else last.body,
                recent=len(plan.found.recent),
                warm=plan.warm,
                planned=self._places_markers and last is not None and last.stored > 0,
            )
        if action == "server":
            return server_request(plan.body, settings.structure, plan.found.older)
        return standalone_request(
            plan.body,
            settings.structure,
            settings.summary_tokens,
            plan.found.older,
            settings.standalone_model,
        )

    def _joined(self, plan: _Plan, base: Outcome, answer: str | Block) -> _Result:
        kept = self._kept(plan.found, str(base.original))
        own = None if isinstance(answer, str) else answer
        text = answer if isinstance(answer, str) else "The summary stands in the block above."
        return self._checked(plan, base, rewritten(plan.found, text, kept, str(base.original), own))

    def _cleared(self, plan: _Plan, base: Outcome) -> _Result:
        if plan.chosen is None:
            return _failed(base, "no_shorter"), None
        try:
            made = clear(plan.body["messages"], plan.chosen, self._originals.keep_result)
        except (OutputError, OSError, TypeError, ValueError):
            return _failed(base, "not_kept"), None
        return self._checked(plan, base, made)

    def _checked(self, plan: _Plan, base: Outcome, made: list[Message]) -> _Result:
        """Take a new history only where it is shorter and no less valid than the one before."""
        freed = gain(plan.body["messages"], made)
        if freed <= 0:
            return _failed(base, "no_shorter"), None
        if faults(made) and not faults(plan.body["messages"]):
            return _failed(base, "not_valid"), None
        done = msgspec.structs.replace(base, compacted=True, messages_after=len(made), freed=freed)
        return done, made

    def _settled(self, request: Mapping[str, Any], found: _Result) -> dict[str, Any]:
        self.outcome, messages = found
        note_outcome(self._audit, self.outcome, self._cards(request, self._now())[0])
        self._sent_at = self._now()
        self._learn(self.outcome)
        if messages is None:
            return dict(request)
        self._track.compacted()
        return {**request, "messages": messages}

    def _learn(self, outcome: Outcome) -> None:
        """Let more and more questions pass after repeated failures, which may each have cost."""
        if outcome.compacted:
            self._failures = self._rest = 0
        elif outcome.failure is not None:
            self._failures += 1
            self._rest = min(2 ** min(self._failures, 10) - 2, _LONGEST_REST)


def _heard_by(track: Track) -> Callable[[Call], None]:
    """Tell a conversation of recorded calls for as long as there is one."""
    found = weakref.ref(track)

    def hear(call: Call) -> None:
        if (mine := found()) is not None:
            mine.heard(call)

    return hear


def _present(read: Callable[[], str]) -> str:
    """Read a file as it is now; one that is gone must not end the conversation."""
    try:
        return read()
    except Exception as error:  # whatever a caller's function raises
        return f"(could not be read: {type(error).__name__})"


def _failed(outcome: Outcome, reason: str) -> Outcome:
    return msgspec.structs.replace(outcome, failure=reason)


def _object(reply: Any) -> Mapping[str, Any] | None:
    found = plain(reply)
    return found if isinstance(found, Mapping) else None


def _content(reply: Mapping[str, Any]) -> list[Block]:
    content = reply.get("content")
    return list(content) if isinstance(content, list) else []

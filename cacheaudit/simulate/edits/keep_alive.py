"""Repeat the last request shortly before its entry expires.

The clock runs from the start of the real request. A refresh is the same request with nothing to
generate, so it reads the whole prefix and renews it; it is added with purpose ``keep_alive`` and
its cost is charged like any other. A refresh that reads nothing ends its series: the what-if run
drops the rest of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.equivalents import find_card
from cacheaudit.simulate.edit import ADDED_CALLS, EditRefused, Settings
from cacheaudit.simulate.edits._rewrite import (
    DEFAULT_TTL,
    TTL_SECONDS,
    in_order,
    last_marked,
    need_change,
    need_prompts,
    rebuilt,
    replace,
    tail_marker,
)
from cacheaudit.simulate.edits.auto_tool_choice import is_forced

if TYPE_CHECKING:
    from cacheaudit.pricing.book import PriceBook

_SERVED = ("tool_use", "tool_calls", "pause_turn")
_QUICK = 1.0
_LEAST_SAVING = Decimal("0.05")
_SELDOM = Decimal("0.15")


def refresh_after(ttl: float) -> float:
    """Seconds after which an entry is renewed: a tenth, or at least 10 s, before it expires."""
    return float(int(min(0.9 * ttl, ttl - 10)))


def pings_worth(write: Decimal, read: Decimal) -> int:
    """Most refreshes that, with the read that follows, still cost less than writing once more.

    Args:
        write: Price of a write relative to ordinary input.
        read: Price of a read relative to ordinary input.
    """
    if read <= 0:
        raise ValueError("reads that cost nothing can be repeated for ever")
    most = int((write - read) / read)
    return most - 1 if most and (most + 1) * read >= write else most


class KeepAlive(Settings, frozen=True, kw_only=True):
    """Refresh while a run waits for a tool; between runs too where asked.

    Attributes:
        every: Seconds between refreshes, from the start of the real request; absent: shortly before
            the lifetime of the last marker is over.
        at: Send refreshes at these moments instead: seconds or ``mm:ss`` after the first call, each
            repeating the last request before it.
        idle: Also between runs and after the last one, where nobody knows that a request follows.
        running_cap: Seconds after the real request when refreshing ends, while a tool runs.
        idle_cap: The same between runs.
        drop: Levels that a wrongly built refresh leaves out: it then renews nothing.
        book: Prices for judging refreshes between runs: expected saving at least $0.05, where a
            request follows in 15 of 100 cases. Without prices they are all sent.
    """

    name: ClassVar[str] = "keep-alive"
    title: ClassVar[str] = "Refresh the cache while a tool runs longer than its lifetime"
    stage: ClassVar[int] = ADDED_CALLS

    every: float | None = None
    at: tuple[str, ...] = ()
    idle: bool = False
    running_cap: float = 3600.0
    idle_cap: float = 1800.0
    drop: tuple[str, ...] = ()
    book: Any = None

    def priced(self, book: PriceBook | None) -> KeepAlive:
        """Return the same edit with prices to judge by."""
        return replace(self, book=book) if self.book is None else self

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Add the refreshes."""
        need_prompts(calls, self.name, sizes=True)
        ordered = in_order(calls)
        added = list(self._fixed(ordered) if self.at else self._regular(ordered))
        together = in_order([*ordered, *added]) if added else calls
        return need_change(
            calls, together, "keep-alive: no request waits long enough to need a refresh."
        )

    def _fixed(self, calls: list[Call]) -> Iterator[Call]:
        first = next((call.started_at for call in calls if call.started_at is not None), None)
        if first is None:
            raise EditRefused("keep-alive: no call has a start time.")
        for number, text in enumerate(self.at, 1):
            moment = first + _seconds(text)
            before = [
                call
                for call in calls
                if call.prompt is not None
                and call.started_at is not None
                and call.started_at < moment
                and self.concerns(call)
            ]
            if not before:
                raise EditRefused(f"keep-alive: no request precedes {text}.")
            yield self._refresh(before[-1], moment, number)

    def _regular(self, calls: list[Call]) -> Iterator[Call]:
        later: dict[str, Call] = {}
        for call in reversed(calls):
            if call.purpose in ("keep_alive", "compaction") or call.started_at is None:
                continue
            following = later.get(call.lane)
            later[call.lane] = call
            if call.prompt is not None and self.concerns(call):
                yield from self._series(call, call.prompt, following)

    def _series(self, call: Call, prompt: Prompt, following: Call | None) -> Iterator[Call]:
        start = call.started_at
        if start is None or last_marked(prompt) < 0:
            return
        lifetime = TTL_SECONDS.get(tail_marker(prompt).ttl or DEFAULT_TTL, 300.0)
        every = refresh_after(lifetime) if self.every is None else self.every
        if not 0 < every < lifetime:
            raise EditRefused(
                f"keep-alive: with a refresh every {every:g} s the entry, kept {lifetime:g} s, "
                "is gone before it comes.",
                "Refresh before the lifetime is over.",
            )
        is_running = following is not None and _waits_for_tool(call, following)
        if not is_running and not (self.idle and self._is_worth(call, prompt)):
            return
        cap = self.running_cap if is_running else self.idle_cap
        until = start + cap
        if following is not None and following.started_at is not None:
            # At the very moment of the next request it is no longer needed.
            until = min(until, following.started_at - 1e-6)
        number = 1
        while start + number * every <= until:
            yield self._refresh(call, start + number * every, number)
            number += 1

    def _is_worth(self, call: Call, prompt: Prompt) -> bool:
        tokens = prompt.tokens
        card = find_card(self.book, call, call.model, tokens) if self.book is not None else None
        if card is None or tokens is None:
            return True
        write = card.write_rate(tail_marker(prompt).ttl or DEFAULT_TTL) or card.uncached
        expected = _SELDOM * tokens * (write - card.read) - tokens * card.read
        return expected >= _LEAST_SAVING

    def _refresh(self, call: Call, at: float, number: int) -> Call:
        prompt = call.prompt
        if prompt is not None and self.drop:
            prompt = rebuilt(prompt, [b for b in prompt.blocks if b.level not in self.drop])
        usage = call.usage or Usage()
        size = None if prompt is None else prompt.tokens
        return Call(
            id=f"{call.id}~keep{number}",
            session=call.session,
            lane=call.lane,
            parent=call.id,
            task=call.task,
            purpose="keep_alive",
            provider=call.provider,
            surface=call.surface,
            model=call.model,
            started_at=at,
            first_token_at=at + _QUICK,
            ended_at=at + _QUICK,
            usage=Usage(
                total_input=size,
                output=0 if _may_be_empty(call) else 1,
                service_tier=usage.service_tier,
                speed=usage.speed,
                inference_geo=usage.inference_geo,
                dialect=usage.dialect,
            ),
            prompt=prompt,
            stop_reason="max_tokens",
            currency=call.currency,
            client=call.client,
            relative_time=call.relative_time,
            extra=call.extra,
        )


def _waits_for_tool(call: Call, following: Call) -> bool:
    """Whether the agent knew that another request would follow."""
    if call.stop_reason is not None:
        return call.stop_reason in _SERVED
    if following.tool_seconds is not None or following.prompt is None or call.prompt is None:
        return following.tool_seconds is not None
    new = following.prompt.blocks[len(call.prompt.blocks) :]
    return any(block.kind in ("tool_result", "function_call_output") for block in new)


def _may_be_empty(call: Call) -> bool:
    """Whether the provider accepts the request with an output limit of 0; else it must be 1."""
    if call.provider != "anthropic" or is_forced(call) or call.prompt is None:
        return False
    return not any(
        parameter.name == "output_config.format"
        or (parameter.name == "thinking" and b'"enabled"' in parameter.value)
        for parameter in call.prompt.parameters
    )


def _seconds(text: str) -> float:
    try:
        total = 0.0
        for part in text.split(":"):
            total = total * 60 + float(part)
    except ValueError as error:
        raise EditRefused(
            f"keep-alive: {text!r} is no moment.", "Write seconds or mm:ss after the first call."
        ) from error
    return total


EDIT = KeepAlive

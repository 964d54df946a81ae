"""Decides whether a conversation is compacted now, and how. No clock, no network, no state."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from cacheaudit.agent.compaction.economy import (
    CardOf,
    NoPrice,
    Shape,
    Stages,
    break_even,
    priced,
)
from cacheaudit.agent.compaction.settings import Compaction, Mode, When

Occasion = When | Literal["window", "manual", "none"]
# Nobody weighs these against going on: it is not possible, or somebody has decided already.
FORCED: Final = frozenset({"window", "manual"})


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to compact, and the prices that this rests on.

    Attributes:
        action: ``keep``, or how to compact.
        reason: Why, in one word: ``worth_it``, ``not_worth_it``, ``window``, ``manual``,
            ``no_occasion``, ``nothing_older``, ``too_small``, ``price_unknown``,
            ``failed_before``.
        occasion: What made it a question.
        keep: Price of going on as it is; ``None``: not known.
        best: Price of the cheapest way to compact; ``None``: not known, or there is none.
        options: Prices of every way that may be gone.
        break_even: Requests still to come from which ``best`` is cheaper than ``keep``.
        shape: What was priced.
        currency: ISO code.
    """

    action: Mode | Literal["keep"]
    reason: str
    occasion: Occasion
    keep: Stages | None = None
    best: Stages | None = None
    options: tuple[Stages, ...] = ()
    break_even: int | None = None
    shape: Shape | None = None
    currency: str = "USD"

    @property
    def gain(self) -> Decimal | None:
        """What the cheapest way to compact is expected to save; negative: it costs more."""
        if self.keep is None or self.best is None:
            return None
        return self.keep.total - self.best.total

    def details(self) -> dict[str, Any]:
        """Return the figures for the store: stage by stage, in the currency, as exact text."""
        ways = [*self.options, *([self.keep] if self.keep is not None else [])]
        shape = {} if self.shape is None else msgspec.structs.asdict(self.shape)
        return {
            "reason": self.reason,
            "occasion": self.occasion,
            "break_even_turns": self.break_even,
            "gain": None if self.gain is None else str(self.gain),
            "stages": {
                way.mode: {
                    "summary": str(way.summary),
                    "first": str(way.first),
                    "later": str(way.later),
                    "first_tokens": way.size,
                }
                for way in ways
            },
            **{name: _plain(value) for name, value in shape.items()},
        }


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def occasion(
    size: int, settings: Compaction, *, warm: bool, idle: bool = False, manual: bool = False
) -> Occasion:
    """Say what makes a compaction a question now.

    Args:
        size: Tokens of the next request.
        settings: What is allowed.
        warm: The cached prefix can still be read.
        idle: The session waits, and its prefix is about to expire.
        manual: Somebody asked for it.
    """
    if manual:
        return "manual"
    if settings.window is not None and size > settings.window - settings.reserve:
        return "window"
    allowed = settings.occasions
    if idle:
        return "before_expiry" if "before_expiry" in allowed else "none"
    if not warm and "cold" in allowed:
        return "cold"
    return "threshold" if "threshold" in allowed and size > settings.at else "none"


def decide(
    shape: Shape, settings: Compaction, why: Occasion, card_of: CardOf, currency: str = "USD"
) -> Decision:
    """Choose between going on and each allowed way to compact.

    A way is gone where it is expected to save ``settings.min_savings`` or more over the requests
    still to come, or where it must be.
    """
    if why == "none":
        return Decision(action="keep", reason="no_occasion", occasion=why, shape=shape)
    modes = list(_possible(shape, settings, is_forced=why in FORCED))
    if not modes:
        reason = "nothing_older" if shape.older == 0 else "too_small"
        return Decision(action="keep", reason=reason, occasion=why, shape=shape)
    try:
        keep = priced("keep", shape, card_of)
        options = tuple(priced(mode, shape, card_of) for mode in modes)
    except NoPrice:
        forced = why in FORCED
        return Decision(
            action=modes[0] if forced else "keep",
            reason=why if forced else "price_unknown",
            occasion=why,
            shape=shape,
        )
    best = min(options, key=lambda way: way.total)
    made = Decision(
        action=best.mode,
        reason=why,
        occasion=why,
        keep=keep,
        best=best,
        options=options,
        break_even=_break_even(best, shape, card_of),
        shape=shape,
        currency=currency,
    )
    if why in FORCED:
        return made
    if keep.total - best.total < settings.min_savings:
        return msgspec.structs.replace(made, action="keep", reason="not_worth_it")
    return msgspec.structs.replace(made, reason="worth_it")


def _possible(shape: Shape, settings: Compaction, *, is_forced: bool) -> Iterator[Mode]:
    for mode in settings.modes:
        if mode == "clear":
            if shape.freed:
                yield mode
        elif shape.older and (is_forced or shape.older >= settings.least):
            yield mode


def _break_even(best: Stages, shape: Shape, card_of: CardOf) -> int | None:
    if best.mode == "keep":
        return None
    try:
        return break_even(best.mode, shape, card_of)
    except NoPrice:
        return None

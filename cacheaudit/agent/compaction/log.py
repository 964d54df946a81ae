"""Writes decisions, and what came of them, into the store of the audit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Protocol

from cacheaudit.agent.compaction.decide import Decision
from cacheaudit.agent.compaction.economy import CardOf
from cacheaudit.agent.compaction.outcome import Outcome
from cacheaudit.agent.compaction.track import usage_of
from cacheaudit.model.call import Call
from cacheaudit.model.money import ZERO
from cacheaudit.pricing.cost import cost


class Audit(Protocol):
    """What a compactor uses of a :class:`~cacheaudit.CacheAudit`."""

    mode: Any
    learners: list[Callable[[Call], None]]

    def purpose(self, purpose: str) -> contextlib.AbstractContextManager[Any]:
        """Say why the calls inside a ``with`` block are made."""
        ...

    def note(self, **decision: Any) -> None:
        """Write a decision into the store."""
        ...


def note_decision(audit: Audit | None, made: Decision) -> None:
    """Log a decision with both prices, wherever there was a question."""
    if audit is None or made.reason == "no_occasion":
        return
    keep = None if made.keep is None else made.keep.total
    best = None if made.best is None else made.best.total
    other = "compact" if made.best is None else made.best.mode
    goes_on = made.action == "keep"
    audit.note(
        kind="compaction",
        action=made.action,
        alternative=other if goes_on else "keep",
        action_price=keep if goes_on else best,
        alternative_price=best if goes_on else keep,
        currency=made.currency,
        details=made.details(),
    )


def note_outcome(audit: Audit | None, outcome: Outcome, card_of: CardOf) -> None:
    """Log what came of a decision to compact; its price is what the summary requests took."""
    decision = outcome.decision
    if audit is None or decision.action == "keep":
        return
    expected = None if decision.best is None else decision.best.summary
    audit.note(
        kind="compaction_outcome",
        action=decision.action if outcome.compacted else "failed",
        alternative="keep",
        action_price=paid(outcome, card_of),
        currency=decision.currency,
        details={
            "failure": outcome.failure,
            "original": outcome.original,
            "messages_before": outcome.messages_before,
            "messages_after": outcome.messages_after,
            "tokens_freed": outcome.freed,
            "attempts": outcome.attempts,
            "expected": None if expected is None else str(expected),
        },
    )


def paid(outcome: Outcome, card_of: CardOf) -> Decimal | None:
    """Price the summary requests by what was reported of them; ``None``: not known."""
    shape = outcome.decision.shape
    is_alone = outcome.decision.action == "standalone" and shape is not None
    model = shape.standalone_model if shape is not None and is_alone else None
    total = ZERO
    for reported in outcome.usage:
        usage = usage_of({"usage": reported})
        card = card_of(model, usage.prompt_size or 0)
        amount = None if card is None else cost(usage, card).amount
        if amount is None:
            return None
        total += amount
    return total

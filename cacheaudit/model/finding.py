"""What a diagnosis says, in the shape of the published audit result."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

Verdict = Literal["proved", "consistent", "unknown"]
Evidence = Literal["reported", "body_diff", "replayed", "simulated", "usage"]


class Rival(msgspec.Struct, frozen=True, gc=False):
    """Another cause that the same record allows.

    Attributes:
        rule: Name of the rule that stands for it.
        why: Why it cannot be excluded.
    """

    rule: str
    why: str


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where in the prompt a change lies."""

    level: str
    path: str
    byte_offset: int | None


class Loss(msgspec.Struct, frozen=True, gc=False):
    """What something cost.

    Attributes:
        input_equivalents: In ordinary input tokens of the call's model.
        cost: In money; ``None`` where no price is known.
    """

    input_equivalents: Decimal
    cost: Decimal | None


class CallLoss(msgspec.Struct, frozen=True, gc=False):
    """What one call of a finding lost.

    Attributes:
        call: Id of the call.
        tokens: Lost tokens.
        lost: What they cost; ``None`` where no rate is known.
    """

    call: str
    tokens: int
    lost: Loss | None = None


class Fix(msgspec.Struct, frozen=True, gc=False):
    """What to do about it.

    Attributes:
        title: Imperative.
        patch: Lines of configuration or code, where there are any.
        saves_alone: What this fix alone would have saved; negative where it costs more.
    """

    title: str
    patch: str | None = None
    saves_alone: Loss | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing found, with how sure we are and what it rests on.

    Attributes:
        id: Unique in the result.
        rule: Rule id, such as ``TTL101``.
        name: Rule name, such as ``ttl-expired``.
        title: One line for people.
        verdict: ``proved``, ``consistent`` with the record, or ``unknown``.
        evidence: What the verdict rests on.
        calls: Ids of the calls concerned.
        established: What the record proves, as sentences with its figures.
        to_check: What the record cannot tell, and where to look.
        rivals: Other causes that it allows.
        first_change: Place of the first change, where bodies were recorded.
        tokens_lost: Tokens that a hit would have read and that were written or sent instead.
        lost: The same in input equivalents and money.
        fix: What to do.
        kind: ``loss`` for a cause of lost tokens; ``note`` for something worth knowing that lost
            none; ``error`` for a rule that failed.
        session: Session concerned, where it is one.
        places: What each call lost; they add up to ``tokens_lost`` and, where all of it is known,
            to ``lost``.
        no_fix: Why the usual fix is not advised, where trying it saved nothing.
    """

    id: str
    rule: str
    name: str
    title: str
    verdict: Verdict
    evidence: Evidence
    calls: tuple[str, ...]
    established: tuple[str, ...] = ()
    to_check: tuple[str, ...] = ()
    rivals: tuple[Rival, ...] = ()
    first_change: Place | None = None
    tokens_lost: int = 0
    lost: Loss | None = None
    fix: Fix | None = None
    kind: Literal["loss", "note", "error"] = "loss"
    session: str | None = None
    places: tuple[CallLoss, ...] = ()
    no_fix: str | None = None

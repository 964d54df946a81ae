"""One call to a model, and the session it belongs to."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import Any, Literal

import msgspec

from cacheaudit._typing import override
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.usage import Usage

Purpose = Literal[
    "main", "subagent", "compaction", "keep_alive", "warm_up", "retry", "probe", "other"
]
PURPOSES: tuple[Purpose, ...] = (
    "main",
    "subagent",
    "compaction",
    "keep_alive",
    "warm_up",
    "retry",
    "probe",
    "other",
)


class Span(msgspec.Struct, frozen=True, gc=False):
    """An interval of time, in seconds since the epoch, that holds a moment not known exactly."""

    low: float
    high: float


class Origin(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Where a call was read: file and line (from 1; 0 where the format has no lines)."""

    file: str
    line: int = 0

    @override
    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class MissReason(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the provider itself said of a cache miss.

    Attributes:
        type: ``model_changed``, ``system_changed``, ``tools_changed``, ``messages_changed``,
            ``previous_message_not_found``, ``unavailable``, or another provider's word;
            ``pending`` where the comparison had not finished, ``none`` where the provider compared
            and found no divergence.
        missed_tokens: Its own estimate of the tokens lost, from byte lengths; not billing.
    """

    type: str
    missed_tokens: int | None = None


class Boundary(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Something that the transcript records between two calls.

    Attributes:
        kind: ``compaction``, ``clear``, ``resume`` or ``branch``.
        at: Seconds since the epoch.
        trigger: ``auto`` or ``manual``, as recorded.
        tokens_before: Size of the context before it.
    """

    kind: str
    at: float | None = None
    trigger: str | None = None
    tokens_before: int | None = None


class CallError(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How a call failed."""

    type: str | None = None
    status: int | None = None
    message: str | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One attempt to get a response from a model.

    Attributes:
        id: Provider's message id where there is one, else one made from file and position.
        session: Session that the call belongs to.
        lane: Line of conversation inside the session: ``main`` or a subagent's id. A call extends
            the prompt of the call before it in the same lane.
        parent: Id of the call whose context this one extends, where the record says so.
        task: What the whole-task ledger groups by.
        purpose: Why the call was made.
        provider: ``anthropic``, ``openai``, ``deepseek`` …
        surface: ``claude_api``, ``bedrock`` …
        model: Model as recorded.
        started_at: Request start: the clock that TTLs run on. ``None`` where only an interval or
            nothing is known.
        start_span: Interval that holds the request start, where it is not known exactly.
        first_token_at: First streamed token.
        ended_at: End of the response.
        attempt: 0 for the first try.
        requests: How many requests the record sums up: 1 but for sources that store totals only;
            ``None``: several, number unknown. A sum says nothing of one prompt's size or cache.
        usage: What it consumed.
        prompt: What was sent, as content blocks; ``None`` where the record has no body.
        diagnostics: The provider's own word on a miss.
        stop_reason: As recorded.
        error: How it failed, if it did.
        tool_seconds: Time spent in tools before the call was sent.
        outcome: ``accepted`` or ``rejected``, on the last call of a task.
        reported_cost: Cost that the record itself states.
        currency: Currency of ``reported_cost``.
        client: Program that made the call, with its version.
        boundaries: What lies between the previous call of the lane and this one.
        origin: Where it was read.
        dedupe_key: Two records with the same key are the same call; ``None``: never merged.
        relative_time: Times count from an unknown moment: no price date can be taken from them.
        extra: Fields that this version does not know, kept as read.
    """

    id: str
    session: str = ""
    lane: str = "main"
    parent: str | None = None
    task: str | None = None
    purpose: str = "main"
    provider: str | None = None
    surface: str | None = None
    model: str | None = None
    started_at: float | None = None
    start_span: Span | None = None
    first_token_at: float | None = None
    ended_at: float | None = None
    attempt: int = 0
    requests: int | None = 1
    usage: Usage | None = None
    prompt: Prompt | None = None
    diagnostics: MissReason | None = None
    stop_reason: str | None = None
    error: CallError | None = None
    tool_seconds: float | None = None
    outcome: str | None = None
    reported_cost: Decimal | None = None
    currency: str = "USD"
    client: str | None = None
    boundaries: tuple[Boundary, ...] = ()
    origin: Origin | None = None
    dedupe_key: str | None = None
    relative_time: bool = False
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def at(self) -> float | None:
        """Best single moment for ordering and pricing: the start, else the earliest known time."""
        if self.started_at is not None:
            return self.started_at
        if self.start_span is not None:
            return self.start_span.high
        return self.first_token_at if self.first_token_at is not None else self.ended_at

    @property
    def start_bounds(self) -> Span | None:
        """Interval that holds the request start; both ends equal where it is exact."""
        if self.started_at is not None:
            return Span(self.started_at, self.started_at)
        return self.start_span


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one session, every lane, in order of time within each lane.

    Attributes:
        id: Session id.
        source: Name of the source that read it.
        calls: The calls; those of one lane are in the order in which they were made.
        project: Folder or project name, where the source has one.
    """

    id: str
    source: str
    calls: tuple[Call, ...]
    project: str | None = None

    def lanes(self) -> dict[str, list[Call]]:
        """Group the calls by lane, keeping their order; the lane of the first call comes first."""
        grouped: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            grouped[call.lane].append(call)
        return dict(grouped)

"""What callers hand to the engine and what they get back.

Everything here is frozen data; nothing imports torch, so a server can name these types before a
model is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from local_backend.kvcache.keys import Span


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP_TOKEN = "stop_token"  # noqa: S105 - a reason, no secret
    STOP_SEQUENCE = "stop_sequence"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: 0 takes the most likely token.
        top_k: Candidates kept; None for all.
        top_p: Probability mass kept, 0 < top_p <= 1.
        seed: Of the request's own random numbers. Two requests with equal seeds draw equal
            numbers at equal positions, whatever else runs in the batch.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One prompt and how far to continue it.

    Attributes:
        name: Unique among the live requests.
        tokens: The prompt; at least one token.
        spans: Which of them are placeholders for media, by digest.
        max_tokens: Most tokens to generate; 0 computes and caches the prompt only.
        sampling: How tokens are chosen.
        stop_sequences: Texts that end the answer; they are not part of it.
        salt: Isolation of the cache: a workspace, a user; requests of two salts share nothing.
        adapter: Identity of an adapter on the weights; None for none.
        hit_limit: Most prompt tokens that may be reused; None for all that can be.
        deadline_s: Seconds after submission at which it is given up; None for never.
    """

    name: str
    tokens: tuple[int, ...]
    spans: tuple[Span, ...] = ()
    max_tokens: int = 16
    sampling: Sampling = field(default_factory=Sampling)
    stop_sequences: tuple[str, ...] = ()
    salt: str | None = None
    adapter: str | None = None
    hit_limit: int | None = None
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptUsage:
    """What the cache did for a prompt, known when its first token is.

    Attributes:
        prompt: Tokens of the prompt.
        hit: Of these, not computed: resident, copied, restored or joined.
        computed: Of these, computed by the model for this request.
        joined: Part of ``hit`` that a request running beside it computed meanwhile.
        restored: Part of ``hit`` that came back from a tier.
        restore_s: Seconds that restoring took.
        limited_by: Group of layers that allowed the shortest hit; None where all agreed.
    """

    prompt: int
    hit: int
    computed: int
    joined: int = 0
    restored: int = 0
    restore_s: float = 0.0
    limited_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The prompt is in the cache; the first token follows at once.

    Attributes:
        name: Of the request.
        usage: What the cache did.
        queue_s: Seconds from submission until it was admitted.
        prefill_s: Seconds from admission until now.
    """

    name: str
    usage: PromptUsage
    queue_s: float
    prefill_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One generated token.

    Attributes:
        name: Of the request.
        token: Its id.
        text: The text that it completed; held back while it may be part of a stop sequence.
    """

    name: str
    token: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of an answer; always the last event of a request.

    Attributes:
        name: Of the request.
        reason: Why it ended.
        text: Text that was still held back and belongs to the answer.
        output_tokens: Tokens generated, the one that stopped it included.
        stop_sequence: The one that was met; None for none.
        error: What went wrong, where the reason is ``FAILED``.
    """

    name: str
    reason: FinishReason
    text: str
    output_tokens: int
    stop_sequence: str | None = None
    error: str | None = None


Event = Started | Piece | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """Pages of one group of layers; ``available + evictable + protected = total``."""

    available: int
    evictable: int
    protected: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """The engine at one moment, and what it did since it started.

    Attributes:
        pools: Pages by group.
        waiting: Requests not admitted yet.
        running: Requests admitted and not ended.
        steps: Passes through the model.
        prompt_tokens: Tokens of all prompts started.
        hit_tokens: Of these, not computed.
        computed_tokens: Prompt tokens computed.
        output_tokens: Tokens generated.
        finished: Answers ended, by reason.
        preempted: Requests that gave their pages back to be computed again later.
        evicted_pages: Pages evicted.
        refused: Submissions turned away because the queue was full.
        recomputed_tokens: Tokens computed once more for requests that had given way; not part of
            the other counts.
    """

    pools: dict[str, PoolStats]
    waiting: int
    running: int
    steps: int
    prompt_tokens: int
    hit_tokens: int
    computed_tokens: int
    output_tokens: int
    finished: dict[str, int]
    preempted: int
    evicted_pages: int
    refused: int
    recomputed_tokens: int = 0

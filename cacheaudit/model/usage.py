"""Token counts of one call in five disjoint input parts, whatever the provider's dialect was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Ttl = Literal["5m", "1h", "30m", "12h", "other"]
TTLS: tuple[Ttl, ...] = ("5m", "1h", "30m", "12h", "other")

FLAG_NEGATIVE = "negative_part"
FLAG_SPLIT = "write_split_differs_from_total"
FLAG_CACHE_OVER_INPUT = "cache_exceeds_input"
FLAG_TOTAL = "parts_differ_from_total"
FLAG_FIELDS_DISAGREE = "fields_disagree"
FLAG_TTL_ASSUMED = "write_ttl_assumed"
FLAG_OUTPUT_LOWER_BOUND = "output_is_lower_bound"
FLAG_NOT_BILLED = "not_billed"
FLAG_SPLIT_UNKNOWN = "cache_split_unknown"
FLAG_BAD_TYPE = "wrong_type"


class UsagePart(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One separately billed entry of a call (``usage.iterations[]``).

    ``kind`` is ``message``, ``compaction``, ``advisor_message`` or ``fallback_message``; ``model``
    is ``None`` where the call's own model did the work. Fields as in :class:`Usage`.
    """

    kind: str
    model: str | None = None
    uncached_input: int | None = None
    cache_read: int | None = None
    write_5m: int | None = None
    write_1h: int | None = None
    write_30m: int | None = None
    write_12h: int | None = None
    write_other: int | None = None
    output: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What one call consumed.

    A token is counted once: it was sent uncached, read from the cache, or written to it. The
    wire field ``input_tokens`` of the Anthropic dialect is ``uncached_input`` here; that of
    the OpenAI dialect is ``total_input``.

    Attributes:
        total_input: All input tokens, cached or not.
        uncached_input: Input that was neither read from nor written to a cache.
        cache_read: Input served from a cache.
        write_5m: Input written with a five-minute lifetime.
        write_1h: Input written with a one-hour lifetime.
        write_30m: Input written with a thirty-minute lifetime (OpenAI).
        write_12h: Input written with a twelve-hour lifetime (OpenAI).
        write_other: Input written with a lifetime that the record does not tell.
        write_other_ttl: The lifetime that ``write_other`` is billed at, where it can be inferred
            from the request's markers or the provider's default; the flag
            ``write_ttl_assumed`` goes with it.
        output: Output tokens, reasoning included.
        reasoning: The part of ``output`` that was reasoning.
        context_input: Prompt size of the last model pass, where the call made several passes
            and ``total_input`` is their sum.
        service_tier: ``standard``, ``priority``, ``batch``, ``flex`` … as reported.
        speed: ``standard`` or ``fast`` as reported.
        inference_geo: Where the model ran, as reported.
        web_searches: Web searches billed with the call.
        parts: Entries billed one by one; where present they are what is billed and their sum is
            what the other fields hold.
        dialect: Name of the dialect that the record was written in.
        flags: Contradictions and assumptions, by the ``FLAG_`` names of this module.
    """

    total_input: int | None = None
    uncached_input: int | None = None
    cache_read: int | None = None
    write_5m: int | None = None
    write_1h: int | None = None
    write_30m: int | None = None
    write_12h: int | None = None
    write_other: int | None = None
    write_other_ttl: Ttl | None = None
    output: int | None = None
    reasoning: int | None = None
    context_input: int | None = None
    service_tier: str | None = None
    speed: str | None = None
    inference_geo: str | None = None
    web_searches: int | None = None
    parts: tuple[UsagePart, ...] = ()
    dialect: str = ""
    flags: tuple[str, ...] = ()

    @property
    def cache_write(self) -> int | None:
        """All tokens written to a cache, or ``None`` where no write field is known."""
        five, hour = self.write_5m, self.write_1h
        if self.write_30m is None and self.write_12h is None and self.write_other is None:
            if five is None or hour is None:
                return hour if five is None else five
            return five + hour
        return add(five, hour, self.write_30m, self.write_12h, self.write_other)

    @property
    def prompt_size(self) -> int | None:
        """Tokens of the prompt that the model saw last: what the next call's prefix is made of."""
        return self.total_input if self.context_input is None else self.context_input

    @property
    def is_split_known(self) -> bool:
        """Whether every input token can be billed: uncached and read are both known."""
        return self.uncached_input is not None and self.cache_read is not None


def add(*counts: int | None) -> int | None:
    """Sum the known counts; ``None`` where none is known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def sum_parts(parts: Iterable[UsagePart], field: str) -> int | None:
    """Sum one field over billed entries; ``None`` where no entry knows it."""
    return add(*(getattr(part, field) for part in parts))

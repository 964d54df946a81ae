"""The one result of an audit, which every renderer reads. Its JSON form is a public contract.

Money and input equivalents are decimal strings here, written by ``cacheaudit.model.money.plain``,
so that no rendering can round them; ``None`` is *not known*.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

AUDIT_SCHEMA = "cacheaudit.audit/1"
USAGE_SCHEMA = "cacheaudit.usage/1"
DIFF_SCHEMA = "cacheaudit.diff/1"


class Tool(msgspec.Struct, frozen=True):
    """What made the result."""

    version: str
    rules_version: str
    prices_as_of: str


class Scope(msgspec.Struct, frozen=True):
    """What was read. ``first`` and ``last`` are RFC 3339, ``None`` where times are unknown."""

    sources: dict[str, int]
    sessions: int
    calls: int
    first: str | None
    last: str | None
    files: int = 0
    bytes: int = 0


class CostTotal(msgspec.Struct, frozen=True):
    """Money: what the price tables say and what the records themselves say, never mixed."""

    computed: str | None
    reported: str | None
    currency: str
    unpriced_calls: int
    reason: str | None = None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Token and money totals over any set of calls."""

    calls: int = 0
    uncached_input: int | None = None
    cache_read: int | None = None
    cache_write: dict[str, int | None] = {}
    output: int | None = None
    output_is_lower_bound: bool = False
    total_input: int | None = None
    hit_ratio: float | None = None
    input_equivalents: str | None = None
    cost: CostTotal


class Predicted(msgspec.Struct, frozen=True):
    """What the provider's rules say a call should have read and written."""

    cache_read: int | None
    cache_write: int | None
    uncached_input: int | None


class ChangeRow(msgspec.Struct, frozen=True):
    """First change against the call before it."""

    level: str
    path: str
    byte_offset: int
    kind: str
    tokens_after: int | None


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the result."""

    id: str
    session: str
    lane: str
    purpose: str
    provider: str | None
    model: str | None
    started_at: str | None
    total_input: int | None
    cache_read: int | None
    cache_write: int | None
    uncached_input: int | None
    output: int | None
    predicted: Predicted | None = None
    cost: str | None = None
    first_change: ChangeRow | None = None
    where: str | None = None


class RivalRow(msgspec.Struct, frozen=True):
    """Another cause that the record allows."""

    rule: str
    why: str


class PlaceRow(msgspec.Struct, frozen=True):
    """Where in the prompt."""

    level: str
    path: str
    byte_offset: int


class LossRow(msgspec.Struct, frozen=True):
    """What something cost or would save."""

    input_equivalents: str
    cost: str | None


class FixRow(msgspec.Struct, frozen=True):
    """What to do about a finding."""

    title: str
    patch: str | None
    saves_alone: LossRow | None


class FindingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of the result."""

    id: str
    rule: str
    name: str
    title: str
    verdict: str
    evidence: str
    kind: str
    session: str | None
    calls: list[str]
    established: list[str]
    to_check: list[str]
    rivals: list[RivalRow]
    first_change: PlaceRow | None
    tokens_lost: int
    lost: LossRow | None
    fix: FixRow | None


class WhatIf(msgspec.Struct, frozen=True):
    """What every fix together would make of the bill; filled by simulation."""

    all_fixes: dict[str, Any] | None = None
    scenarios: list[dict[str, Any]] = []


class Simulation(msgspec.Struct, frozen=True):
    """How well the provider's rules, replayed, explain what was reported."""

    exact_calls: int | None = None
    calls: int | None = None
    mean_abs_error_tokens: float | None = None
    unexplained_tokens: int | None = None


class Quality(msgspec.Struct, frozen=True):
    """Something about the data that limits what can be said."""

    kind: str
    count: int
    examples: list[str]


class Group(msgspec.Struct, frozen=True):
    """Totals under one key (a day, a session, a model, a purpose, an agent)."""

    key: str
    totals: Totals


class PriceUsed(msgspec.Struct, frozen=True):
    """A price row that the result rests on."""

    id: str
    provider: str
    model: str
    currency: str
    rates: dict[str, str]
    valid_from: str | None
    source: str
    checked: str
    note: str | None = None


class AuditResult(msgspec.Struct, kw_only=True):
    """Everything an audit says.

    ``calls`` may be read more than once but is kept on disk when it is long, so that memory does
    not grow with the history.
    """

    tool: Tool
    scope: Scope
    totals: Totals
    calls: Iterable[CallRow]
    findings: list[FindingRow]
    what_if: WhatIf
    simulation: Simulation
    data_quality: list[Quality]
    by_model: list[Group] = []
    by_purpose: list[Group] = []
    by_session: list[Group] = []
    prices: list[PriceUsed] = []
    schema: str = AUDIT_SCHEMA


class UsageResult(msgspec.Struct, kw_only=True):
    """Totals only."""

    tool: Tool
    scope: Scope
    by: str
    totals: Totals
    groups: list[Group]
    data_quality: list[Quality]
    schema: str = USAGE_SCHEMA


class DiffSide(msgspec.Struct, frozen=True):
    """One of the two requests that are compared."""

    where: str
    provider: str
    model: str | None
    content_blocks: int
    tokens: int | None
    tokens_origin: str | None


class DiffChange(msgspec.Struct, frozen=True):
    """Where the second request leaves the first.

    ``before`` and ``after`` say what stands there; ``before_text`` and ``after_text`` show it, with
    letters and digits masked unless the text was asked for.
    """

    level: str
    path: str
    byte_offset: int
    kind: str
    tokens_after: int | None
    tokens_origin: str | None = None
    prompt_byte_offset: int = 0
    before: str | None = None
    after: str | None = None
    before_text: str | None = None
    after_text: str | None = None
    masked: bool = True


class DiffCommon(msgspec.Struct, frozen=True):
    """Equal leading content blocks of tools and system, whole messages, and blocks in all."""

    tools: int
    system: int
    messages: int
    content_blocks: int


class DiffCost(msgspec.Struct, frozen=True):
    """What the change costs: writing the tokens behind it instead of reading them."""

    amount: str
    currency: str
    input_equivalents: str | None
    write_ttl: str
    price_id: str
    source: str
    checked: str


class DiffResult(msgspec.Struct, frozen=True, kw_only=True):
    """The first change between two requests."""

    equal: bool
    relation: str
    first_change: DiffChange | None
    common: DiffCommon
    cost: DiffCost | None
    cost_reason: str | None
    a: DiffSide
    b: DiffSide
    schema: str = DIFF_SCHEMA

"""The one result of an audit, which every renderer reads. Its JSON form is a public contract.

Money and input equivalents are decimal strings here, written by ``cacheaudit.model.money.plain``,
so that no rendering can round them; ``None`` is *not known*.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cacheaudit.report.diff_result import DIFF_SCHEMA as DIFF_SCHEMA
from cacheaudit.report.diff_result import DiffChange as DiffChange
from cacheaudit.report.diff_result import DiffCommon as DiffCommon
from cacheaudit.report.diff_result import DiffCost as DiffCost
from cacheaudit.report.diff_result import DiffResult as DiffResult
from cacheaudit.report.diff_result import DiffSide as DiffSide

AUDIT_SCHEMA = "cacheaudit.audit/1"
USAGE_SCHEMA = "cacheaudit.usage/1"


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
    """Money: what the price tables say and what the records themselves say, never mixed.

    ``reported_calls``: of how many calls the record states the cost.
    """

    computed: str | None
    reported: str | None
    currency: str
    unpriced_calls: int
    reason: str | None = None
    reported_calls: int = 0


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Token and money totals over any set of calls.

    ``unweighted_calls``: calls whose weight is unknown, so that ``input_equivalents`` lacks them.
    ``unknown_calls``: calls of which a part is unknown, by ``uncached_input``, ``cache_read``,
    ``cache_write``, ``output`` and ``total_input``; the sum of such a part is a lower bound, and
    ``None`` where no call knows it.
    """

    calls: int = 0
    uncached_input: int | None = None
    cache_read: int | None = None
    cache_write: dict[str, int | None] = {}
    output: int | None = None
    output_is_lower_bound: bool = False
    total_input: int | None = None
    hit_ratio: float | None = None
    input_equivalents: str | None = None
    unweighted_calls: int = 0
    unknown_calls: dict[str, int] = {}
    cost: CostTotal


class Predicted(msgspec.Struct, frozen=True, gc=False):
    """What the provider's rules say a call should have read and written.

    ``why`` says why it should not have read more, in a word: ``expired``, ``below_minimum`` …
    """

    cache_read: int | None
    cache_write: int | None
    uncached_input: int | None
    why: str | None = None


class ChangeRow(msgspec.Struct, frozen=True):
    """First change against the call before it.

    ``before`` and ``after`` say what stood there and stands there now; ``before_text`` and
    ``after_text`` show it around the change, letters and digits masked unless the text was asked
    for.
    """

    level: str
    path: str
    byte_offset: int | None
    kind: str
    tokens_after: int | None
    before: str | None = None
    after: str | None = None
    before_text: str | None = None
    after_text: str | None = None
    masked: bool = True


class Strip(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of a call as a row of levels, in tokens.

    Attributes:
        parts: (level, tokens) in render order.
        marks: Cache markers: tokens of the prompt up to and including the marked content block.
        change: Tokens before the first difference from the previous call of the lane.
        scaled: Sizes of content blocks are not known; widths follow their bytes.
    """

    parts: list[tuple[str, int]]
    marks: list[int] = []
    change: int | None = None
    scaled: bool = False


class CallRow(msgspec.Struct, frozen=True, gc=False):
    """One call of the result.

    Attributes:
        predicted: By the provider's rules; ``None`` where the call was not simulated.
        writes: Tokens written, by lifetime; ``None`` where the record does not split them.
        price: Id of the price row that ``cost`` rests on.
        reported_cost: Cost that the record itself states.
        first_token_seconds: From the start of the request to the first streamed token.
        alive_seconds: How long what this call read or wrote lives, from the start of the request.
        events: What lies between the call before it in its lane and this one: ``compaction``,
            ``clear``, ``resume``, ``branch``; ``retry`` for a repeated attempt.
        reason: The provider's own word on a miss.
        strip: The prompt's levels, where bodies were recorded.
        output_is_lower_bound: The record was written before the end of the output.
    """

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
    writes: dict[str, int] | None = None
    price: str | None = None
    reported_cost: str | None = None
    first_token_seconds: float | None = None
    alive_seconds: int | None = None
    events: list[str] = []
    reason: str | None = None
    strip: Strip | None = None
    output_is_lower_bound: bool = False


class RivalRow(msgspec.Struct, frozen=True):
    """Another cause that the record allows."""

    rule: str
    why: str


class PlaceRow(msgspec.Struct, frozen=True):
    """Where in the prompt."""

    level: str
    path: str
    byte_offset: int | None


class LossRow(msgspec.Struct, frozen=True):
    """What something cost or would save; negative where it costs more."""

    input_equivalents: str
    cost: str | None


class SavingRow(msgspec.Struct, frozen=True):
    """A difference of two bills; negative where the second costs more, ``None`` where unknown."""

    input_equivalents: str | None
    cost: str | None


class FixRow(msgspec.Struct, frozen=True):
    """What to do about a finding.

    ``edit`` is the fix as ``simulate --edit`` takes it, where the simulator can run it.
    """

    title: str
    patch: str | None
    saves_alone: LossRow | None
    edit: str | None = None


class LossPlace(msgspec.Struct, frozen=True):
    """What one call of a finding lost."""

    call: str
    tokens_lost: int
    lost: LossRow | None = None


class FindingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of the result; ``no_fix`` says why the usual fix is not advised."""

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
    places: list[LossPlace] = []
    no_fix: str | None = None


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """The same calls under another setting, simulated.

    Attributes:
        name: In kebab case. ``no-caching`` and ``ideal`` are the two ends of the score.
        title: One line.
        calls: Calls that the sums are of.
        uncached_input: Tokens neither read nor written.
        cache_read: Tokens read.
        cache_write: Tokens written, whatever their lifetime.
        hit_ratio: Read of all input.
        input_equivalents: In ordinary input tokens.
        cost: Money, output included; ``None`` where no price is known.
        saves: Against ``WhatIf.baseline``; negative where it costs more.
        added_calls: Calls that were not in the record, such as refreshes.
        own_costs: What the setting itself costs; contained in ``saves``.
        refused: Why it cannot be said; the sums are ``None`` then.
        left_out: Edits that do not go with the others: name → reason.
        command: Command line that works it out again.
        unknown_calls: Calls that do not tell a part, by its name: the sum is a lower bound.
        unjudged: Calls that stand in the sums as they were billed, and that ``command``, where it
            is a backtest, leaves out: reason → how many.
    """

    name: str
    title: str = ""
    calls: int | None = None
    uncached_input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    hit_ratio: float | None = None
    input_equivalents: str | None = None
    cost: str | None = None
    saves: SavingRow | None = None
    added_calls: int = 0
    own_costs: SavingRow | None = None
    refused: str | None = None
    left_out: dict[str, str] = {}
    command: str | None = None
    unknown_calls: dict[str, int] = {}
    unjudged: dict[str, int] = {}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One fix on top of those before it.

    Attributes:
        name: Name of the edit.
        title: Imperative.
        saves: On top of the steps before it; negative where it costs more.
        alone: What it saves by itself.
        findings: Ids of the findings that it mends.
        edit: As ``simulate --edit`` takes it.
    """

    name: str
    title: str
    saves: SavingRow
    alone: SavingRow | None = None
    findings: list[str] = []
    edit: str | None = None


class WhatIf(msgspec.Struct, frozen=True):
    """What fixes would make of the bill; filled by simulation.

    Attributes:
        all_fixes: All fixes at once, in the shape of :class:`Scenario`.
        scenarios: Other settings, each in the shape of :class:`Scenario`.
        reported: The simulated calls as they were billed.
        baseline: The same calls as simulated without any change.
        waterfall: Fixes one after another: ``baseline`` less what all steps save is exactly
            ``all_fixes``.
        low: Least that all fixes together save, under the disputed rules and chances.
        high: Most that they save.
        reason: Why there is no simulation, or no range, where there is none.
    """

    all_fixes: Scenario | dict[str, Any] | None = None
    scenarios: list[Scenario | dict[str, Any]] = []
    reported: Scenario | None = None
    baseline: Scenario | None = None
    waterfall: list[Step] = []
    low: SavingRow | None = None
    high: SavingRow | None = None
    reason: str | None = None


class SwitchRow(msgspec.Struct, frozen=True):
    """A provider rule that is disputed in public, and what it is taken to be.

    Attributes:
        name: As ``--switch`` takes it.
        value: Value in force.
        default: Value where nobody says otherwise; ``auto`` follows the dated facts.
        since: Day of the source of the default.
        source: Where the default comes from.
    """

    name: str
    value: str
    default: str
    since: str
    source: str


class Simulation(msgspec.Struct, frozen=True):
    """How well the provider's rules, replayed, explain what was reported.

    Attributes:
        exact_calls: Calls whose predicted read is the reported one.
        calls: Calls with both.
        mean_abs_error_tokens: Mean distance of the reads.
        unexplained_tokens: Tokens that should have been read and were not.
        exact_writes: Calls whose writes are predicted exactly too.
        surplus_tokens: Tokens that were read and should not have been.
        refused: Calls without a prediction, by reason.
        modes: Calls by what their prediction rests on: ``bodies`` or ``sizes``.
        switches: Disputed rules in force, by name; ``auto`` follows the dated facts.
        disputed: The same with their defaults and whose word these are.
        assumed: Facts in use that rest on one secondary source or on inference.
    """

    exact_calls: int | None = None
    calls: int | None = None
    mean_abs_error_tokens: float | None = None
    unexplained_tokens: int | None = None
    exact_writes: int | None = None
    surplus_tokens: int | None = None
    refused: dict[str, int] = {}
    modes: dict[str, int] = {}
    switches: dict[str, str] = {}
    disputed: list[SwitchRow] = []
    assumed: list[str] = []


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


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """One tool that requests declared.

    Attributes:
        name: Name of the tool.
        tokens: Size of its definition, the largest seen; ``None`` where not known.
        calls: Calls that declared it.
        used: Times that the model used it, as far as later requests show; ``None`` where the text
            of requests was not kept.
        versions: Different definitions under its name.
        churn: Times that it came, went or moved between two calls of a lane.
    """

    name: str
    tokens: int | None
    calls: int
    used: int | None
    versions: int = 1
    churn: int = 0


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the catalogue and how it went.

    ``state`` is ``found``, ``clear`` (it looked and found nothing), ``not_applicable`` (the record
    lacks what it needs; ``why`` says what), ``failed`` or ``off`` (it was not run).
    """

    rule: str
    name: str
    title: str
    state: str
    why: str | None = None


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of the provider's that the result rests on, such as a lifetime or a minimum size."""

    model: str
    name: str
    value: str
    source: str | None = None
    checked: str | None = None


class AuditResult(msgspec.Struct, kw_only=True):
    """Everything an audit says.

    ``calls`` may be read more than once but is kept on disk when it is long, so that memory does
    not grow with the history. ``command`` is the command line that made it; ``diagnosed`` is false
    where no rule was run, so that the absence of findings says nothing.
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
    tools: list[ToolUse] = []
    checks: list[Check] = []
    diagnosed: bool = True
    facts: list[Fact] = []
    command: str | None = None
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

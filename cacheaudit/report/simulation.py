"""The result of ``cacheaudit simulate``: predicted against reported. A public contract."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cacheaudit.report import format as fmt
from cacheaudit.report.result import SwitchRow, WhatIf

SIMULATION_SCHEMA = "cacheaudit.simulation/1"
_NOTES = {
    "expired": "a longer prefix had outlived its lifetime",
    "below_minimum": "a marked prefix is shorter than the model's minimum",
    "not_yet_readable": "a longer prefix was still being written",
    "beyond_lookback": "a longer prefix lies out of reach of every marker",
    "no_marker": "nothing is marked",
    "best_effort": "the provider promises nothing",
    "may_live_longer": "lifetimes are minimum lifetimes",
    "cache_object": "reads a cache object",
}


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """How the input of a call is split.

    Attributes:
        cache_read: Tokens read.
        cache_write: Tokens written.
        uncached_input: Tokens neither read nor written.
        cache_write_by_ttl: ``cache_write`` by lifetime.
        hit_from: Call that wrote what is read.
        notes: Why not more was read.
        refused: Why the provider would refuse the request.
    """

    cache_read: int | None
    cache_write: int | None
    uncached_input: int | None
    cache_write_by_ttl: dict[str, int] = {}
    hit_from: str | None = None
    notes: tuple[str, ...] = ()
    refused: str | None = None


class SimulatedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call.

    Attributes:
        id: Call id.
        session: Its session.
        lane: Its lane.
        mode: What the prediction rests on: ``bodies`` or ``sizes``; ``none`` without one.
        predicted: What the cache should have done; ``None``: that cannot be said.
        reported: What was billed; ``None`` for a call that an edit adds.
        exact: Both reads are equal.
        error_tokens: Predicted minus reported read.
        refused: Why nothing is predicted, in a word.
        detail: The same in more words.
    """

    id: str
    session: str
    lane: str
    mode: str
    predicted: Parts | None
    reported: Parts | None
    exact: bool
    error_tokens: int | None
    refused: str | None = None
    detail: str = ""


class SimulatedTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the calls that have a prediction; money and equivalents are decimal strings.

    A part that no call tells is ``None``; ``unknown_calls`` counts those that do not tell a part,
    by its name: its sum is a lower bound.
    """

    calls: int
    total_input: int | None
    uncached_input: int | None
    cache_read: int | None
    cache_write: dict[str, int] | None
    hit_ratio: str | None
    input_equivalents: str | None
    cost: str | None
    currency: str
    unknown_calls: dict[str, int] = {}


class SimulationAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How well predictions and reports agree; see :class:`cacheaudit.simulate.run.Accuracy`."""

    calls: int
    exact_calls: int
    exact_writes: int
    mean_abs_error_tokens: float | None
    unexplained_tokens: int
    surplus_tokens: int
    refused: dict[str, int]


class ForcedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A forced tool against asking freely first, in input equivalents of the calls concerned.

    Attributes:
        calls: Ids of the calls whose cost depends on the path.
        forced: The tool is always forced.
        complies: Free, and the model calls the tool.
        retry: Free, it does not, and the forced request follows.
        break_even: Least share of compliance from which asking freely pays.
        compliance: A probability that the edit names.
        expected: What asking freely is to be expected to cost at that.
        saves: What it then saves; may be negative.
    """

    calls: list[str]
    forced: str | None
    complies: str | None
    retry: str | None
    break_even: float | None
    compliance: float | None = None
    expected: str | None = None
    saves: str | None = None


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result.

    Attributes:
        schema: Name and version of this shape.
        calls: In order of start.
        totals: What the predictions add up to.
        reported: What was billed for the same calls.
        accuracy: How well both agree; without meaning where edits were made.
        rules_version: Day of the newest provider rule.
        switches: Disputed rules that were set to something else than their default.
        disputed: All of them as they are in force, with their defaults and whose word these are.
        edits: What was changed before the simulation.
        refused: Changes that the record does not allow, as they were asked for, with the reason.
        what_if: What the changes save, alone and together; ``None`` where nothing was changed.
        forced: The paths of a forced tool, where `auto-tool-choice` is one of the edits.
        assumed: Provider rules in use that rest on one secondary source or on inference.
        problems: What could not be read, by kind.
    """

    schema: str = SIMULATION_SCHEMA
    calls: list[SimulatedCall]
    totals: SimulatedTotals
    reported: SimulatedTotals
    accuracy: SimulationAccuracy
    rules_version: str
    switches: dict[str, str]
    disputed: list[SwitchRow] = []
    edits: list[str] = []
    refused: dict[str, str] = {}
    what_if: WhatIf | None = None
    forced: ForcedRow | None = None
    assumed: list[str] = []
    problems: dict[str, int] = {}


def simulation_text(result: SimulationResult) -> Iterator[RenderableType]:
    """Lay out a simulation: how good it is, the calls, the sums."""
    yield Text(_headline(result), style="bold")
    yield Text()
    yield _calls(result)
    yield Text()
    yield _totals(result)
    yield from _remarks(result)


def _headline(result: SimulationResult) -> str:
    if result.edits:
        return f"Simulated with {', '.join(map(fmt.printable, result.edits))}."
    found = result.accuracy
    if not found.calls:
        return "Nothing could be predicted."
    share = fmt.ratio(found.exact_calls / found.calls)
    said = f"{found.exact_calls:,} of {fmt.plural(found.calls, 'predicted read')} exact ({share})"
    if found.exact_calls == found.calls:
        return f"{said}."
    return f"{said}; mean distance {found.mean_abs_error_tokens:,} tokens."


def _calls(result: SimulationResult) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for head in ("call", "lane"):
        table.add_column(head, overflow="ellipsis", no_wrap=True)
    for head in ("read", "reported", "written", "reported", "off by"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", overflow="fold", style="dim")
    for call in result.calls:
        mine, theirs = call.predicted, call.reported
        style = "yellow" if call.error_tokens else ""
        table.add_row(
            fmt.printable(fmt.short_id(call.id)),
            fmt.printable(call.lane),
            fmt.count(mine.cache_read if mine else None),
            fmt.count(theirs.cache_read if theirs else None),
            fmt.count(mine.cache_write if mine else None),
            fmt.count(theirs.cache_write if theirs else None),
            "" if not call.error_tokens else f"{call.error_tokens:+,}",
            _why(call),
            style=style,
        )
    return table


def _why(call: SimulatedCall) -> str:
    if call.predicted is None:
        return fmt.printable(call.detail or call.refused or "")
    if call.predicted.refused:
        return f"the provider would refuse it: {fmt.printable(call.predicted.refused)}"
    notes = (n for n in call.predicted.notes if n != "best_effort")
    return "; ".join(_NOTES.get(note, note) for note in notes)


def _totals(result: SimulationResult) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("")
    for head in ("input", "read", "written", "uncached", "equivalents", "cost"):
        table.add_column(head, justify="right", no_wrap=True)
    for name, totals in (("predicted", result.totals), ("reported", result.reported)):
        writes = None if totals.cache_write is None else sum(totals.cache_write.values())
        table.add_row(
            name,
            _sum(totals, "total_input", totals.total_input),
            _sum(totals, "cache_read", totals.cache_read),
            _sum(totals, "cache_write", writes),
            _sum(totals, "uncached_input", totals.uncached_input),
            fmt.equivalents(totals.input_equivalents),
            fmt.amount(totals.cost, totals.currency),
        )
    return table


def _sum(totals: SimulatedTotals, part: str, value: int | None) -> str:
    return fmt.count_of(value, totals.unknown_calls.get(part, 0))


def _forced(row: ForcedRow | None) -> list[str]:
    if row is None:
        return []
    forced, complies, retry = (
        fmt.equivalents(value) for value in (row.forced, row.complies, row.retry)
    )
    said = (
        f"Forced tool: {forced} when always forced, {complies} when the model complies freely, "
        f"{retry} when it must be forced after all"
    )
    if row.compliance is not None:
        share = f"{row.compliance:.0%}"
        expected, saves = fmt.equivalents(row.expected), fmt.equivalents(row.saves)
        return [f"{said}; at {share} compliance {expected} are to be expected, {saves} saved."]
    if row.break_even is None:
        return [f"{said}."]
    return [f"{said}; asking freely pays from {fmt.ratio(row.break_even)} compliance."]


def _remarks(result: SimulationResult) -> Iterator[RenderableType]:
    lines = [f"Provider rules as of {result.rules_version}."]
    lines += _forced(result.forced)
    if result.switches:
        told = ", ".join(f"{name}={value}" for name, value in sorted(result.switches.items()))
        lines.append(f"Disputed rules set: {told}.")
    if result.accuracy.refused:
        told = ", ".join(f"{reason} {count:,}" for reason, count in result.accuracy.refused.items())
        lines.append(f"Without a prediction: {told}.")
    if result.accuracy.surplus_tokens and not result.edits:
        lines.append(
            f"{fmt.plural(result.accuracy.surplus_tokens, 'token was', 'tokens were')} read that "
            "nothing in the record wrote."
        )
    if any("best_effort" in c.predicted.notes for c in result.calls if c.predicted):
        lines.append("This provider caches without a promise; its predictions are best effort.")
    yield Text()
    for line in lines:
        yield Text(fmt.printable(line), style="dim")

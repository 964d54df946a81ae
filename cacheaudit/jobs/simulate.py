"""Plays recorded sessions through the providers' cache rules: predicted against reported."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.command import Commands
from cacheaudit.jobs.common import open_corpus, require_readable
from cacheaudit.jobs.inputs import Inputs, Progress
from cacheaudit.jobs.rulebook import switch_rows
from cacheaudit.jobs.whatif import what_if
from cacheaudit.model.call import Call
from cacheaudit.model.money import plain
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.simulation import (
    ForcedRow,
    Parts,
    SimulatedCall,
    SimulatedTotals,
    SimulationAccuracy,
    SimulationResult,
)
from cacheaudit.simulate.build import in_order
from cacheaudit.simulate.edit import Edit, apply_possible, edit_text
from cacheaudit.simulate.edits.auto_tool_choice import AutoToolChoice
from cacheaudit.simulate.forced import forced_paths
from cacheaudit.simulate.request import Outcome
from cacheaudit.simulate.run import SimCall, Totals, run
from cacheaudit.simulate.sizes import Known
from cacheaudit.simulate.sketch import sketched
from cacheaudit.simulate.switches import Switches
from cacheaudit.simulate.whatif import Lab


def simulate(
    inputs: Inputs,
    progress: Progress,
    *,
    switches: Switches,
    known: Path | None = None,
    edits: Sequence[Edit] = (),
) -> SimulationResult:
    """Simulate sessions.

    Args:
        inputs: What to read.
        progress: Told after every session.
        switches: Disputed rules.
        known: JSON file with what is known of calls besides their usage, by call id.
        edits: Changes to make before the simulation; of those that the record does not allow, the
            result says why.

    Raises:
        UsageError: A path does not exist, or ``known`` cannot be read.
    """
    problems = Problems()
    corpus = open_corpus(inputs, problems, progress)
    calls: Sequence[Call] = [
        call for session in corpus.sessions() for call in session.calls if _wanted(call, inputs)
    ]
    require_readable(corpus, problems)
    recorded = {call.id: call.usage for call in calls}
    facts = {} if known is None else _known(known, recorded.keys())
    base = _as_sent(calls) if edits else calls
    changed, refused = apply_possible(edits, base)
    made = [edit for edit in edits if edit_text(edit) not in refused]
    book = PriceBook(inputs.prices)
    found = run(changed, book, switches=switches, known=facts)
    # Edits add calls and change sizes: what was billed is what was recorded.
    billed = run(base, book, switches=switches, known=facts).reported if edits else found.reported
    return SimulationResult(
        calls=[_row(row, recorded.get(row.id)) for row in found.calls],
        totals=_totals(found.totals),
        reported=_totals(billed),
        accuracy=SimulationAccuracy(**msgspec.structs.asdict(found.accuracy)),
        rules_version=found.rules_version,
        switches=found.switches,
        disputed=switch_rows(switches),
        edits=[edit.name for edit in made],
        refused=refused,
        forced=_forced(calls, made, book, switches),
        what_if=what_if(calls, edits, book, switches, _commands(inputs, switches))
        if edits
        else None,
        assumed=list(found.assumed),
        problems={kind: count for kind, count, _ in problems.items()},
    )


def _as_sent(calls: Sequence[Call]) -> Sequence[Call]:
    """Return calls with the requests that edits change; from usage alone, sketches of them."""
    is_told = any(call.prompt is not None for call in calls)
    return calls if is_told else sketched(in_order(calls))


def _commands(inputs: Inputs, switches: Switches) -> Commands:
    changed = [f"{name}={value}" for name, value in switches.changed().items()]
    return Commands(inputs, [word for text in changed for word in ("--switch", text)])


def _forced(
    calls: Sequence[Call], edits: Sequence[Edit], book: PriceBook, switches: Switches
) -> ForcedRow | None:
    """Compare the paths of a forced tool where one of the edits is about it."""
    freed = next((edit for edit in edits if isinstance(edit, AutoToolChoice)), None)
    if freed is None:
        return None
    paths = forced_paths(Lab(calls, book, switches), freed.calls)
    even, share = paths.break_even, freed.compliance
    chance = None if share is None else Decimal(str(share))
    return ForcedRow(
        calls=list(paths.calls),
        forced=_text(paths.forced.input_equivalents),
        complies=_text(paths.complies.input_equivalents),
        retry=_text(paths.retry.input_equivalents),
        break_even=None if even is None else round(float(even), 6),
        compliance=share,
        expected=None if chance is None else _text(paths.expected(chance).input_equivalents),
        saves=None if chance is None else _text(paths.saves(chance).input_equivalents),
    )


def _wanted(call: Call, inputs: Inputs) -> bool:
    at = call.at
    if inputs.since is not None and (at is None or at < inputs.since):
        return False
    return inputs.until is None or (at is not None and at < inputs.until)


def _known(path: Path, ids: object) -> dict[str, Known]:
    """Read what a user knows of calls besides their usage."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Known])
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"Cannot read {str(path)!r}: {reason}.", "Check the path.") from error
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{str(path)!r} does not say what is known of calls: {error}.",
            'Write an object: {"call id": {"static": 7000, "changed": "tools", …}}.',
        ) from error
    strangers = [name for name in found if name not in ids]  # type: ignore[operator]
    if strangers:
        raise UsageError(
            f"{str(path)!r} names {strangers[0]!r}, which is no call of what was read.",
            "`cacheaudit simulate --json` lists the ids.",
        )
    return found


def _row(row: SimCall, recorded: Usage | None) -> SimulatedCall:
    return SimulatedCall(
        id=row.id,
        session=row.session,
        lane=row.lane,
        mode=row.mode,
        predicted=None if row.predicted is None else _predicted(row.predicted),
        reported=None if recorded is None else _reported(recorded),
        exact=row.exact,
        error_tokens=row.error_tokens,
        refused=row.refused,
        detail=row.detail,
    )


def _predicted(outcome: Outcome) -> Parts:
    return Parts(
        cache_read=outcome.read,
        cache_write=outcome.written,
        uncached_input=outcome.uncached,
        cache_write_by_ttl=dict(outcome.writes),
        hit_from=outcome.hit_from,
        notes=outcome.notes,
        refused=outcome.refused,
    )


def _reported(usage: Usage) -> Parts:
    fields = {"5m": usage.write_5m, "1h": usage.write_1h, "30m": usage.write_30m}
    fields |= {"12h": usage.write_12h, "other": usage.write_other}
    return Parts(
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        uncached_input=usage.uncached_input,
        cache_write_by_ttl={ttl: tokens for ttl, tokens in fields.items() if tokens},
    )


def _totals(totals: Totals) -> SimulatedTotals:
    return SimulatedTotals(
        calls=totals.calls,
        total_input=totals.total_input,
        uncached_input=totals.uncached_input,
        cache_read=totals.cache_read,
        cache_write=totals.cache_write,
        hit_ratio=_text(totals.hit_ratio),
        input_equivalents=_text(totals.input_equivalents),
        cost=_text(totals.cost),
        currency=totals.currency,
        unknown_calls=totals.unknown_calls,
    )


def _text(value: Decimal | None) -> str | None:
    return None if value is None else plain(value)

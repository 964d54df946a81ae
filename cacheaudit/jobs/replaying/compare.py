"""Predicted, reported and replayed side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cacheaudit.jobs.replaying.client import Failure
from cacheaudit.jobs.replaying.measure import Measured
from cacheaudit.jobs.replaying.plan import Step
from cacheaudit.jobs.replaying.send import Answer
from cacheaudit.jobs.replaying.why import Compared, Setting, is_refused, why
from cacheaudit.model.usage import Usage, add
from cacheaudit.report.replay import BackendRow, Reason, ReplayedCall, ReplayResult, ReplayTotals
from cacheaudit.report.simulation import Parts
from cacheaudit.simulate.build import Refusal
from cacheaudit.simulate.request import Outcome
from cacheaudit.simulate.run import SimCall

_SUMMED = ("cache_read", "cache_write", "uncached_input")
_ORDER = ("exact", "floored", "approximate")


class Row(msgspec.Struct, frozen=True):
    """One call: what was planned, what the simulator says, what came of it.

    Attributes:
        item: The plan, or why nothing was sent.
        simulated: Predicted and reported.
        answer: What came of the request; ``None`` where none was sent.
    """

    item: Step | Refusal
    simulated: SimCall
    answer: Answer | None


def result_of(
    rows: Sequence[Row],
    recorded: Mapping[str, Usage | None],
    setting: Setting,
    by_switch: Mapping[str, str],
    *,
    backend: str,
    content: str,
    rules_version: str,
    edits: list[str],
    refused: dict[str, str],
    problems: dict[str, int],
) -> ReplayResult:
    """Put a result together.

    Args:
        rows: In order of start.
        recorded: Usage of the recorded calls, by id.
        setting: What holds for all of them.
        by_switch: By call id, a disputed rule under which what was billed is predicted.
        backend: ``local`` or an address.
        content: ``filler`` or ``bodies``.
        rules_version: Day of the newest provider rule.
        edits: Changes that were made.
        refused: Changes that were not, with the reason.
        problems: What could not be read.
    """
    short: dict[str, bool] = {}
    calls = [_call(row, recorded, setting, by_switch, short) for row in rows]
    answers = [row.answer for row in rows if row.answer is not None]
    return ReplayResult(
        calls=calls,
        totals=_totals(calls, sum(short.values())),
        rules_version=rules_version,
        backend=BackendRow(
            url=backend,
            model=next((a.model for a in answers if a.model), None),
            rules=dict(Counter(a.rules for a in answers if a.rules)),
            content=content,
            sizes=max((a.counted for a in answers), key=_ORDER.index, default="exact"),
        ),
        clock=setting.clock,
        scale=setting.scale,
        switches=dict(setting.switches),
        edits=edits,
        refused=refused,
        problems=problems,
    )


def _call(
    row: Row,
    recorded: Mapping[str, Usage | None],
    setting: Setting,
    by_switch: Mapping[str, str],
    short: dict[str, bool],
) -> ReplayedCall:
    """Put one call together.

    ``short`` holds the calls that failed (true) or stored less than predicted (false), by id; this
    one is added where it belongs there.
    """
    item, simulated, answer = row.item, row.simulated, row.answer
    basis, reasons = "none", list[Reason]()
    if isinstance(item, Refusal):
        reasons = [Reason("not_sent", f"not sent: {item.detail or item.reason}")]
    elif answer is not None:
        basis = "usage" if item.is_sketch else "request"
        predicted = simulated.predicted
        after = None if predicted is None else predicted.hit_from
        compared = Compared(
            step=item,
            row=simulated,
            found=answer.found,
            rules=answer.rules,
            unsent=answer.unsent,
            is_floored=answer.counted == "floored",
            after=after if after in short else None,
            is_failed=after is not None and short.get(after, False),
            by_switch=by_switch.get(simulated.id),
        )
        reasons = why(compared, setting)
        if isinstance(answer.found, Failure):
            short[simulated.id] = not is_refused(simulated, answer.found)
        elif (
            predicted is not None
            and _stored(answer.found.parts) < predicted.read + predicted.written
        ):
            short[simulated.id] = False
    found = answer.found if answer is not None and isinstance(answer.found, Measured) else None
    usage = recorded.get(simulated.id)
    return ReplayedCall(
        id=simulated.id,
        session=simulated.session,
        lane=simulated.lane,
        basis=basis,
        predicted=None if simulated.predicted is None else _predicted(simulated.predicted),
        reported=None if usage is None else _reported(usage),
        replayed=None if found is None else found.parts,
        why=reasons,
        sent=None if found is None else found.sent,
        first_token_s=None if found is None else round(found.first_token_s, 6),
        restore_s=None if found is None else found.restore_s,
    )


def _stored(parts: Parts) -> int:
    return (parts.cache_read or 0) + (parts.cache_write or 0)


def _predicted(outcome: Outcome) -> Parts:
    return Parts(
        cache_read=outcome.read,
        cache_write=outcome.written,
        uncached_input=outcome.uncached,
        cache_write_by_ttl={ttl: tokens for ttl, tokens in outcome.writes.items() if tokens},
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


def _totals(calls: Sequence[ReplayedCall], failed: int) -> ReplayTotals:
    replayed = [call for call in calls if call.replayed is not None]
    compared = [call for call in replayed if call.predicted is not None]
    told = [c for c in replayed if c.reported is not None and c.reported.cache_read is not None]
    times = [call.first_token_s for call in replayed if call.first_token_s is not None]
    unknown = _unknown(call.reported for call in told)
    return ReplayTotals(
        calls=len(calls),
        replayed_calls=len(replayed),
        failed_calls=failed,
        compared_calls=len(compared),
        equal_calls=sum(agrees(c.predicted, c.replayed) for c in compared),
        reported_calls=len(told),
        reproduced_calls=sum(agrees(c.reported, c.replayed) for c in told),
        predicted=_sum(call.predicted for call in compared),
        reported=_sum(call.reported for call in told),
        replayed=_sum(call.replayed for call in replayed),
        sent=_sum(call.sent for call in replayed),
        first_token_s=round(sum(times), 6) if times else None,
        unknown_calls={"reported": unknown} if unknown else {},
    )


def agrees(one: Parts | None, other: Parts | None) -> bool:
    """Whether reads are equal, and writes where both are known."""
    if one is None or other is None or one.cache_read is None:
        return False
    if one.cache_read != other.cache_read:
        return False
    return None in (one.cache_write, other.cache_write) or one.cache_write == other.cache_write


def _sum(parts: Iterable[Parts | None]) -> Parts:
    """Add up what is known; a part that no call tells stays unknown."""
    known = [part for part in parts if part is not None]
    ttls: Counter[str] = Counter()
    for part in known:
        ttls.update(part.cache_write_by_ttl)
    return Parts(
        cache_read=add(*(part.cache_read for part in known)),
        cache_write=add(*(part.cache_write for part in known)),
        uncached_input=add(*(part.uncached_input for part in known)),
        cache_write_by_ttl=dict(ttls),
    )


def _unknown(parts: Iterable[Parts | None]) -> dict[str, int]:
    """Count the calls that do not tell a part."""
    known = [part for part in parts if part is not None]
    counts = {name: sum(getattr(part, name) is None for part in known) for name in _SUMMED}
    return {name: number for name, number in counts.items() if number}

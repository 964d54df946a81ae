"""Why predicted, reported and replayed differ, in the order of what says most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from cacheaudit.jobs.replaying.client import Failure
from cacheaudit.jobs.replaying.measure import Measured
from cacheaudit.jobs.replaying.plan import Step
from cacheaudit.report.replay import Reason
from cacheaudit.report.simulation import Parts
from cacheaudit.simulate.run import SimCall

_MISSES: Final[Mapping[str, str]] = {
    "not_marked": "the engine found no marker",
    "nothing_stored": "the engine had stored nothing that this prompt begins with",
    "lookback": "the engine's rules found what was stored out of reach of every marker",
    "expired": "the engine's rules let it expire",
    "not_readable_yet": "on the engine it was still being written",
}
_BAD_REQUEST: Final = 400
_TIMED: Final = frozenset({"expired", "not_yet_readable"})


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a replay as a whole.

    Attributes:
        clock: ``recorded`` or ``fast``.
        scale: Recorded tokens that one token stands for.
        switches: Disputed rules that the prediction was made with and the engine may not know.
        is_edited: Whether the calls were changed first.
    """

    clock: str
    scale: int
    switches: Mapping[str, str]
    is_edited: bool


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One call with all that is known of it.

    Attributes:
        step: What was planned.
        row: What the simulator says, and what was billed.
        found: What the engine did, or how the request failed.
        rules: Cache rules of the server, where it says so.
        unsent: Settings that could not be sent.
        is_floored: Whether content had to be sent larger than its scaled size.
        after: Id of a call whose entry this one would have read, but that failed or stored less.
        is_failed: Whether that one failed.
        by_switch: A disputed rule under which the prediction would be what was billed.
    """

    step: Step
    row: SimCall
    found: Measured | Failure
    rules: str | None
    unsent: tuple[str, ...] = ()
    is_floored: bool = False
    after: str | None = None
    is_failed: bool = False
    by_switch: str | None = None


def why(call: Compared, setting: Setting) -> list[Reason]:
    """Explain a call; empty where all that is known agrees."""
    found = call.found
    predicted = call.row.predicted
    if isinstance(found, Failure):
        if is_refused(call.row, found):
            return [Reason("refused", f"the server refuses it as the rules do: {found.detail}")]
        return [Reason("failed", _failed(found))]
    reasons: list[Reason] = []
    if predicted is None:
        reason = call.row.detail or call.row.refused or "no prediction"
        reasons.append(Reason("not_predicted", f"not predicted: {reason}"))
    elif (predicted.read, predicted.written) != _figures(found.parts):
        reasons += _engine_against_rules(call, found, setting)
    if not setting.is_edited:
        said = {reason.kind for reason in reasons}
        reasons += [reason for reason in _record(call, found) if reason.kind not in said]
    return reasons


def is_refused(row: SimCall, failure: Failure) -> bool:
    """Whether rules and server agree that a request is none."""
    refused = row.predicted is not None and row.predicted.refused is not None
    return refused and failure.status == _BAD_REQUEST


def _figures(parts: Parts) -> tuple[int | None, int | None]:
    return parts.cache_read, parts.cache_write


def _engine_against_rules(call: Compared, found: Measured, setting: Setting) -> Iterator[Reason]:
    """Say why the engine did something else than the simulator predicts."""
    said = False
    for reason in _known_causes(call, found, setting):
        said = True
        yield reason
    if said:
        return
    predicted = call.row.predicted
    if predicted is not None and (found.parts.cache_read or 0) < predicted.read and found.miss:
        text = _MISSES.get(found.miss, f"the engine says {found.miss}")
        yield Reason("engine_rules", f"{text}; the simulator's rules differ")
        return
    yield Reason("unexplained", "engine and simulator differ for no known reason")


def _known_causes(call: Compared, found: Measured, setting: Setting) -> Iterator[Reason]:
    predicted = call.row.predicted
    notes = frozenset(predicted.notes if predicted is not None else ())
    if call.step.is_sketch:
        text = "what was sent was drawn from what was billed; the prediction is made from sizes"
        yield Reason("sketched", text)
    is_short = predicted is not None and (found.parts.cache_read or 0) < predicted.read
    if call.after is not None and is_short:
        kind = "after_failure" if call.is_failed else "after_difference"
        what = "failed" if call.is_failed else "stored less than predicted"
        yield Reason(kind, f"it would have read what {call.after} stored, which {what}")
    if found.evicted:
        text = f"the engine no longer held {found.evicted:,} tokens: its memory is too small"
        yield Reason("evicted", text)
    if call.rules is not None and call.rules != call.step.rules:
        wanted = call.step.rules
        yield Reason("other_rules", f"the server follows {call.rules} rules, not {wanted}")
    elif call.step.rules == "implicit" and predicted is not None:
        yield Reason("other_rules", "the engine reads the longest prefix that it holds")
    if setting.clock == "fast" and notes & _TIMED:
        yield Reason("clock", "time stood still, so nothing expired or was still being written")
    if found.miss == "below_minimum" and "below_minimum" not in notes:
        text = "the engine's minimum is larger than the prefix"
        yield Reason("below_minimum", f"{text} at this scale" if setting.scale > 1 else text)
    if call.is_floored and "below_minimum" in notes and found.miss != "below_minimum":
        yield Reason("above_minimum", "JSON made a prefix longer than the minimum at this scale")
    if not found.is_whole and not found.evicted:
        yield Reason("granularity", "the engine reuses whole pages, not whole content blocks")
    if setting.switches:
        names = ", ".join(sorted(setting.switches))
        yield Reason("switch", f"the prediction follows {names}; the engine may not")
    if call.unsent:
        names = ", ".join(sorted(call.unsent))
        yield Reason("setting_not_sent", f"the engine cannot be told of {names}")


def _record(call: Compared, found: Measured) -> Iterator[Reason]:
    """Say why the engine did something else than what was billed."""
    usage = call.row.reported
    if usage is None or usage.cache_read is None:
        return
    reported = usage.cache_read, usage.cache_write
    mine = _figures(found.parts)
    if reported == mine or (reported[1] is None and reported[0] == mine[0]):
        return
    if call.step.is_sketch:
        yield Reason("sketched", "what was sent was drawn from usage, which cannot tell all of it")
    if call.step.sized == "estimated":
        yield Reason("size_unrecorded", "sizes of content blocks are estimated, not recorded")
    predicted = call.row.predicted
    if predicted is None or call.row.error_tokens is None:
        return
    if call.by_switch is not None:
        yield Reason("rule_version", f"the record fits {call.by_switch}: another rule was in force")
    elif (predicted.read, predicted.written) == mine:
        more = (reported[0] or 0) > (mine[0] or 0)
        text = "read more than its rules say" if more else "did not do what its rules say"
        yield Reason("provider", f"engine and rules agree; the provider {text}")


def _failed(failure: Failure) -> str:
    status = f" (HTTP {failure.status})" if failure.status else ""
    said = f": {failure.detail}" if failure.detail else ""
    return f"the request failed with {failure.kind}{status}{said}"

"""The text of ``s.report()``: what a session read and wrote, its cost, its losses and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from cacheaudit.agent.keep_alive.realised import realised
from cacheaudit.agent.recorder import RecorderState
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.model.call import Call, Session
from cacheaudit.model.finding import Finding
from cacheaudit.model.money import ZERO
from cacheaudit.model.usage import FLAG_OUTPUT_LOWER_BOUND, add
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.cost import price_call
from cacheaudit.report.format import count, money, plural, ratio

_CAUSES: Final = 5


def summary(name: str, sessions: Sequence[Session], state: RecorderState) -> str:
    """Write the report of a session.

    Args:
        name: Its id.
        sessions: What the store holds of it, one entry a source.
        state: What the recorder could not record.
    """
    calls = [call for session in sessions for call in session.calls]
    if not calls:
        return "\n".join([f"Session {name}: no calls recorded.", *_left_out(state)])
    book = PriceBook()
    lines = [_head(name, calls), *_tokens(calls), _cost(calls, book)]
    lines.extend(_refreshes(calls, book))
    for session in sessions:
        lines.extend(_losses(session, book))
    return "\n".join([*lines, *_left_out(state)])


def _head(name: str, calls: Sequence[Call]) -> str:
    purposes = Counter(call.purpose for call in calls)
    others = ", ".join(f"{n} {p}" for p, n in purposes.most_common() if p != "main")
    failed = sum(call.error is not None for call in calls)
    said = [others] if others else []
    if failed:
        said.append(f"{failed} failed")
    return f"Session {name}: {plural(len(calls), 'call')}" + (
        f" ({'; '.join(said)})" if said else ""
    )


def _tokens(calls: Sequence[Call]) -> Iterator[str]:
    usages = [call.usage for call in calls if call.usage is not None]
    total = add(*(usage.total_input for usage in usages))

    def part(name: str) -> str:
        known = [tokens for usage in usages if (tokens := getattr(usage, name)) is not None]
        least = "at least " if known and len(known) < len(usages) else ""
        return least + _of(add(*known), total)

    yield (
        f"Input {count(total)} tokens: {part('cache_read')} read from cache, "
        f"{part('cache_write')} written, {part('uncached_input')} uncached"
    )
    output = add(*(usage.output for usage in usages))
    is_low = any(FLAG_OUTPUT_LOWER_BOUND in usage.flags for usage in usages)
    yield f"Output {'at least ' if is_low else ''}{count(output)} tokens"
    unknown = len(calls) - len(usages)
    if unknown:
        yield f"No usage was reported for {plural(unknown, 'call')}"


def _of(part: int | None, whole: int | None) -> str:
    return "an unknown part" if part is None or not whole else ratio(part / whole)


def _cost(calls: Sequence[Call], book: PriceBook) -> str:
    sums: dict[str, Decimal] = {}
    unpriced = 0
    reasons: Counter[str] = Counter()
    for call in calls:
        if call.usage is None:
            continue
        cost = price_call(call, book)
        if cost.amount is None:
            unpriced += 1
            reasons[cost.reason or "no price"] += 1
            continue
        sums[cost.currency] = sums.get(cost.currency, ZERO) + cost.amount
    text = " + ".join(money(str(amount), currency, 4) for currency, amount in sorted(sums.items()))
    if not unpriced:
        return f"Cost {text}" if text else "Cost unknown: no usage was reported"
    why = f"{plural(unpriced, 'call')} without a price: {reasons.most_common(1)[0][0]}"
    return f"Cost {text} and {why}" if text else f"Cost unknown ({why})"


def _refreshes(calls: Sequence[Call], book: PriceBook) -> Iterator[str]:
    found = realised(calls, book)
    if found is None:
        return
    gain = money(str(found.gain), found.currency, 4)
    line = (
        f"Keep-alive: {plural(found.refreshes, 'refresh', 'refreshes')} for "
        f"{money(str(found.cost), found.currency, 4)} bridged {plural(found.needed, 'pause')} "
        f"({count(found.tokens)} tokens not written again): gain {gain}"
    )
    yield f"{line}, {found.unpriced} without a price left out" if found.unpriced else line


def _losses(session: Session, book: PriceBook) -> Iterator[str]:
    diagnosis = diagnose(session, book)
    losses = [finding for finding in diagnosis.findings if finding.kind == "loss"]
    if not losses:
        yield "No loss of cached tokens was found"
        return
    yield f"Lost to misses: {count(diagnosis.tokens_lost)} tokens"
    for finding in losses[:_CAUSES]:
        yield f"  {_loss(finding)}"
    if len(losses) > _CAUSES:
        yield f"  and {len(losses) - _CAUSES} more: cacheaudit audit --db names them all"


def _loss(finding: Finding) -> str:
    lost = finding.lost
    cost = "" if lost is None or lost.cost is None else f", {money(str(lost.cost), 'USD', 4)}"
    return (
        f"{finding.title} [{finding.rule}, {finding.verdict}]: "
        f"{count(finding.tokens_lost)} tokens{cost}, {plural(len(finding.calls), 'call')}"
    )


def _left_out(state: RecorderState) -> Iterator[str]:
    for number, what in (
        (state.dropped_calls, "not recorded: too many waited"),
        (state.dropped_bodies, "recorded without their prompt: too many bytes waited"),
        (state.lost, "not written: the store refused them"),
    ):
        if number:
            yield f"{plural(number, 'call')} {what}"
    faults = sum(state.faults.values())
    if faults:
        yield f"{plural(faults, 'fault')} of the recorder: {', '.join(sorted(state.faults)[:5])}"

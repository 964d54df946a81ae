"""What every renderer says of an audit beyond its rows: losses, order, the sentence on top."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal

import msgspec

from cacheaudit.model.money import ZERO, decimal, plain
from cacheaudit.report import format as fmt
from cacheaudit.report.result import AuditResult, FindingRow, Scope, Totals

NOT_LOOKED_FOR = "losses were not looked for"
# A note names so many calls at most; how many there are stands in its first sentence.
MOST_NAMED = 50


class Lost(msgspec.Struct, frozen=True):
    """What misses cost, over findings that stand for a loss.

    Attributes:
        findings: How many.
        tokens: Tokens that a hit would have read.
        input_equivalents: In ordinary input tokens.
        cost: Sum of the priced ones; ``None`` where there are losses and none has a price.
        unpriced: Losses without a price.
        unweighted: Losses whose weight in ordinary input tokens is not known either.
    """

    findings: int
    tokens: int
    input_equivalents: Decimal
    cost: Decimal | None
    unpriced: int
    unweighted: int = 0

    @property
    def weight(self) -> str | None:
        """The known ordinary input tokens; ``None`` where there are losses and none is known."""
        is_unknown = self.unweighted > 0 and not self.input_equivalents
        return None if is_unknown else plain(self.input_equivalents)

    @property
    def cost_text(self) -> str | None:
        """The cost as a plain decimal string."""
        return None if self.cost is None else plain(self.cost)


class Cause(msgspec.Struct, frozen=True):
    """One row of the loss table: every loss of one rule."""

    rule: str
    name: str
    lost: Lost
    proved: int


def losses(findings: Iterable[FindingRow]) -> list[FindingRow]:
    """Keep the findings that stand for a loss."""
    return [finding for finding in findings if finding.kind == "loss"]


def is_cut(finding: FindingRow) -> bool:
    """Whether a finding may concern more calls than it names."""
    return finding.kind != "loss" and len(finding.calls) >= MOST_NAMED


def by_money(findings: Iterable[FindingRow]) -> list[FindingRow]:
    """Order findings: losses by money, then by equivalents and tokens; notes and errors behind."""
    return sorted(findings, key=_weight)


def _weight(finding: FindingRow) -> tuple[int, Decimal, Decimal, int, str]:
    cost = decimal(finding.lost.cost) if finding.lost and finding.lost.cost else ZERO
    equivalents = decimal(finding.lost.input_equivalents) if finding.lost else ZERO
    rank = {"loss": 0, "error": 1}.get(finding.kind, 2)
    return (rank, -cost, -equivalents, -finding.tokens_lost, finding.id)


def lost(findings: Iterable[FindingRow]) -> Lost:
    """Add up what misses cost."""
    number = tokens = unpriced = unweighted = 0
    equivalents, cost, priced = ZERO, ZERO, 0
    for finding in losses(findings):
        number += 1
        tokens += finding.tokens_lost
        if finding.lost is not None:
            equivalents += decimal(finding.lost.input_equivalents)
        elif finding.tokens_lost:
            unweighted += 1
        if finding.lost is None or finding.lost.cost is None:
            unpriced += 1
            continue
        priced += 1
        cost += decimal(finding.lost.cost)
    known = cost if priced or not number else None
    return Lost(number, tokens, equivalents, known, unpriced, unweighted)


def causes(findings: Iterable[FindingRow]) -> list[Cause]:
    """Group the losses by rule, dearest first."""
    grouped: dict[str, list[FindingRow]] = {}
    for finding in losses(findings):
        grouped.setdefault(finding.rule, []).append(finding)
    rows = [
        Cause(rule, group[0].name, lost(group), sum(f.verdict == "proved" for f in group))
        for rule, group in grouped.items()
    ]
    return sorted(rows, key=_dearest)


def _dearest(cause: Cause) -> tuple[Decimal, Decimal, int, str]:
    lost_ = cause.lost
    return (-(lost_.cost or ZERO), -lost_.input_equivalents, -lost_.tokens, cause.rule)


def paid(totals: Totals) -> tuple[str | None, str]:
    """Return what was paid and where the figure comes from: ``computed`` or ``reported``."""
    if totals.cost.computed is not None:
        return totals.cost.computed, "computed"
    if totals.cost.reported is not None:
        return totals.cost.reported, "reported"
    return None, "not known"


def verdict(result: AuditResult) -> list[str]:
    """Say the whole result in one to three sentences."""
    if not result.scope.calls:
        return ["No calls were found in what was read."]
    totals, currency = result.totals, result.totals.cost.currency
    total_lost = lost(result.findings)
    sentences = [_paid_sentence(totals, total_lost, currency, diagnosed=result.diagnosed)]
    sentences.append(read_sentence(totals, "was read"))
    leading = causes(result.findings)
    if leading and len(leading) > 1:
        sentences.append(_leading_sentence(leading[0], total_lost))
    elif leading:
        cause = leading[0]
        sentences.append(f"All of the loss has one cause: {cause.name} ({cause.rule}).")
    return sentences


def _paid_sentence(totals: Totals, total: Lost, currency: str, *, diagnosed: bool) -> str:
    value, origin = paid(totals)
    if value is None:
        start = f"The cost is not known ({totals.cost.reason or 'no price for the model'})"
    else:
        known = "" if origin == "computed" else ", as the record says"
        start = f"Paid {fmt.amount(value, currency)}{known}"
        if totals.cost.unpriced_calls:
            start += f" for the priced calls ({totals.cost.unpriced_calls:,} have no price)"
    if not diagnosed:
        return f"{start}; {NOT_LOOKED_FOR}."
    if not total.findings:
        return f"{start}; no loss to cache misses was found."
    if total.weight is None:
        return f"{start}; misses made {total.tokens:,} tokens be sent again."
    if total.cost is None or value is None:
        lost_text = f"{fmt.equivalents(plain(total.input_equivalents))} ordinary input tokens"
        return f"{start}; misses cost as much as {lost_text}."
    part = fmt.whole_percent(total.cost, decimal(value))
    lost_text = fmt.money(total.cost_text, currency, fmt.places_for([value]))
    return f"{start}, of it {lost_text} ({part}) lost to cache misses."


def _leading_sentence(cause: Cause, total: Lost) -> str:
    if total.cost and cause.lost.cost is not None:
        part = fmt.whole_percent(cause.lost.cost, total.cost)
    elif total.weight is None:
        part = fmt.whole_percent(Decimal(cause.lost.tokens), Decimal(total.tokens))
    else:
        part = fmt.whole_percent(cause.lost.input_equivalents, total.input_equivalents)
    return f"The largest cause is {cause.name} ({cause.rule}) with {part} of the loss."


def writes(totals: Totals) -> int | None:
    """Add up the writes of every lifetime."""
    known = [value for value in totals.cache_write.values() if value is not None]
    return sum(known) if known else None


def bound(totals: Totals, part: str) -> str:
    """Return what stands before a sum that some of its calls do not tell: it is a lower bound."""
    is_short = part == "output" and totals.output_is_lower_bound
    return fmt.AT_LEAST if is_short or totals.unknown_calls.get(part) else ""


def tokens(
    totals: Totals,
    part: str,
    unknown: str = fmt.DASH,
    number: Callable[[int | None], str] = fmt.count,
) -> str:
    """Write a sum of tokens, as a lower bound where some of its calls do not tell it.

    Args:
        totals: The sums.
        part: Name of the sum; ``cache_write`` stands for all lifetimes together.
        unknown: What stands for a sum that no call tells.
        number: Writes a count.
    """
    value = writes(totals) if part == "cache_write" else getattr(totals, part)
    return unknown if value is None else bound(totals, part) + number(value)


def weight_text(totals: Totals, number: Callable[[int | None], str] = fmt.count) -> str:
    """Write the input in ordinary input tokens, as a lower bound where some calls lack a weight."""
    if totals.input_equivalents is None:
        return fmt.DASH
    whole = decimal(totals.input_equivalents).quantize(Decimal(1), rounding=ROUND_HALF_UP)
    return ("≥ " if totals.unweighted_calls else "") + number(int(whole))


def part_share(totals: Totals, part: str) -> str:
    """Write the share of a part in the input; empty where it is not known."""
    value = writes(totals) if part == "cache_write" else getattr(totals, part)
    share = fmt.share(value, totals.total_input)
    return "" if share is None else bound(totals, part) + fmt.ratio(share)


def hit_ratio(totals: Totals, unknown: str = fmt.UNKNOWN) -> str:
    """Write the share that was read; calls that do not tell their reads count as input only."""
    if totals.hit_ratio is None:
        return unknown
    return bound(totals, "cache_read") + fmt.ratio(totals.hit_ratio)


def cost_text(totals: Totals, places: int, unknown: str = fmt.DASH) -> str:
    """Write what was paid, as a lower bound where some calls have no price."""
    value, origin = paid(totals)
    if value is None:
        return unknown
    is_part = totals.cost.unpriced_calls and origin == "computed"
    text = fmt.money(value, totals.cost.currency, places)
    return fmt.AT_LEAST + text if is_part else text


def read_sentence(totals: Totals, verb: str) -> str:
    """Say how much of the input came from the cache; ``verb`` joins both."""
    if totals.hit_ratio is None:
        return "How much was read from the cache is not known."
    share = fmt.ratio(totals.hit_ratio)
    least = "At least " if bound(totals, "cache_read") else ""
    return f"{least}{share} of the input {verb} from the cache."


def write_tiers(totals: Totals) -> str:
    """List the lifetimes that were written: ``5m 280,420 · 1h 1,200``, or ``all for 5m``."""
    tiers = [
        ("lifetime not known" if ttl == "other" else ttl, value)
        for ttl, value in totals.cache_write.items()
        if value
    ]
    if len(tiers) == 1:
        name = tiers[0][0]
        return name if name.startswith("lifetime") else f"all for {name}"
    return " · ".join(f"{name} {value:,}" for name, value in tiers)


def source_words(scope: Scope) -> str:
    """Name the sources, each with its count where there are several."""
    if len(scope.sources) == 1:
        return fmt.printable(next(iter(scope.sources)))
    return ", ".join(f"{fmt.printable(name)} ({n:,})" for name, n in scope.sources.items())

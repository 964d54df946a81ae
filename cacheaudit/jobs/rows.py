"""Rows of the published result, made from calls, findings and price rows."""

from __future__ import annotations

from cacheaudit.model.call import Call
from cacheaudit.model.change import Change
from cacheaudit.model.clock import iso
from cacheaudit.model.finding import Finding, Loss
from cacheaudit.model.money import plain
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.usage import FLAG_OUTPUT_LOWER_BOUND, Usage
from cacheaudit.pricing.card import RateCard
from cacheaudit.report.detail import Lives, Strips, events, first_token_seconds, writes
from cacheaudit.report.result import (
    CallRow,
    ChangeRow,
    FindingRow,
    FixRow,
    LossPlace,
    LossRow,
    PlaceRow,
    Predicted,
    PriceUsed,
    RivalRow,
)

_NO_USAGE = Usage()


class CallRows:
    """Makes the rows of calls; those of a lane in their order.

    Args:
        show_text: Show the text at a change; otherwise letters and digits are masked.
    """

    def __init__(self, *, show_text: bool = False) -> None:
        self._show_text = show_text
        self._lives = Lives()
        self._strips = Strips()

    def row(
        self,
        call: Call,
        at: float | None,
        cost: str | None,
        card: RateCard | None,
        change: Change | None,
        predicted: Predicted | None,
        earlier: Prompt | None = None,
    ) -> CallRow:
        """Make one row.

        Args:
            call: The call.
            at: Its moment; ``None`` where that is not known as a date.
            cost: What it cost, as text; ``None`` where no price is known.
            card: The price row that the whole cost rests on, where it is one.
            change: Its first change against the call before it in its lane.
            predicted: What it should have read and written.
            earlier: The prompt that the change is against.
        """
        usage, origin = call.usage or _NO_USAGE, call.origin
        written, split = usage.cache_write, None
        if written is not None:  # of most calls one lifetime is the whole
            short, long = usage.write_5m == written, usage.write_1h == written
            only = {"5m": written} if short else {"1h": written}
            split = only if written and short is not long else writes(usage)
        # By position as far as can be: Python hands over more than 15 names in a dictionary.
        return CallRow(
            call.id,
            call.session,
            call.lane,
            call.purpose,
            call.provider,
            call.model,
            None if at is None else iso(at),
            usage.total_input,
            usage.cache_read,
            written,
            usage.uncached_input,
            usage.output,
            predicted,
            cost,
            None if change is None else self._change_row(call, change, earlier),
            None if origin is None else str(origin),
            split,
            None if card is None else card.id,
            reported_cost=None if call.reported_cost is None else plain(call.reported_cost),
            first_token_seconds=None if call.first_token_at is None else first_token_seconds(call),
            alive_seconds=self._lives.of(call, split),
            events=events(call) if call.boundaries or call.attempt else [],
            reason=None if call.diagnostics is None else call.diagnostics.type,
            strip=None if call.prompt is None else self._strips.of(call, change),
            output_is_lower_bound=FLAG_OUTPUT_LOWER_BOUND in usage.flags,
        )

    def _change_row(self, call: Call, change: Change, earlier: Prompt | None) -> ChangeRow:
        before = after = None
        if earlier is not None and call.prompt is not None:
            from cacheaudit.jobs.excerpts import surroundings

            before, after = surroundings(earlier, call.prompt, change, show_text=self._show_text)
        return ChangeRow(
            level=change.level,
            path=change.path,
            byte_offset=change.byte_offset,
            kind=change.kind,
            tokens_after=change.tokens_after,
            before=change.before,
            after=change.after,
            before_text=before,
            after_text=after,
            masked=not self._show_text,
        )


def finding_row(finding: Finding, edit: str | None = None) -> FindingRow:
    """Shape a finding; ``edit`` is its fix as ``simulate --edit`` takes it."""
    place, fix = finding.first_change, finding.fix
    return FindingRow(
        id=finding.id,
        rule=finding.rule,
        name=finding.name,
        title=finding.title,
        verdict=finding.verdict,
        evidence=finding.evidence,
        kind=finding.kind,
        session=finding.session,
        calls=list(finding.calls),
        established=list(finding.established),
        to_check=list(finding.to_check),
        rivals=[RivalRow(rival.rule, rival.why) for rival in finding.rivals],
        first_change=None
        if place is None
        else PlaceRow(place.level, place.path, place.byte_offset),
        tokens_lost=finding.tokens_lost,
        lost=_loss_row(finding.lost),
        fix=None if fix is None else FixRow(fix.title, fix.patch, _loss_row(fix.saves_alone), edit),
        no_fix=finding.no_fix,
        places=[LossPlace(p.call, p.tokens, _loss_row(p.lost)) for p in finding.places],
    )


def _loss_row(loss: Loss | None) -> LossRow | None:
    if loss is None:
        return None
    return LossRow(plain(loss.input_equivalents), None if loss.cost is None else plain(loss.cost))


def price_used(card: RateCard) -> PriceUsed:
    """Shape a price row."""
    return PriceUsed(
        id=card.id,
        provider=card.provider,
        model=card.model,
        currency=card.currency,
        rates=card.per_million(),
        valid_from=card.valid_from,
        source=card.source,
        checked=card.checked,
        note=card.note,
    )

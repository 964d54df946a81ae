"""The first change between two requests, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cacheaudit.errors import UsageError
from cacheaudit.jobs.excerpts import excerpts as excerpts
from cacheaudit.jobs.excerpts import mask as mask
from cacheaudit.jobs.excerpts import surroundings
from cacheaudit.jobs.pick import Picked, pick, sized
from cacheaudit.model.change import Change, common, first_change, is_extension
from cacheaudit.model.money import plain
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import tokens_of
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.result import DiffChange, DiffCommon, DiffCost, DiffResult, DiffSide


def diff(a: str, b: str, *, prices: Sequence[Path] = (), show_text: bool = False) -> DiffResult:
    """Compare two requests.

    Args:
        a: The earlier one: ``file``, ``file#id`` or ``file#n``.
        b: The later one.
        prices: Price files that go before the built-in tables.
        show_text: Show what changed as it is; otherwise letters and digits are masked.

    Raises:
        UsageError: One of them cannot be found, or they belong to different kinds of API.
        PromptError: One of them is no request of a supported API.
    """
    first, second = pick(a), pick(b)
    before, after = sized(first), sized(second)
    if before.level_order != after.level_order:
        raise UsageError(
            f"{a} is a request to {before.provider}, {b} one to {after.provider}:"
            " they put their parts in different orders.",
            "Compare requests to the same API.",
        )
    change = first_change(before, after)
    shared = common(before, after)
    cost, reason = _cost(second, after, change, PriceBook(prices))
    return DiffResult(
        equal=_relation(before, after) == "equal",
        relation=_relation(before, after),
        first_change=None if change is None else _change(before, after, change, show_text),
        common=DiffCommon(shared.tools, shared.system, shared.messages, shared.blocks),
        cost=cost,
        cost_reason=reason,
        a=_side(first, before),
        b=_side(second, after),
    )


def _relation(a: Prompt, b: Prompt) -> str:
    if is_extension(a, b):
        return "equal" if len(a.blocks) == len(b.blocks) else "extends"
    return "truncates" if is_extension(b, a) else "changed"


def _side(picked: Picked, prompt: Prompt) -> DiffSide:
    tokens, origin = tokens_of(prompt.blocks)
    known = bool(prompt.blocks)
    return DiffSide(
        where=picked.where,
        provider=picked.provider or prompt.provider,
        model=picked.model,
        content_blocks=len(prompt.blocks),
        tokens=tokens if known else None,
        tokens_origin=origin if known else None,
    )


def _change(a: Prompt, b: Prompt, change: Change, show_text: bool) -> DiffChange:
    before, after = surroundings(a, b, change, show_text=show_text)
    return DiffChange(
        level=change.level,
        path=change.path,
        byte_offset=change.byte_offset,
        kind=change.kind,
        tokens_after=change.tokens_after,
        tokens_origin=change.tokens_origin,
        prompt_byte_offset=change.prompt_byte_offset,
        before=change.before,
        after=change.after,
        before_text=before,
        after_text=after,
        masked=not show_text,
    )


def _cost(
    picked: Picked, prompt: Prompt, change: Change | None, book: PriceBook
) -> tuple[DiffCost | None, str | None]:
    """Price the tokens behind the change as written instead of read."""
    if change is None:
        return None, "nothing that a cache holds is lost"
    if change.tokens_after is None:
        return None, "the size of what follows is not known"
    provider, model = picked.provider or prompt.provider, picked.model
    card = book.card(
        provider, model, picked.at, surface=picked.surface, total_input=picked.total_input
    )
    if card is None:
        return None, book.why_not(provider, model, surface=picked.surface)
    ttl = _ttl(prompt) or card.write_ttl
    rate, ratio = card.write_rate(ttl), card.write_ratio(ttl)
    if rate is None:
        return None, f"no price of {model} for writes kept {ttl}"
    weight = None
    if ratio is not None and card.read_ratio is not None:
        weight = plain(change.tokens_after * (ratio - card.read_ratio))
    return (
        DiffCost(
            amount=plain(change.tokens_after * (rate - card.read)),
            currency=card.currency,
            input_equivalents=weight,
            write_ttl=ttl,
            price_id=card.id,
            source=card.source,
            checked=card.checked,
        ),
        None,
    )


def _ttl(prompt: Prompt) -> str | None:
    """Lifetime of the last marker: what is written behind the change is written with it."""
    for block in reversed(prompt.blocks):
        if block.marker is not None:
            return block.marker.ttl
    return prompt.automatic_marker.ttl if prompt.automatic_marker is not None else None

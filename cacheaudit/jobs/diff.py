"""The first change between two requests, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.jobs.pick import Picked, pick, sized
from cacheaudit.model.change import (
    Change,
    common,
    equal_bytes,
    first_change,
    is_extension,
)
from cacheaudit.model.money import plain
from cacheaudit.model.prompt import ContentBlock, Prompt
from cacheaudit.model.tokens import tokens_of
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.result import DiffChange, DiffCommon, DiffCost, DiffResult, DiffSide

_AROUND = 40
_LONGEST = 120


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
    old, new = _texts(a, b, change)
    before, after = excerpts(old, new)
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
        before_text=before if show_text or before is None else mask(before),
        after_text=after if show_text or after is None else mask(after),
        masked=not show_text,
    )


def _texts(a: Prompt, b: Prompt, change: Change) -> tuple[str | None, str | None]:
    """Return what stood at the change and what stands there now."""
    if change.kind == "parameter":
        return _parameter(a, change.path), _parameter(b, change.path)
    place = change.blocks_before
    old = _block_at(a, place, change) if change.kind != "added" else None
    new = _block_at(b, place, change) if change.kind != "removed" else None
    return _content(old), _content(new)


def _parameter(prompt: Prompt, name: str) -> str | None:
    for parameter in prompt.parameters:
        if parameter.name == name:
            return parameter.value.decode(errors="replace")
    return None


def _block_at(prompt: Prompt, place: int, change: Change) -> ContentBlock | None:
    if place >= len(prompt.blocks) or prompt.blocks[place].level != change.level:
        return None
    return prompt.blocks[place]


def _content(block: ContentBlock | None) -> str | None:
    """Return a text block's text, any other's JSON; nothing where the record kept no bytes."""
    if block is None or not block.canonical:
        return None
    fields = msgspec.json.decode(block.canonical)
    text = fields.get("text") if isinstance(fields, dict) else None
    if block.kind == "text" and isinstance(text, str):
        return text
    return block.canonical.decode(errors="replace")


def excerpts(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    """Cut two texts down to the surroundings of their first difference.

    ``⟦`` and ``⟧`` enclose what differs, as far as the excerpt reaches.
    """
    if old is None or new is None:
        return _start(old), _start(new)
    start = len(old.encode()[: equal_bytes(old.encode(), new.encode())].decode(errors="ignore"))
    end = _equal_end(old[start:], new[start:])
    return _window(old, start, len(old) - end), _window(new, start, len(new) - end)


def _start(text: str | None) -> str | None:
    if text is None:
        return None
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _equal_end(old: str, new: str) -> int:
    limit = min(len(old), len(new), 4 * _LONGEST)
    count = 0
    while count < limit and old[-1 - count] == new[-1 - count]:
        count += 1
    return count


def _window(text: str, start: int, end: int) -> str:
    changed = text[start:end]
    if len(changed) > _LONGEST:
        return f"{_before(text, start)}⟦{changed[:_LONGEST]}…"
    behind = text[end : end + _AROUND] + ("…" if end + _AROUND < len(text) else "")
    return f"{_before(text, start)}⟦{changed}⟧{behind}"


def _before(text: str, start: int) -> str:
    return ("…" if start > _AROUND else "") + text[max(0, start - _AROUND) : start]


def mask(text: str) -> str:
    """Hide what a text says and keep its shape: letters become x or X, digits 9.

    A date that moved into a prompt is still seen to be one: ``9999-99-99X99:99``.
    """
    return "".join(_masked(char) for char in text)


def _masked(char: str) -> str:
    if char.isdecimal():
        return "9"
    if char.isalpha():
        return "X" if char.isupper() else "x"
    return char if char.isascii() or char in "⟦⟧…" else "x"


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

"""What the rest of a call says about its usage: assumed lifetimes, refusals, the stated cost."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from cacheaudit.model.money import decimal
from cacheaudit.model.usage import FLAG_NOT_BILLED, FLAG_TTL_ASSUMED, Ttl, Usage

_COST_NAMES: Final = ("cost", "total_cost", "response_cost", "cost_usd", "costUSD", "spend")
# A price of a token has at most that many, in any currency.
_DECIMALS: Final = 12


def with_write_ttl(usage: Usage, ttl: Ttl | None) -> Usage:
    """Say which lifetime unlabelled writes are billed at; flagged as an assumption.

    Args:
        usage: The usage.
        ttl: Lifetime of the request's markers, or the provider's default; ``None`` changes nothing.
    """
    if ttl is None or not usage.write_other or usage.write_other_ttl is not None:
        return usage
    return msgspec.structs.replace(
        usage, write_other_ttl=ttl, flags=_with(usage.flags, FLAG_TTL_ASSUMED)
    )


def with_stop_reason(usage: Usage, stop_reason: str | None, *, has_content: bool = True) -> Usage:
    """Mark a refusal that came before any output: its usage is reported but not billed.

    Args:
        usage: The usage.
        stop_reason: As the response states it.
        has_content: Whether the response has any content block.
    """
    if stop_reason == "refusal" and (usage.output == 0 or not has_content):
        return msgspec.structs.replace(usage, flags=_with(usage.flags, FLAG_NOT_BILLED))
    return usage


def reported_cost(usage: Mapping[str, Any]) -> Decimal | None:
    """Read the cost that a usage record itself states, in its own currency.

    OpenRouter and LiteLLM write a number, Pi an object with ``total``. A number that JSON decoding
    made a float is read by its shortest exact text, which is the text it came from; what stands
    beyond twelve decimals there is left over from binary arithmetic and is rounded off.
    """
    for name in _COST_NAMES:
        value = usage.get(name)
        if isinstance(value, dict):
            value = value.get("total")
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            if isinstance(value, float):
                return round(decimal(repr(value)), _DECIMALS)
            return decimal(value)
        except (ValueError, ArithmeticError):
            continue
    return None


def _with(flags: tuple[str, ...], flag: str) -> tuple[str, ...]:
    return flags if flag in flags else tuple(sorted((*flags, flag)))

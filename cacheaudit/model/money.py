"""Exact decimals. The only module that turns text into money."""

from __future__ import annotations

from decimal import Decimal

# No amount of money that anyone pays has more digits than that on either side of the point.
_MOST_DIGITS = 15
_MOST_PLACES = 60
ZERO = Decimal(0)
MILLION = Decimal(1_000_000)


def decimal(value: str | int) -> Decimal:
    """Read an exact decimal.

    Args:
        value: Text such as ``"0.0825"``, or an integer. Floats are not accepted, since they
            have lost digits already.

    Raises:
        ValueError: The text is no finite number, or none of a size that money has.
    """
    if isinstance(value, float):
        raise ValueError(f"{value!r} is a float; pass the text it came from.")
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError(f"{value!r} is not a finite number.")
    if not is_sane(number):
        raise ValueError("The number is beyond any amount of money.")
    return number


def is_sane(value: Decimal) -> bool:
    """Whether an amount has a size that money has; others would fill pages when written out."""
    exponent = value.as_tuple().exponent
    return (
        isinstance(exponent, int)
        and -_MOST_PLACES <= exponent <= _MOST_DIGITS
        and (not value or value.adjusted() <= _MOST_DIGITS)
    )


def plain(value: Decimal) -> str:
    """Write a decimal without exponent or trailing zeros: ``Decimal("1.50")`` → ``1.5``."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text

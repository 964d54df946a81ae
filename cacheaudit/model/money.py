"""Exact decimals. The only module that turns text into money."""

from __future__ import annotations

from decimal import Decimal

ZERO = Decimal(0)
MILLION = Decimal(1_000_000)


def decimal(value: str | int) -> Decimal:
    """Read an exact decimal.

    Args:
        value: Text such as ``"0.0825"``, or an integer. Floats are not accepted, since they
            have lost digits already.

    Raises:
        ValueError: The text is no finite number.
    """
    if isinstance(value, float):
        raise ValueError(f"{value!r} is a float; pass the text it came from.")
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError(f"{value!r} is not a finite number.")
    return number


def plain(value: Decimal) -> str:
    """Write a decimal without exponent and without trailing zeros: ``Decimal("1.50")`` → ``1.5``."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text

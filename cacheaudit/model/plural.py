"""Numbers with their nouns, for whatever layer says them."""

from __future__ import annotations


def plural(number: int, one: str, several: str | None = None) -> str:
    """Write a number with what goes with it: ``1 call``, ``2 calls``; ``1 call has``, ``2 have``.

    Args:
        number: How many.
        one: What stands behind 1.
        several: What stands behind any other number; ``one`` with an ``s`` by default.
    """
    return f"{number:,} {one if number == 1 else several or one + 's'}"

"""Sizes of texts in tokens, before any tokenizer has seen them."""

from __future__ import annotations

from collections.abc import Callable

Counter = Callable[[str], int]
"""Tells how many tokens a text costs. It must not grow when text is taken away."""


def well_formed(text: str) -> str:
    """Put U+FFFD in place of what no request can carry: halves of surrogate pairs."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


def estimated(text: str) -> int:
    """Estimate the tokens of a text from its bytes: one for 3.6, rounded up.

    The ratio is the one that the auditor uses for recorded content blocks.
    """
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size * 5 // 18)

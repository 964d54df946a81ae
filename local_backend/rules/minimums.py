"""Shortest prefix that each Claude model caches, in tokens. Shorter ones are silently not cached.

From the provider's page on prompt caching as of autumn 2026; a model that no page was seen for has
the figure of its family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MINIMUMS: Mapping[str, int] = {
    "claude-fable-5-2": 512,
    "claude-fable-5-1": 512,
    "claude-fable-5": 512,
    "claude-mythos-5-2": 512,
    "claude-mythos-5-1": 512,
    "claude-mythos-5": 512,
    "claude-mythos-preview": 2048,
    "claude-haiku-5-5": 512,
    "claude-haiku-4-5": 4096,
    "claude-3-5-haiku": 2048,
    "claude-haiku-3-5": 2048,
    "claude-sonnet-5-5": 512,
    "claude-sonnet-5": 1024,
    "claude-sonnet-4-6": 1024,
    "claude-sonnet-4-5": 1024,
    "claude-sonnet-4-0": 1024,
    "claude-sonnet-4": 1024,
    "claude-opus-5-5": 512,
    "claude-opus-5": 512,
    "claude-opus-4-8": 1024,
    "claude-opus-4-7": 2048,
    "claude-opus-4-6": 4096,
    "claude-opus-4-5": 4096,
    "claude-opus-4-1": 1024,
    "claude-opus-4-0": 1024,
    "claude-opus-4": 1024,
}
_DATED = re.compile(r"(-\d{8}|-latest|\[1m\])$")


def known_minimum(model: str) -> int | None:
    """The minimum of a Claude model, a date behind its name left out; None for other models."""
    return MINIMUMS.get(_DATED.sub("", model))

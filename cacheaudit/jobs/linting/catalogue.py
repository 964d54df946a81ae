"""Every check of ``lint``: its name, how bad it is, and what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

Level = Literal["refused", "never_hits", "wasteful"]
LEVELS: Final[tuple[Level, ...]] = ("refused", "never_hits", "wasteful")


class Check(msgspec.Struct, frozen=True):
    """One check.

    Attributes:
        level: ``refused``: the API answers 400; ``never_hits``: accepted, but what is asked to be
            cached is never read; ``wasteful``: it works and costs more than it has to.
        title: One line for people.
    """

    level: Level
    title: str


CHECKS: Final[Mapping[str, Check]] = {
    "too-many-markers": Check("refused", "More cache markers than a request may carry"),
    "marker-lifetimes-out-of-order": Check("refused", "A longer lifetime after a shorter one"),
    "marker-lifetime-unknown": Check("refused", "A lifetime that is not offered"),
    "marker-type-unknown": Check("refused", "A marker that is not of the type 'ephemeral'"),
    "marker-on-thinking": Check("refused", "A marker on a thinking block"),
    "marker-on-empty-text": Check("refused", "A marker on a text block without text"),
    "marker-on-deferred-tool": Check("refused", "A marker on a tool that is loaded later"),
    "marker-on-cleared-message": Check("refused", "A marker in a message that will be cleared"),
    "marker-on-citation": Check("refused", "A marker on a citation"),
    "marker-inside-tool-result": Check("refused", "A marker inside a tool result, not at its end"),
    "automatic-marker-conflict": Check(
        "refused", "The automatic marker and the last block's own ask for different lifetimes"
    ),
    "automatic-marker-not-offered": Check("refused", "An automatic marker where none is offered"),
    "prewarm-conflict": Check("refused", "max_tokens 0 together with a setting that excludes it"),
    "below-minimum": Check("never_hits", "The marked prefix is too short to be cached"),
    "marker-on-volatile-text": Check(
        "never_hits", "Markers only on text that looks made anew for each request"
    ),
    "volatile-text-before-every-marker": Check(
        "never_hits", "Text that changes with the clock stands before every marker"
    ),
    "marker-without-content": Check("never_hits", "A marker that stands on no content block"),
    "prewarm-without-marker": Check("never_hits", "A pre-warming request that marks nothing"),
    "explicit-mode-without-breakpoint": Check(
        "never_hits", "Caching by breakpoints only, and no breakpoint"
    ),
    "volatile-text-in-prefix": Check(
        "wasteful", "Text that looks made anew stands in the cached prefix"
    ),
    "no-marker": Check("wasteful", "A long prompt without a marker where caching needs one"),
    "tail-beyond-lookback": Check("wasteful", "More behind the last marker than a lookup visits"),
    "turn-beyond-lookback": Check(
        "wasteful", "The last turn added more positions than a lookup visits"
    ),
    "prewarm-marks-placeholder": Check(
        "wasteful", "A pre-warming request marks its placeholder, not what is shared"
    ),
    "no-cache-key": Check("wasteful", "A long prompt without prompt_cache_key"),
    "more-breakpoints-than-written": Check("wasteful", "More breakpoints than one request writes"),
    "breakpoints-not-supported": Check("wasteful", "Breakpoints for a model that has none"),
}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem of one request.

    Attributes:
        rule: Name of the check.
        level: ``refused``, ``never_hits`` or ``wasteful``.
        path: Where in the body.
        message: What is wrong there and what to do.
        paths: All places concerned, where there are several.
        file: File of the request, where several were read.
    """

    rule: str
    level: Level
    path: str
    message: str
    paths: tuple[str, ...] = ()
    file: str | None = None


def problem(rule: str, path: str, message: str, paths: tuple[str, ...] = ()) -> Problem:
    """Make the problem of a check."""
    return Problem(rule=rule, level=CHECKS[rule].level, path=path, message=message, paths=paths)

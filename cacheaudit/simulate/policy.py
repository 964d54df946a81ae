"""A lifetime setting as people choose it: how long for which lane, refreshed or not."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.model.call import Call

Lifetime = Literal["5m", "1h", "recorded", "none"]
_LIFETIMES: Final[tuple[Lifetime, ...]] = ("5m", "1h", "recorded", "none")
_IDLE_CAP: Final = 1800.0
_RUNNING_CAP: Final = 3600.0
_REFRESH: Final = ("keep-alive", "keep-alive-known")
_FORM: Final = (
    "Write 5m, 1h, recorded, none, 5m+keep-alive, 5m+keep-alive@3600 (seconds), "
    "5m+keep-alive-known, or main=1h,subagents=5m."
)


class Setting(msgspec.Struct, frozen=True):
    """What holds for one kind of lane.

    Attributes:
        lifetime: ``5m``, ``1h``, ``recorded`` (as it was) or ``none`` (no caching).
        keep_alive: Whether the last request is repeated before its entry expires.
        cap: Seconds after a request when repeating ends.
        known: Repeat only in pauses that did end with a request, and only where that costs less
            than writing again: what an agent can do that knows how long it will wait.
    """

    lifetime: Lifetime
    keep_alive: bool = False
    cap: float = _IDLE_CAP
    known: bool = False


class Policy(msgspec.Struct, frozen=True):
    """Settings for the main lane and for subagents."""

    name: str
    main: Setting
    subagents: Setting

    @property
    def needs_foresight(self) -> bool:
        """Whether an agent must know how long a pause will be."""
        return self.main.known or self.subagents.known

    def of(self, call: Call) -> Setting:
        """Setting for the lane of a call."""
        return self.main if call.lane == "main" else self.subagents


USUAL: Final = (
    "5m",
    "1h",
    "main=1h,subagents=5m",
    "5m+keep-alive",
    "5m+keep-alive-known",
    "main=5m+keep-alive,subagents=5m",
    "none",
)


def parse_policy(text: str) -> Policy:
    """Read a policy.

    Raises:
        UsageError: It has another form.
    """
    found: dict[str, Setting] = {}
    for part in text.replace(" ", "").split(","):
        lane, equals, setting = part.rpartition("=")
        lane = lane if equals else "all"
        if lane not in ("all", "main", "subagents") or lane in found:
            raise UsageError(f"{text!r} is no policy: {part!r}.", _FORM)
        found[lane] = _setting(setting, text)
    both = found.get("all")
    main, subagents = found.get("main", both), found.get("subagents", both)
    if main is None or subagents is None:
        raise UsageError(f"{text!r} does not say what holds for every lane.", _FORM)
    return Policy(text, main, subagents)


def _setting(text: str, whole: str) -> Setting:
    lifetime, plus, refresh = text.partition("+")
    known: Lifetime | None = next((name for name in _LIFETIMES if name == lifetime), None)
    word, at, cap = refresh.partition("@")
    right_word = word in _REFRESH if plus else not refresh
    if known is None or not right_word or (plus and known == "none"):
        raise UsageError(f"{whole!r} is no policy: {text!r}.", _FORM)
    is_known = word == _REFRESH[1]
    if not at:
        return Setting(known, bool(plus), _RUNNING_CAP if is_known else _IDLE_CAP, is_known)
    if not cap.isdigit() or int(cap) == 0:
        raise UsageError(f"{whole!r}: {cap!r} is no number of seconds.", _FORM)
    return Setting(known, True, float(cap), is_known)

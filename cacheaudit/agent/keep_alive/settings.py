"""What users set of keep-alive."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from cacheaudit.errors import ConfigError

if TYPE_CHECKING:
    from cacheaudit.agent.keep_alive.policy import Decision

Mode = Literal["off", "running", "idle"]
_MODES: Final[tuple[str, ...]] = get_args(Mode)
_LONGEST_TTL: Final = 43_200.0


class KeepAlive(msgspec.Struct, frozen=True, kw_only=True):
    """When a prompt is sent again only so that its cache entry lives on. Off by default.

    Attributes:
        mode: ``off``; ``running``: while an agent's tools run; ``idle``: between its runs too.
        min_savings: A refresh is sent only where it is expected to save that much, in the
            currency of the prices.
        running_cap: Seconds after a real request behind which nothing is refreshed, while tools
            run.
        idle_cap: The same between runs; ``None``: 30 minutes, or as long as the first refresh of
            an entry that lives longer takes.
        budget_per_day: Most that refreshes may cost on one UTC day; ``None``: no limit.
        refresh_after: Seconds after a request at which its entry is refreshed; ``None``: a tenth
            of the lifetime, or at least 10 s, before it is over.
        running_prior: How likely a tool that still runs is to end before the next refresh is due,
            before anything was observed.
        idle_prior: The same for a user who has not come back.
        prior_weight: How many observed pauses a prior counts as.
        most_refreshes: Most refreshes after one real request; ``None``: as many as together cost
            less than writing the entry once more.
        on_decision: Asked before each refresh; ``"stop"`` prevents it, all else leaves the
            decision as it is. It may not raise: an exception is counted and changes nothing.

    Raises:
        ConfigError: A value makes no sense.
    """

    mode: Mode = "off"
    min_savings: Decimal = Decimal("0.05")
    running_cap: float = 3600.0
    idle_cap: float | None = None
    budget_per_day: Decimal | None = Decimal(1)
    refresh_after: float | None = None
    running_prior: float = 0.9
    idle_prior: float = 0.15
    prior_weight: float = 8.0
    most_refreshes: int | None = None
    on_decision: Callable[[Decision], Any] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.mode not in _MODES:
            raise ConfigError(
                f"keep_alive: there is no mode {self.mode!r}.", f"Choose {', '.join(_MODES)}."
            )
        for name in ("running_prior", "idle_prior"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"keep_alive: {name} is no probability.", "Give 0 to 1.")
        for name in ("min_savings", "running_cap", "idle_cap", "budget_per_day", "prior_weight"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigError(f"keep_alive: {name} is negative.", "Give 0 or more.")
        after = self.refresh_after
        if after is not None and not 0 < after < _LONGEST_TTL:
            raise ConfigError(
                f"keep_alive: no entry lives longer than refresh_after, {after:g} s.",
                "Give fewer seconds than the lifetime, or leave it out.",
            )

"""What is predicted of one session: its calls, and what the fixes of its findings would change."""

from __future__ import annotations

import msgspec

from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.bill import Saving
from cacheaudit.simulate.quick import Predicted


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What would have been different: counts to add to what was billed.

    Attributes:
        calls: Calls in addition: refreshes, summaries.
        uncached_input: Tokens sent uncached.
        cache_read: Tokens read.
        cache_write: Tokens written.
        saves: What it saves; negative where it costs more.
        own: What the calls in addition cost; contained in ``saves``.
    """

    calls: int = 0
    uncached_input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    saves: Saving = Saving()
    own: Saving = Saving()

    def __add__(self, other: Change) -> Change:
        return Change(
            calls=self.calls + other.calls,
            uncached_input=self.uncached_input + other.uncached_input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            saves=self.saves + other.saves,
            own=self.own + other.own,
        )


class FixStep(msgspec.Struct, frozen=True):
    """One fix on top of those before it.

    Attributes:
        finding: Id of the finding.
        change: What it changes on top of the steps before.
        simulated: Whether it was simulated, or taken from what the finding lost.
        findings: Ids of all findings that it mends.
    """

    finding: str
    change: Change
    simulated: bool
    findings: tuple[str, ...]


class SessionPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """What is predicted of one session.

    Attributes:
        session: Session id.
        calls: What each call should have read and written, where that can be said.
        compared: Calls with a predicted and a reported read.
        exact: Those where both are equal.
        error_tokens: Sum of the distances of both.
        exact_writes: Calls whose writes are predicted exactly too.
        unexplained_tokens: Tokens that should have been read and were not.
        surplus_tokens: Tokens that were read and should not have been.
        refused: Calls without a prediction, by reason.
        mode: What the predictions rest on: ``bodies`` or ``sizes``.
        difference: What the simulation changes against the bill, before any fix.
        edits: Fixes as ``simulate --edit`` takes them, by id of the finding.
        saves: What the fix of each finding saves alone, by id of the finding.
        steps: Fixes one after another, the one that saves most first; they add up to ``change``.
        change: All fixes together.
        scenarios: Whole settings, by name.
        left_out: Fixes that could not be simulated, by id of the finding, with the reason.
        low: Least that all fixes together save under the disputed rules; ``None`` where these were
            not tried.
        high: Most that they save.
        untried: Why the disputed rules were not tried.
        rules: The provider's rules that the predictions rest on.
    """

    session: str
    calls: dict[str, Predicted] = {}
    compared: int = 0
    exact: int = 0
    error_tokens: int = 0
    exact_writes: int = 0
    unexplained_tokens: int = 0
    surplus_tokens: int = 0
    refused: dict[str, int] = {}
    mode: str = "sizes"
    difference: Change = Change()
    edits: dict[str, str] = {}
    saves: dict[str, Saving] = {}
    steps: tuple[FixStep, ...] = ()
    change: Change = Change()
    scenarios: dict[str, Change] = {}
    left_out: dict[str, str] = {}
    low: Saving | None = None
    high: Saving | None = None
    untried: str | None = None
    rules: tuple[Rules, ...] = ()

"""A forced tool call against asking freely first: three paths, and what decides between them.

Only the calls that cost something else on one of the paths are compared; all others are the same.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import msgspec

from cacheaudit.simulate.bill import Saving
from cacheaudit.simulate.edit import EditRefused
from cacheaudit.simulate.edits.auto_tool_choice import AutoToolChoice, is_forced
from cacheaudit.simulate.run import SimCall
from cacheaudit.simulate.whatif import Lab


class ForcedPaths(msgspec.Struct, frozen=True, kw_only=True):
    """What the concerned calls cost on each path.

    Attributes:
        calls: Ids of the calls whose cost depends on the path.
        forced: The tool is always forced.
        complies: Free first, and the model calls the tool.
        retry: Free first, it does not, and the forced request follows.
    """

    calls: tuple[str, ...]
    forced: Saving
    complies: Saving
    retry: Saving

    @property
    def break_even(self) -> Fraction | None:
        """Least share of compliance at which asking freely first costs no more, in equivalents.

        ``None`` where it is not known, or where no share decides: complying saves nothing.
        """
        forced, complies, retry = (
            path.input_equivalents for path in (self.forced, self.complies, self.retry)
        )
        if forced is None or complies is None or retry is None or retry <= complies:
            return None
        return Fraction(retry - forced) / Fraction(retry - complies)

    def expected(self, compliance: Decimal) -> Saving:
        """Expected cost of asking freely first.

        Args:
            compliance: Probability that the model calls the tool, 0 to 1.

        Raises:
            ValueError: It is no probability.
        """
        if not 0 <= compliance <= 1:
            raise ValueError(f"{compliance} is no probability")
        return Saving(
            _mixed(self.complies.input_equivalents, self.retry.input_equivalents, compliance),
            _mixed(self.complies.cost, self.retry.cost, compliance),
        )

    def saves(self, compliance: Decimal) -> Saving:
        """Expected saving of asking freely first; negative below the break-even."""
        return self.forced - self.expected(compliance)


def forced_paths(lab: Lab, calls: tuple[str, ...] = ()) -> ForcedPaths:
    """Simulate the three paths.

    Args:
        lab: The session.
        calls: Forced calls to free; empty: all.

    Raises:
        EditRefused: No call forces a tool, or one of the paths cannot be simulated.
    """
    if not any(is_forced(call) for call in lab.calls):
        raise EditRefused("auto-tool-choice: no request forces a tool.")
    trials = [
        lab.baseline,
        lab.alone(AutoToolChoice(calls=calls, path="complies")),
        lab.alone(AutoToolChoice(calls=calls, path="retry")),
    ]
    for trial in trials:
        if trial.bill is None:
            raise EditRefused(trial.refused or trial.name)
    rows = [{row.id: row for row in trial.outcomes} for trial in trials]
    ids = {name for path in rows for name in path}
    concerned = sorted(name for name in ids if _differs([path.get(name) for path in rows]))
    forced, complies, retry = (lab.sum_of(trial, set(concerned)) for trial in trials)
    return ForcedPaths(calls=tuple(concerned), forced=forced, complies=complies, retry=retry)


def _differs(rows: list[SimCall | None]) -> bool:
    return len({None if row is None else _parts(row) for row in rows}) > 1


def _parts(row: SimCall) -> tuple[object, ...]:
    outcome = row.predicted
    if outcome is None:
        return ()
    return (outcome.read, tuple(sorted(outcome.writes.items())), outcome.uncached)


def _mixed(yes: Decimal | None, no: Decimal | None, share: Decimal) -> Decimal | None:
    return None if yes is None or no is None else share * yes + (1 - share) * no

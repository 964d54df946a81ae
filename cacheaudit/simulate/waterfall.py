"""Several changes one after another, so that no saving is counted twice.

What a change saves depends on those made before it. In a fixed order each step is the difference
of two whole bills; the steps therefore add up to the difference of the first and the last bill,
exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cacheaudit.simulate.bill import Bill, Saving, total


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One change on top of those before it.

    Attributes:
        index: Its position among the changes that were given.
        alone: What it saves by itself.
        saves: What it saves on top of the steps before it; may be negative.
        after: The bill with it and all before it.
    """

    index: int
    alone: Saving
    saves: Saving
    after: Bill


class Waterfall(msgspec.Struct, frozen=True, kw_only=True):
    """From one bill to another.

    Attributes:
        before: Bill without any change.
        steps: Changes, the one that saves most alone first.
        after: Bill with all of them.
    """

    before: Bill
    steps: tuple[Step, ...]
    after: Bill

    @property
    def saves(self) -> Saving:
        """What all steps save: exactly ``before`` less ``after``."""
        return total(step.saves for step in self.steps)


def waterfall(
    before: Bill, alone: Sequence[Saving], evaluate: Callable[[frozenset[int]], Bill]
) -> Waterfall:
    """Make the steps.

    Args:
        before: Bill without any change.
        alone: What each change saves by itself.
        evaluate: Bill with a set of changes, by their positions.
    """
    order = sorted(range(len(alone)), key=lambda index: (-alone[index].rank, index))
    steps: list[Step] = []
    done: frozenset[int] = frozenset()
    last = before
    for index in order:
        done |= {index}
        bill = evaluate(done)
        steps.append(Step(index=index, alone=alone[index], saves=last.less(bill), after=bill))
        last = bill
    return Waterfall(before=before, steps=tuple(steps), after=last)

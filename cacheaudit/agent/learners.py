"""Tells whoever wants to know of recorded calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cacheaudit.agent.faults import Faults
from cacheaudit.agent.sizes import Made
from cacheaudit.model.call import Call

Learner = Callable[[Call], None]


def tell(
    learners: Sequence[Learner], made: Made, faults: Faults, reads_no_sizes: Learner | None
) -> None:
    """Tell everybody of a recorded call; one that fails keeps it from nobody else.

    Args:
        learners: Who is told.
        made: The call.
        faults: Counts those that fail.
        reads_no_sizes: The one among them that does not look at the sizes of content blocks: for it
            alone they are not put in place, which takes longer than all the rest.
    """
    whole: Call | None = None
    for learner in learners:
        try:
            if learner == reads_no_sizes:
                learner(made.call)
                continue
            whole = whole or made.whole()
            learner(whole)
        except Exception as error:
            faults("learn", error)

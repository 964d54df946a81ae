"""Runs what was planned through the model, and finds out whose fault it is where that fails."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_backend.engine.batch import lay_out
from local_backend.engine.sampler import choose
from local_backend.engine.scheduler import Work
from local_backend.errors import SamplingError
from local_backend.layers.context import Logits

if TYPE_CHECKING:
    from local_backend.kvcache.manager import CacheManager
    from local_backend.layers.memory import KVMemory
    from local_backend.models.base import Model


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one part of a pass.

    Attributes:
        work: The part.
        token: The token that was drawn; None where none was wanted.
        error: Why it failed; None where it did not. Then nothing of it counts.
    """

    work: Work
    token: int | None = None
    error: Exception | None = None


class Passes:
    """Runs passes.

    Args:
        model: What is run.
        memory: Where K and V lie.
        manager: Of the pages.
    """

    def __init__(self, model: Model, memory: KVMemory, manager: CacheManager) -> None:
        self._model = model
        self._memory = memory
        self._manager = manager

    def run(self, works: Seq[Work]) -> list[Outcome]:
        """Compute all parts together; complete pages are published.

        Where that fails each part is tried alone, so that a request which cannot be computed does
        not take the others with it.
        """
        try:
            return self._try(works)
        except Exception as error:
            if len(works) == 1:
                return [Outcome(works[0], error=error)]
        return [self._alone(work) for work in works]

    def _alone(self, work: Work) -> Outcome:
        try:
            return self._try([work])[0]
        except Exception as error:
            return Outcome(work, error=error)

    def _try(self, works: Seq[Work]) -> list[Outcome]:
        manager = self._manager
        for work in works:
            manager.prepare_write(work.sequence, work.start, work.end)
        manager.run_copies()
        tokens = self._forward([work for work in works if work.end > work.start])
        outcomes = []
        for work in works:
            if work.logits is Logits.NONE:
                outcomes.append(Outcome(work))
            elif (token := next(tokens)) is None:
                error = SamplingError("the scores of the model are no numbers")
                outcomes.append(Outcome(work, error=error))
                continue
            else:
                outcomes.append(Outcome(work, token))
            manager.commit(work.sequence, work.end)
        return outcomes

    def _forward(self, works: Seq[Work]) -> Iterator[int | None]:
        if not works:
            return iter(())
        context = lay_out(works, self._memory)
        wanted = [work.generation for work in works if work.logits is Logits.LAST]
        if not wanted:
            self._model.hidden(context)
            return iter(())
        scores = self._model.forward(context)
        return iter(choose(scores, [(g.request.sampling, g.output) for g in wanted]))

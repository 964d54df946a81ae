"""What an engine did so far, in numbers."""

from __future__ import annotations

from collections import Counter

from local_backend.engine.api import EngineStats, FinishReason, PoolStats, PromptUsage
from local_backend.engine.scheduler import Scheduler
from local_backend.kvcache.events import EventKind
from local_backend.kvcache.manager import CacheManager


class Counts:
    """Sums since the engine was built.

    Attributes:
        steps: Passes through the model.
        output_tokens: Tokens drawn.
        recomputed_tokens: Tokens computed once more for requests that had given way.
        refused: Submissions turned away.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.output_tokens = 0
        self.recomputed_tokens = 0
        self.refused = 0
        self._prompt_tokens = 0
        self._hit_tokens = 0
        self._computed_tokens = 0
        self._finished: Counter[FinishReason] = Counter()

    def started(self, usage: PromptUsage) -> None:
        """A prompt is complete."""
        self._prompt_tokens += usage.prompt
        self._hit_tokens += usage.hit
        self._computed_tokens += usage.computed

    def ended(self, reason: FinishReason) -> None:
        """An answer ended."""
        self._finished[reason] += 1

    def stats(self, manager: CacheManager, scheduler: Scheduler) -> EngineStats:
        """All of it, and where pages and requests are now."""
        evicted = manager.events.counts[EventKind.EVICT].pages
        return EngineStats(
            pools={
                name: PoolStats(
                    available=size.available,
                    evictable=size.evictable,
                    protected=size.protected,
                    total=size.total,
                )
                for name, size in manager.sizes().items()
            },
            waiting=len(scheduler.waiting),
            running=len(scheduler.running),
            steps=self.steps,
            prompt_tokens=self._prompt_tokens,
            hit_tokens=self._hit_tokens,
            computed_tokens=self._computed_tokens,
            output_tokens=self.output_tokens,
            finished={str(reason): count for reason, count in self._finished.items()},
            preempted=scheduler.preempted,
            evicted_pages=evicted + scheduler.evicted_in_growth,
            refused=self.refused,
            recomputed_tokens=self.recomputed_tokens,
        )

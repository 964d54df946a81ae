"""The engine: requests in, events out, one pass of the model a step.

It belongs to one thread; :mod:`local_backend.engine.loop` gives it one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from local_backend.engine.api import EngineStats, Event, FinishReason, GenerationRequest
from local_backend.engine.counts import Counts
from local_backend.engine.generation import Generation
from local_backend.engine.intake import Intake
from local_backend.engine.outbox import Outbox
from local_backend.engine.passes import Outcome, Passes
from local_backend.engine.scheduler import Scheduler, Work
from local_backend.engine.stops import Found, StopText
from local_backend.errors import CacheStateError, EngineBusyError

if TYPE_CHECKING:
    from local_backend.engine.config import EngineConfig
    from local_backend.engine.exactness import Exactness
    from local_backend.kvcache.manager import CacheManager
    from local_backend.layers.memory import KVMemory
    from local_backend.models.base import Model
    from local_backend.tokenizer.base import Tokenizer


class Engine:
    """Runs requests on a model over a cache.

    Args:
        model: What is run.
        tokenizer: For the text of answers and the tokens that end one.
        config: Sizes and limits.
        manager: Of the pages.
        memory: The pages.
        clock: Seconds; for deadlines and times in events.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        config: EngineConfig,
        manager: CacheManager,
        memory: KVMemory,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.config = config
        self.manager = manager
        self.intake = Intake(model, config, manager)
        self._clock = clock
        self._scheduler = Scheduler(manager, config)
        self._passes = Passes(model, memory, manager)
        self._live: dict[str, Generation] = {}
        self._order = 0
        self._counts = Counts()
        self._outbox = Outbox(self._counts)

    @property
    def context_length(self) -> int:
        """Longest prompt and answer together that this engine can hold."""
        return self.intake.context_length

    @cached_property
    def exactness(self) -> Exactness:
        """Whether its results depend on batching, cutting and caching; tried when first asked."""
        from local_backend.engine.exactness import try_exactness

        return try_exactness(self.model, self.config.page_size)

    @property
    def live(self) -> int:
        """Requests submitted and not ended."""
        return len(self._live)

    @property
    def has_work(self) -> bool:
        """Whether a step would do something: requests live, or events not handed out yet."""
        return bool(self._live or self._outbox)

    @property
    def is_stalled(self) -> bool:
        """Whether requests are live and none of them runs: pages are awaited."""
        return bool(self._live) and not self._scheduler.running

    @property
    def is_settled(self) -> bool:
        """Whether no page is in use; without live requests tiers may still read some."""
        return not any(size.protected for size in self.manager.sizes().values())

    @property
    def capacity(self) -> int:
        """Most requests that may be live."""
        return self.config.max_running + self.config.max_waiting

    # Requests.

    def now(self) -> float:
        """What its clock says; any thread may ask."""
        return self._clock()

    def submit(self, request: GenerationRequest, *, submitted_s: float | None = None) -> None:
        """Take a request; its events come out of the following steps.

        Args:
            request: What to do.
            submitted_s: When it was submitted, by the engine's clock; None for now.

        Raises:
            EngineRequestError: It makes no sense.
            RequestTooLargeError: It is longer than the context or the cache.
            EngineBusyError: As many are live as may.
            CacheStateError: A live request has its name.
        """
        self.intake.check(request)
        if request.name in self._live:
            raise CacheStateError(f"request {request.name!r} is live already")
        if self.live >= self.capacity:
            self._counts.refused += 1
            raise EngineBusyError(
                f"{self.live} requests run or wait, which is as many as may",
                "send it again later",
            )
        generation = Generation(
            request,
            self._order,
            self.intake.key(request),
            StopText(self.tokenizer, request.stop_sequences),
            self._clock() if submitted_s is None else submitted_s,
            self.intake.room(request),
        )
        self._order += 1
        self._live[request.name] = generation
        self._scheduler.add(generation)

    def cancel(self, name: str) -> bool:
        """End a request; its pages are free at once. False where none of that name is live."""
        generation = self._live.get(name)
        if generation is None:
            return False
        self._end(generation, FinishReason.CANCELLED)
        return True

    def cancel_all(self) -> None:
        """End all requests."""
        for name in list(self._live):
            self.cancel(name)

    def fail_all(self, error: Exception) -> list[Event]:
        """End all requests, because of something that none of them alone is to blame for.

        Returns:
            What happened since the last step.
        """
        for generation in list(self._live.values()):
            self._end(generation, FinishReason.FAILED, error=error)
        return self._outbox.take()

    # Steps.

    def step(self) -> list[Event]:
        """Do one pass, if there is anything to do.

        Returns:
            What happened since the last step, in order; for each request ``Started``, pieces, and
            ``Finished``. A request that ends before its prompt is complete has ``Finished`` only.
        """
        self.manager.poll()
        now = self._clock()
        for generation in list(self._live.values()):
            if generation.deadline_s is not None and now >= generation.deadline_s:
                self._end(generation, FinishReason.DEADLINE)
        self._scheduler.admit(now)
        if works := self._scheduler.plan():
            self._run(works)
        return self._outbox.take()

    def _run(self, works: list[Work]) -> None:
        outcomes = self._passes.run(works)
        self._counts.steps += 1
        now = self._clock()
        for outcome in outcomes:
            generation = outcome.work.generation
            if outcome.error is not None:
                self._end(generation, FinishReason.FAILED, error=outcome.error)
                continue
            try:
                self._advance(outcome, now)
            except Exception as error:
                self._end(generation, FinishReason.FAILED, error=error)

    def _advance(self, outcome: Outcome, now: float) -> None:
        work, generation = outcome.work, outcome.work.generation
        self._counts.recomputed_tokens += generation.note_computed(work.start, work.end)
        if not work.completes:
            return
        if not generation.is_started:
            self._outbox.start(generation, now)
        if outcome.token is None:
            self._end(generation, FinishReason.LENGTH)
        else:
            self._take(generation, outcome.token)

    def _take(self, generation: Generation, token: int) -> None:
        """One more token of an answer."""
        generation.output += 1
        self._counts.output_tokens += 1
        if token in self.tokenizer.stops:
            self._outbox.piece(generation, token, "")
            self._end(generation, FinishReason.STOP_TOKEN)
            return
        text = generation.text.feed(token)
        if isinstance(text, Found):
            self._outbox.piece(generation, token, text.before)
            self._end(generation, FinishReason.STOP_SEQUENCE, stop_sequence=text.sequence)
            return
        self._outbox.piece(generation, token, text)
        if generation.output >= generation.room:
            self._end(generation, FinishReason.LENGTH)
        else:
            generation.pending = token

    def _end(
        self,
        generation: Generation,
        reason: FinishReason,
        *,
        stop_sequence: str | None = None,
        error: Exception | None = None,
    ) -> None:
        """The last event of a request; its pages are given back before anyone hears of it."""
        del self._live[generation.request.name]
        self._scheduler.remove(generation)
        self._outbox.end(generation, reason, stop_sequence, error)

    # Books.

    def stats(self) -> EngineStats:
        """The engine now, and what it did so far."""
        return self._counts.stats(self.manager, self._scheduler)

    def check_integrity(self) -> None:
        """Compare all books with what is really held.

        Raises:
            CacheIntegrityError: Something contradicts.
        """
        self.manager.check_integrity()

    def reset_cache(self) -> int:
        """Forget everything cached; how many pages that were.

        Raises:
            CacheStateError: Requests are live, or pages are on their way to a tier.
        """
        if self._live:
            raise CacheStateError(f"{self.live} requests are live", "wait for them, or cancel them")
        return self.manager.reset()

    def close(self) -> None:
        """Finish offloads and close the tiers."""
        self.manager.close()

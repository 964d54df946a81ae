"""What lies between the wire and the engine: rules first, then the engine, then both together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_backend.engine.api import (
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Sampling,
    Started,
)
from local_backend.errors import (
    EngineBusyError,
    EngineClosedError,
    EngineRequestError,
    RequestTooLargeError,
)
from local_backend.rules import MarkerError, Outcome, Plan, ServiceRules
from local_backend.rules.diagnosis import Diagnosis, Journal
from local_backend.server.clock import Clock
from local_backend.server.errors import ApiError, InvalidRequestError
from local_backend.server.frames import frame_of
from local_backend.server.limits import Gate
from local_backend.server.metrics import Metrics
from local_backend.server.render import Rendered, Renderer
from local_backend.server.request import MessagesRequest
from local_backend.server.settings import Settings
from local_backend.server.shaping import Shape, shape_of

if TYPE_CHECKING:
    from local_backend.engine.handle import Handle
    from local_backend.engine.loop import EngineLoop
    from local_backend.models.registry import Loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and when.

    Attributes:
        workspace: Whose cache it is.
        now: Second at which the request started.
        readable_from: Second from which others can read what it stores; None for when its
            response begins.
    """

    workspace: str
    now: float
    readable_from: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An answer that has begun.

    Attributes:
        identity: Of the response.
        request: What was asked.
        rendered: The prompt.
        outcome: What the cache did, by the rules and in the engine.
        started: What the engine says.
        diagnosis: What changed since the request that was named.
        shape: Form that the answer must have; None for free text.
        limit: Most tokens that it may have.
        events: The rest of the engine's events.
    """

    identity: str
    request: MessagesRequest
    rendered: Rendered
    outcome: Outcome
    started: Started
    diagnosis: Diagnosis | None
    shape: Shape | None
    limit: int
    events: AsyncIterator[Event]


class Service:
    """One model with its cache rules. Belongs to the thread of the event loop.

    Args:
        settings: Limits and names.
        loaded: Model, tokenizer and template.
        engine: Runs the model; started, and closed, by somebody else.
        rules: In front of its cache.
        clock: Time of requests that do not bring their own.
        new_id: Makes an identity that begins with a text.
    """

    def __init__(
        self,
        settings: Settings,
        loaded: Loaded,
        engine: EngineLoop,
        rules: ServiceRules,
        clock: Clock,
        new_id: Callable[[str], str],
    ) -> None:
        self.settings = settings
        self.tokenizer = loaded.tokenizer
        self.model = settings.name
        self.context_length = engine.engine.context_length
        self.engine = engine
        self.rules = rules
        self.clock = clock
        self.new_id = new_id
        self.metrics = Metrics()
        self.gate = Gate(settings.max_requests)
        self._renderer = Renderer(
            loaded.tokenizer,
            frame_of(loaded.tokenizer, loaded.template),
            settings.media_tokens,
        )
        self._journal = Journal()

    @property
    def names(self) -> tuple[str, ...]:
        """Names that the model is known by."""
        return (self.model, *self.settings.aliases)

    def check_model(self, name: str) -> None:
        """Refuse a model that is not here.

        Raises:
            ApiError: It is not.
        """
        if not self.settings.any_model and name not in self.names:
            raise ApiError(404, f"model: {name!r} is not served here; {self.model!r} is")

    async def render(self, request: MessagesRequest, identity: str, workspace: str) -> Rendered:
        """Render a request, beside the event loop, and check its markers.

        Raises:
            ApiError: The model is not here, or a marker is refused.
        """
        self.check_model(request.model)
        rendered = await asyncio.to_thread(
            self._renderer.render,
            request,
            identity,
            workspace,
            tools_first=self.rules.tools_first,
        )
        try:
            self.rules.check(rendered.prompt)
        except MarkerError as error:
            raise InvalidRequestError("", error.message) from None
        return rendered

    @asynccontextmanager
    async def open(
        self, request: MessagesRequest, caller: Caller, identity: str
    ) -> AsyncIterator[Opened]:
        """Start an answer; on leaving it is ended, complete or not.

        Raises:
            ApiError: There is no answer; the error says why.
        """
        rendered = await self.render(request, identity, caller.workspace)
        self._check_length(rendered, request)
        shape = await asyncio.to_thread(shape_of, request)
        plan = self.rules.plan(rendered.prompt, caller.now)
        limit = request.max_tokens or 0
        if shape is not None and limit:
            limit = max(1, min(limit, shape.budget))
        generation = self._generation(request, rendered, plan, limit, is_shaped=shape is not None)
        handle = self._submit(generation)
        events = aiter(handle)
        try:
            started = await _first(events)
            outcome = self._began(plan, started, caller)
            diagnosis = self._diagnose(request, plan, outcome)
            output: list[int] = []
            yield Opened(
                identity=identity,
                request=request,
                rendered=rendered,
                outcome=outcome,
                started=started,
                diagnosis=diagnosis,
                shape=shape,
                limit=limit,
                events=self._watched(events, plan, output),
            )
        finally:
            handle.cancel()
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    def _check_length(self, rendered: Rendered, request: MessagesRequest) -> None:
        room = self.context_length - min(1, request.max_tokens or 0)
        if rendered.total > room:
            raise InvalidRequestError(
                "", f"prompt is too long: {rendered.total} tokens > {room} maximum"
            )

    def _generation(
        self,
        request: MessagesRequest,
        rendered: Rendered,
        plan: Plan,
        limit: int,
        *,
        is_shaped: bool,
    ) -> GenerationRequest:
        seed = self.settings.seed if request.seed is None else request.seed
        prompt = rendered.prompt
        # One token is always left to compute the next one from.
        read = None if plan.read is None else min(plan.read, rendered.total - 1)
        return GenerationRequest(
            name=prompt.id,
            tokens=prompt.tokens,
            spans=rendered.spans,
            max_tokens=limit,
            sampling=Sampling(
                temperature=request.temperature,
                top_k=request.top_k,
                top_p=request.top_p,
                seed=seed,
            ),
            stop_sequences=() if is_shaped else request.stop_sequences,
            salt=f"{prompt.workspace}\0{prompt.model}",
            hit_limit=read,
            deadline_s=self.settings.request_timeout_s,
        )

    def _submit(self, generation: GenerationRequest) -> Handle:
        try:
            return self.engine.submit(generation)
        except RequestTooLargeError as error:
            raise InvalidRequestError("", f"prompt is too long: {error.message}") from None
        except EngineRequestError as error:
            raise InvalidRequestError("", error.message) from None
        except (EngineBusyError, EngineClosedError) as error:
            raise ApiError(529, error.message, retry_after=1) from None

    def _began(self, plan: Plan, started: Started, caller: Caller) -> Outcome:
        readable = self.clock.now() if caller.readable_from is None else caller.readable_from
        outcome = self.rules.began(plan, started.usage.hit, max(readable, caller.now))
        counts = self.metrics.tokens
        counts["read"] += outcome.read
        counts["uncached"] += outcome.uncached
        counts["evicted"] += outcome.evicted
        for ttl, written in outcome.writes.items():
            counts[f"written_{ttl}"] += written
        if outcome.miss is not None:
            self.metrics.misses[outcome.miss.value] += 1
        return outcome

    def _diagnose(self, request: MessagesRequest, plan: Plan, outcome: Outcome) -> Diagnosis | None:
        """Compare with the request that the client names, and remember this one."""
        found = None
        if request.previous is not None:
            found = self._journal.compare(plan.prompt, request.previous, outcome.read)
        self._journal.record(plan.prompt, outcome.read + outcome.written)
        return found

    async def _watched(
        self, events: AsyncIterator[Event], plan: Plan, output: list[int]
    ) -> AsyncIterator[Event]:
        async for event in events:
            if isinstance(event, Finished):
                self.metrics.tokens["output"] += event.output_tokens
                if event.reason in _ENDED:
                    self.rules.ended(plan, tuple(output), self.clock.now())
            elif not isinstance(event, Started):
                output.append(event.token)
            yield event


_ENDED = (FinishReason.STOP_TOKEN, FinishReason.STOP_SEQUENCE, FinishReason.LENGTH)


async def _first(events: AsyncIterator[Event]) -> Started:
    """The first event of an answer.

    Raises:
        ApiError: The answer ended before it began.
    """
    async for event in events:
        if isinstance(event, Started):
            return event
        if isinstance(event, Finished):
            raise failure(event)
    raise ApiError(500, "the engine gave no answer")


def failure(event: Finished) -> ApiError:
    """The error that an answer ended with."""
    if event.reason is FinishReason.DEADLINE:
        return ApiError(504, "the answer took too long")
    if event.reason is FinishReason.CANCELLED:
        return ApiError(529, "the answer was given up", retry_after=1)
    return ApiError(500, "the engine failed")

"""Runs engines step by step, and says what a model without any cache would have answered."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from local_backend.engine.api import (
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Piece,
    Sampling,
    Started,
)
from local_backend.engine.build import build_engine
from local_backend.engine.config import EngineConfig
from local_backend.engine.core import Engine
from local_backend.engine.sampler import choose
from local_backend.models.base import Model
from local_backend.models.tiny import tiny_decoder
from local_backend.tokenizer.byte_level import ByteTokenizer
from tests.unit.local_backend.models.running import Runner

TOKENIZER = ByteTokenizer()


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Answer:
    """The events of one request."""

    events: list[Event] = field(default_factory=list)

    @property
    def started(self) -> Started:
        (found,) = [event for event in self.events if isinstance(event, Started)]
        return found

    @property
    def finished(self) -> Finished:
        found = self.events[-1]
        assert isinstance(found, Finished)
        return found

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.events if isinstance(event, Piece)]

    @property
    def text(self) -> str:
        parts = [event.text for event in self.events if isinstance(event, Piece)]
        return "".join(parts) + self.finished.text

    def check_order(self) -> None:
        """Started, pieces, Finished; a request that ended early may have Finished only."""
        kinds = [type(event) for event in self.events]
        assert kinds.count(Finished) == 1
        assert kinds[-1] is Finished
        if len(kinds) > 1:
            assert kinds[0] is Started
            assert all(kind is Piece for kind in kinds[1:-1])
        assert self.finished.output_tokens == len(self.tokens)


Answers = defaultdict[str, Answer]


class Driver:
    """An engine whose books are checked after every step."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.answers: Answers = defaultdict(Answer)

    def step(self) -> None:
        for event in self.engine.step():
            self.answers[event.name].events.append(event)
        self.check()

    def check(self) -> None:
        self.engine.check_integrity()
        for pool in self.engine.stats().pools.values():
            assert pool.available + pool.evictable + pool.protected == pool.total

    def finish(self, most: int = 2000) -> Answers:
        """Step until nothing is live; then no page may be in use."""
        for _ in range(most):
            if not self.engine.has_work:
                break
            self.step()
        assert not self.engine.has_work, "requests do not end"
        for _ in range(2000):  # pages may still be on their way to a tier
            if self.engine.is_settled:
                break
            time.sleep(0.001)
            self.step()
        assert self.engine.is_settled, "pages are still in use"
        for answer in self.answers.values():
            answer.check_order()
        return self.answers

    def run(self, *requests: GenerationRequest) -> Answers:
        for request in requests:
            self.engine.submit(request)
        return self.finish()


def drive(
    model: Model | None = None, config: EngineConfig | None = None, clock: Clock | None = None
) -> Driver:
    """A driver for the little decoder, or for another model."""
    return Driver(
        build_engine(
            model or tiny_decoder(),
            TOKENIZER,
            config or EngineConfig(pages=64),
            clock=clock or Clock(),
        )
    )


def scores_without_cache(model: Model, tokens: Sequence[int]) -> Tensor:
    """Scores behind every token, computed whole, alone, in memory of its own."""
    return Runner(model, len(tokens)).split(list(tokens), [len(tokens)])


def check_answer(model: Model, request: GenerationRequest, answer: Answer) -> None:
    """Every token of an answer is the one that the model draws without any cache."""
    got = answer.tokens
    if not got:
        return
    scores = scores_without_cache(model, [*request.tokens, *got[:-1]])
    rows = scores[len(request.tokens) - 1 :]
    assert got == choose(rows, [(request.sampling, place) for place in range(len(got))])
    if answer.finished.reason is FinishReason.LENGTH:
        assert len(got) <= request.max_tokens
    if answer.finished.reason is FinishReason.STOP_TOKEN:
        assert got[-1] in TOKENIZER.stops
    assert not TOKENIZER.stops & set(got[:-1])


def ask(name: str, tokens: Sequence[int], count: int = 4, **more: object) -> GenerationRequest:
    """A request."""
    return GenerationRequest(name=name, tokens=tuple(tokens), max_tokens=count, **more)  # type: ignore[arg-type]


def warm(seed: int) -> Sampling:
    return Sampling(temperature=0.9, top_k=40, top_p=0.95, seed=seed)

"""How answers begin, go on beside others, and end."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from local_backend.engine.api import (  # noqa: E402
    Finished,
    FinishReason,
    GenerationRequest,
    Piece,
    PromptUsage,
    Sampling,
    Started,
)
from local_backend.engine.build import build_engine  # noqa: E402
from local_backend.engine.config import EngineConfig  # noqa: E402
from local_backend.errors import (  # noqa: E402
    CacheStateError,
    EngineBusyError,
    EngineRequestError,
    RequestTooLargeError,
)
from local_backend.kvcache.keys import Span  # noqa: E402
from local_backend.models.tiny import tiny_decoder  # noqa: E402
from tests.unit.local_backend.engine.driving import (  # noqa: E402
    TOKENIZER,
    Clock,
    Driver,
    ask,
    check_answer,
    drive,
)
from tests.unit.local_backend.models.running import draw  # noqa: E402


def greedy(request: GenerationRequest) -> list[int]:
    return drive().run(dataclasses.replace(request, name="alone"))["alone"].tokens


# B05: nobody writes into pages that another one reads.


def test_b_waits_while_a_answers_and_a_does_not_change() -> None:
    a, b = ask("a", draw(60, 1), 20), ask("b", draw(60, 2), 20)
    # 79 positions of each: five pages. Six are not enough for both.
    driver = drive(config=EngineConfig(pages=6))
    driver.engine.submit(a)
    driver.step()
    driver.engine.submit(b)
    for _ in range(10):
        driver.step()
        assert (driver.engine.stats().running, driver.engine.stats().waiting) == (1, 1)
    answers = driver.finish()
    assert answers["a"].tokens == greedy(a)
    assert answers["b"].tokens == greedy(b)
    first_of_b = answers["b"].started
    assert first_of_b.usage.computed == 60
    assert driver.engine.stats().preempted == 0


def test_a2_keeps_what_it_shares_with_a1_when_that_ends_and_b_comes() -> None:
    stem = draw(176, 1)
    a1, a2 = ask("a1", [*stem, 1, 2], 2), ask("a2", [*stem, 3, 4], 20)
    b = ask("b", draw(100, 2), 4)
    driver = drive(config=EngineConfig(pages=16))
    for request in (a1, a2):
        driver.engine.submit(request)
    while not driver.answers["a1"].events or not isinstance(
        driver.answers["a1"].events[-1], Finished
    ):
        driver.step()
    # Eleven pages are shared, and a2 has one of its own.
    assert driver.engine.stats().pools["full"].protected >= 12
    driver.engine.submit(b)
    driver.step()
    assert driver.engine.stats().waiting == 1
    answers = driver.finish()
    assert answers["a2"].tokens == greedy(a2)
    assert answers["b"].tokens == greedy(b)


def test_one_evicted_page_costs_the_tail_only() -> None:
    """195 tokens, 12 whole pages; one is evicted: 176 are still found."""
    tokens = draw(195, 1)
    driver = drive(config=EngineConfig(pages=13, tails=False))
    driver.run(ask("a", tokens, 0))
    driver.run(ask("b", draw(20, 2), 0))
    assert driver.engine.stats().evicted_pages == 1
    assert driver.run(ask("again", tokens, 0))["again"].started.usage.hit == 176


def test_the_youngest_gives_way_and_is_computed_again() -> None:
    a, b = ask("a", draw(30, 1), 40), ask("b", draw(30, 2), 40)
    # 69 positions of each: five pages of 16. Eight let both begin.
    driver = drive(config=EngineConfig(pages=8))
    answers = driver.run(a, b)
    stats = driver.engine.stats()
    assert stats.preempted >= 1
    assert answers["a"].tokens == greedy(a)
    assert answers["b"].tokens == greedy(b)
    # Its user hears of the beginning once, and the prompt counts once.
    assert answers["b"].started.usage.computed == 30
    assert (stats.prompt_tokens, stats.computed_tokens) == (60, 60)
    assert list(answers["a"].events)[-1] == answers["a"].finished


def test_giving_way_in_the_middle_of_a_prompt() -> None:
    """It may have back what it had, though it may hit nothing, and nobody comes before it."""
    model = tiny_decoder()
    a = ask("a", draw(8, 1), 40)
    b = ask("b", draw(60, 2), 3, hit_limit=0)
    c = ask("c", draw(8, 3), 1)
    config = EngineConfig(page_size=4, pages=18, step_tokens=9, alone_tokens=None, max_running=2)
    driver = drive(model, config)
    driver.engine.submit(a)
    driver.step()
    # b needs 15 of the 16 pages that are left. After four steps of 8 tokens a needs two more.
    driver.engine.submit(b)
    driver.engine.submit(c)
    answers = driver.finish()
    stats = driver.engine.stats()
    assert stats.preempted == 1
    assert list(answers) == ["a", "b", "c"]
    assert answers["b"].started.usage == PromptUsage(prompt=60, hit=0, computed=60)
    # a grew to 12 pages, which leaves 6 of the 8 that b had filled: 8 tokens are computed again.
    assert stats.recomputed_tokens == 8
    assert stats.computed_tokens == 8 + 60 + 8
    for request in (a, b, c):
        check_answer(model, request, answers[request.name])


def test_who_came_first_ends_first() -> None:
    requests = [ask(f"r{i}", draw(40, i), 6) for i in range(6)]
    driver = drive(config=EngineConfig(pages=4, max_running=6))
    ended = []
    for request in requests:
        driver.engine.submit(request)
    while driver.engine.has_work:
        events = driver.engine.step()
        ended.extend(event.name for event in events if isinstance(event, Finished))
    assert ended == [request.name for request in requests]


# Ends.


def test_stop_sequences_across_tokens() -> None:
    request = ask("a", draw(40, 5), 24)
    whole = drive().run(request)["a"]
    text = whole.text
    assert len(text) > 12
    stop = text[8:11]
    assert stop not in text[:8]
    found = drive().run(dataclasses.replace(request, stop_sequences=("zzz", stop)))["a"]
    assert found.text == text[: text.index(stop)]
    assert found.finished.reason is FinishReason.STOP_SEQUENCE
    assert found.finished.stop_sequence == stop
    assert found.tokens == whole.tokens[: len(found.tokens)]
    assert len(found.tokens) < 24
    # What was held back for a sequence that never came is handed out at the end.
    never = drive().run(dataclasses.replace(request, stop_sequences=(text[-1] + "zz",)))["a"]
    assert never.text == text
    assert never.finished.reason is FinishReason.LENGTH


def test_a_stop_token_ends_the_answer_and_has_no_text() -> None:
    request = ask("a", draw(30, 21), 60, sampling=Sampling(temperature=1.0, seed=21))
    answer = drive().run(request)["a"]
    assert answer.finished.reason is FinishReason.STOP_TOKEN
    assert len(answer.tokens) == 12
    check_answer(tiny_decoder(), request, answer)
    assert answer.tokens[-1] in TOKENIZER.stops
    last = answer.events[-2]
    assert isinstance(last, Piece)
    assert last.text == ""
    assert answer.text == TOKENIZER.decode(answer.tokens)


def test_text_is_that_of_the_tokens() -> None:
    answer = drive().run(ask("a", draw(40, 3), 50))["a"]
    assert answer.text == TOKENIZER.decode(answer.tokens)


def test_deadlines_end_whoever_runs_or_waits() -> None:
    clock = Clock()
    driver = drive(config=EngineConfig(pages=64, max_running=1), clock=clock)
    driver.engine.submit(ask("runs", draw(20, 1), 50, deadline_s=5.0))
    driver.engine.submit(ask("waits", draw(20, 2), 50, deadline_s=3.0))
    driver.engine.submit(ask("last", draw(20, 3), 2))
    driver.step()
    clock.now = 2.0
    driver.step()
    assert not isinstance(driver.answers["runs"].events[-1], Finished)
    clock.now = 3.0
    driver.step()
    assert driver.answers["waits"].events == [
        Finished(name="waits", reason=FinishReason.DEADLINE, text="", output_tokens=0)
    ]
    clock.now = 5.0
    answers = driver.finish()
    assert answers["runs"].finished.reason is FinishReason.DEADLINE
    assert answers["runs"].finished.output_tokens == 3
    assert answers["last"].finished.reason is FinishReason.LENGTH
    assert answers["last"].started.queue_s == 5.0


def test_times_are_those_of_the_clock() -> None:
    clock = Clock()
    driver = drive(config=EngineConfig(pages=64, step_tokens=65, alone_tokens=None), clock=clock)
    driver.engine.submit(ask("a", draw(100, 1), 1))
    clock.now = 1.5
    driver.step()
    clock.now = 4.0
    started = driver.finish()["a"].started
    assert (started.queue_s, started.prefill_s) == (1.5, 2.5)


@pytest.mark.parametrize(("alone", "passes"), [(None, 3), (32, 2), (50, 1), (9, 3)])
def test_a_prompt_takes_longer_passes_while_no_answer_grows(alone: int | None, passes: int) -> None:
    config = EngineConfig(page_size=4, pages=64, step_tokens=20, alone_tokens=alone, max_running=4)
    driver = drive(config=config)

    def steps_until(computed: int) -> int:
        steps = 0
        while driver.engine.stats().computed_tokens < computed:
            driver.step()
            steps += 1
        return steps

    driver.engine.submit(ask("a", draw(50, 1), 40))
    assert steps_until(50) == passes
    # An answer grows by one token a pass now; the second prompt gets the other 19, in whole pages.
    driver.engine.submit(ask("b", draw(50, 2), 1))
    assert steps_until(100) == 3


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 6])
def test_cancelling_gives_pages_back_at_once(steps: int) -> None:
    driver = drive(config=EngineConfig(pages=64, step_tokens=65, alone_tokens=None))
    driver.engine.submit(ask("a", draw(150, 1), 50))
    for _ in range(steps):
        driver.step()
    assert driver.engine.cancel("a")
    assert driver.engine.stats().pools["full"].protected == 0
    driver.check()
    assert not driver.engine.cancel("a")
    assert driver.finish()["a"].finished.reason is FinishReason.CANCELLED
    # The name may be used again.
    assert driver.run(ask("b", draw(9, 1), 1))["b"].finished.reason is FinishReason.LENGTH


# What is turned away.


def test_one_too_many_is_turned_away() -> None:
    driver = drive(config=EngineConfig(pages=64, max_running=2, max_waiting=1))
    for number in range(3):
        driver.engine.submit(ask(f"r{number}", draw(20, number)))
    with pytest.raises(EngineBusyError, match="3 requests") as caught:
        driver.engine.submit(ask("r3", draw(20, 3)))
    assert caught.value.hint == "send it again later"
    assert driver.engine.stats().refused == 1
    driver.finish()
    driver.engine.submit(ask("r3", draw(20, 3)))
    assert len(driver.finish()) == 4


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tokens": ()}, "no tokens"),
        ({"tokens": (1, -1)}, "outside 0 to 263"),
        ({"tokens": (264,)}, "outside 0 to 263"),
        ({"tokens": (1.5,)}, "outside 0 to 263"),
        ({"max_tokens": -1}, "negative max_tokens"),
        ({"stop_sequences": ("a", "")}, "empty stop sequence"),
        ({"hit_limit": -1}, "negative hit_limit"),
        ({"sampling": Sampling(temperature=-0.1)}, "temperature"),
        ({"sampling": Sampling(temperature=float("nan"))}, "temperature"),
        ({"sampling": Sampling(top_p=0.0)}, "top_p"),
        ({"sampling": Sampling(top_k=0)}, "top_k"),
        ({"spans": (Span(3, 4, b"x"),)}, "media spans"),
        ({"spans": (Span(0, 2, b"x"), Span(1, 2, b"y"))}, "media spans"),
    ],
)
def test_requests_that_make_no_sense(change: dict[str, Any], problem: str) -> None:
    driver = drive()
    request = dataclasses.replace(ask("odd", (1, 2, 3, 4, 5)), **change)
    with pytest.raises(EngineRequestError, match=f"'odd' has.*{problem}"):
        driver.engine.submit(request)
    assert not driver.engine.has_work


def test_names_are_unique_among_the_live() -> None:
    driver = drive()
    driver.engine.submit(ask("a", (1,)))
    with pytest.raises(CacheStateError, match="'a' is live"):
        driver.engine.submit(ask("a", (2,)))


def test_prompts_longer_than_the_cache_or_the_context() -> None:
    driver = drive(config=EngineConfig(pages=4))
    assert driver.engine.context_length == 64
    with pytest.raises(RequestTooLargeError, match="65 tokens, and the pages of the cache hold 64"):
        driver.engine.submit(ask("a", draw(65, 1), 0))
    with pytest.raises(RequestTooLargeError, match="64 tokens"):
        driver.engine.submit(ask("a", draw(64, 1), 1))
    assert driver.run(ask("a", draw(64, 1), 0))["a"].started.usage.prompt == 64
    driver = drive(config=EngineConfig(pages=64, context_length=100))
    with pytest.raises(RequestTooLargeError, match="101 tokens, and the context has 100"):
        driver.engine.submit(ask("a", draw(101, 1), 0))


@pytest.mark.parametrize("pages", [4, 64])
def test_answers_end_with_the_context(pages: int) -> None:
    driver = drive(config=EngineConfig(pages=pages, context_length=64))
    request = ask("a", draw(50, 1), 40)
    answer = driver.run(request)["a"]
    assert len(answer.tokens) == 14
    assert answer.finished.reason is FinishReason.LENGTH
    check_answer(tiny_decoder(), request, answer)


# Faults.


class Faulty:
    """The little decoder, which fails where it meets a certain token."""

    def __init__(self, bad: int, is_nan: bool) -> None:
        self._model = tiny_decoder()
        self._bad = bad
        self._is_nan = is_nan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def hidden(self, context: Any) -> Any:
        return self._model.hidden(context)

    def forward(self, context: Any) -> Any:
        scores = self._model.forward(context)
        if self._bad not in context.tokens.tolist():
            return scores
        if not self._is_nan:
            raise ValueError("the model does not like this token")
        scores = scores.clone()
        for row, at in enumerate(context.wanted.tolist()):
            begin = max(b for b in context.batches[0].bounds if b <= at)
            if self._bad in context.tokens[begin : at + 1].tolist():
                scores[row] = torch.nan
        return scores


@pytest.mark.parametrize("is_nan", [False, True])
def test_a_request_that_cannot_be_computed_fails_alone(is_nan: bool) -> None:
    bad = 200
    clean = [[t for t in draw(60, seed) if t != bad] for seed in range(3)]
    model = Faulty(bad, is_nan)
    engine = build_engine(model, TOKENIZER, EngineConfig(pages=32))  # type: ignore[arg-type]
    driver = Driver(engine)
    good = [ask(f"good{i}", tokens, 6) for i, tokens in enumerate(clean)]
    # Answers that happen to hold the bad token would fail too; these do not.
    assert all(bad not in greedy(request) for request in good)
    driver.engine.submit(good[0])
    driver.step()
    answers = driver.run(good[1], ask("bad", [*clean[2], bad], 6), good[2])
    assert answers["bad"].events == [answers["bad"].finished]
    assert answers["bad"].finished.reason is FinishReason.FAILED
    wanted = "SamplingError" if is_nan else "ValueError: the model does not like this token"
    assert wanted in str(answers["bad"].finished.error)
    for request in good:
        assert isinstance(answers[request.name].events[0], Started)
        assert answers[request.name].tokens == greedy(request)
    assert driver.engine.stats().finished == {"length": 3, "failed": 1}

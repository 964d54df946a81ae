"""What is found, what is computed, and that neither changes an answer."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from local_backend.engine.api import (  # noqa: E402
    FinishReason,
    GenerationRequest,
    PromptUsage,
    Sampling,
)
from local_backend.engine.build import build_engine  # noqa: E402
from local_backend.engine.config import EngineConfig  # noqa: E402
from local_backend.kvcache.keys import Span  # noqa: E402
from local_backend.kvcache.offload import Offload  # noqa: E402
from local_backend.kvcache.sequence import Container  # noqa: E402
from local_backend.kvcache.tiers.host import HostTier  # noqa: E402
from local_backend.kvcache.tiers.stack import TierStack  # noqa: E402
from local_backend.models.tiny import tiny_decoder  # noqa: E402
from tests.unit.local_backend.engine.driving import (  # noqa: E402
    TOKENIZER,
    Driver,
    ask,
    check_answer,
    drive,
)
from tests.unit.local_backend.models.running import draw  # noqa: E402

WHOLE_PAGES = EngineConfig(pages=64, tails=False)


def siblings(count: int, common: int, own: int = 10) -> list[GenerationRequest]:
    stem = draw(common, 1)
    return [ask(f"r{i}", [*stem, i, *draw(own - 1, 10 + i)]) for i in range(count)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_47_tokens_after_45_find_32_and_compute_15(dtype: str) -> None:
    model, stem = tiny_decoder(0, dtype), draw(32, 1)
    driver = drive(model, WHOLE_PAGES)
    driver.run(ask("first", stem + draw(13, 2)))
    second = ask("second", stem + draw(15, 3), 8)
    answer = driver.run(second)["second"]
    assert answer.started.usage == PromptUsage(prompt=47, hit=32, computed=15)
    check_answer(model, second, answer)
    cold = drive(model, WHOLE_PAGES).run(second)["second"]
    assert cold.started.usage == PromptUsage(prompt=47, hit=0, computed=47)
    assert cold.tokens == answer.tokens


def test_tails_are_exact_to_the_token() -> None:
    model, stem = tiny_decoder(), draw(40, 1)
    driver = drive(model)
    driver.run(ask("first", stem + [1] * 8))
    second = ask("second", stem + [2] * 8)
    answer = driver.run(second)["second"]
    assert answer.started.usage == PromptUsage(prompt=48, hit=40, computed=8)
    check_answer(model, second, answer)


@pytest.mark.parametrize("step_tokens", [66, 100, 512])
def test_four_siblings_compute_their_beginning_once(step_tokens: int) -> None:
    model, requests = tiny_decoder(), siblings(4, 160)
    driver = drive(
        model, dataclasses.replace(WHOLE_PAGES, step_tokens=step_tokens, alone_tokens=None)
    )
    answers = driver.run(*requests)
    stats = driver.engine.stats()
    assert stats.computed_tokens == 160 + 4 * 10
    assert stats.prompt_tokens == 4 * 170
    assert answers["r0"].started.usage == PromptUsage(prompt=170, hit=0, computed=170)
    for request in requests[1:]:
        usage = answers[request.name].started.usage
        assert usage == PromptUsage(prompt=170, hit=160, computed=10, joined=160)
    for request in requests:
        check_answer(model, request, answers[request.name])


def test_siblings_that_come_later_join_as_well() -> None:
    first, second = siblings(2, 160)
    driver = drive(config=dataclasses.replace(WHOLE_PAGES, step_tokens=65, alone_tokens=None))
    driver.engine.submit(first)
    driver.step()  # 64 of its tokens
    driver.engine.submit(second)
    usage = driver.finish()["r1"].started.usage
    assert usage == PromptUsage(prompt=170, hit=160, computed=10, joined=96)


def test_without_sharing_each_sibling_computes() -> None:
    driver = drive(config=dataclasses.replace(WHOLE_PAGES, pages=128, share_in_flight=False))
    driver.run(*siblings(4, 160))
    assert driver.engine.stats().computed_tokens == 4 * 170


def test_a_sibling_goes_on_where_its_leader_was_cancelled() -> None:
    first, second, third = siblings(3, 160)
    driver = drive(config=dataclasses.replace(WHOLE_PAGES, step_tokens=65, alone_tokens=None))
    for request in (first, second, third):
        driver.engine.submit(request)
    driver.step()
    assert driver.engine.stats().waiting == 2
    driver.engine.cancel("r0")
    answers = driver.finish()
    assert answers["r0"].finished.reason is FinishReason.CANCELLED
    # 64 tokens of the one that left are there; the second computes the rest, the third nothing.
    # All that they find came after them.
    usage = answers["r1"].started.usage
    assert usage == PromptUsage(prompt=170, hit=64, computed=106, joined=64)
    usage = answers["r2"].started.usage
    assert usage == PromptUsage(prompt=170, hit=160, computed=10, joined=160)


def test_others_overtake_who_waits_for_a_leader() -> None:
    first, second = siblings(2, 160)
    driver = drive(config=dataclasses.replace(WHOLE_PAGES, step_tokens=65, alone_tokens=None))
    for request in (first, second, ask("other", draw(200, 9), 1)):
        driver.engine.submit(request)
    driver.step()
    stats = driver.engine.stats()
    assert (stats.running, stats.waiting) == (2, 1)
    # It still goes first as soon as it can.
    assert list(driver.finish()) == ["r0", "r1", "other"]


def test_who_waits_for_a_leader_keeps_room() -> None:
    """The later one would take the pages that the sibling needs in a moment."""
    first, second = siblings(2, 160, 32)
    config = dataclasses.replace(WHOLE_PAGES, pages=16, step_tokens=65, alone_tokens=None)
    driver = drive(config=config)
    for request in (first, second, ask("other", draw(30, 9), 1)):
        driver.engine.submit(request)
    driver.step()
    assert driver.engine.stats().running == 1
    answers = driver.finish()
    assert answers["r1"].started.usage.hit == 160
    assert list(answers) == ["r0", "r1", "other"]


@pytest.mark.parametrize("limit", [0, 1, 16, 100, 159, 160, 165, 170, 900])
@pytest.mark.parametrize("tails", [False, True])
def test_the_limit_on_hits_is_kept(limit: int, tails: bool) -> None:
    config = dataclasses.replace(WHOLE_PAGES, tails=tails)
    first, second = (dataclasses.replace(r, max_tokens=1) for r in siblings(2, 165, 5))
    second = dataclasses.replace(second, hit_limit=limit)
    model = tiny_decoder()
    # Running beside it, then behind it.
    for is_beside in (True, False):
        driver = drive(model, config)
        driver.engine.submit(first)
        if not is_beside:
            driver.finish()
        answer = driver.run(second)["r1"]
        whole = min(limit, 165) // 16 * 16
        usage = answer.started.usage
        assert usage.hit <= limit
        expected = min(limit, 165) if tails else whole
        if not is_beside:
            assert usage.hit == expected  # with tails also what stood in a page not yet full
            assert usage.joined == 0
        else:
            # For less than a page nobody waits. The first ends as soon as its prompt is complete.
            assert usage.joined == usage.hit == (expected if whole else 0)
        assert usage.computed == 170 - usage.hit
        check_answer(model, second, answer)


def test_workspaces_adapters_and_media_share_nothing() -> None:
    tokens = draw(64, 1)
    plain = ask("plain", tokens)
    image = Span(32, 8, b"one")
    others = [
        ask("salt", tokens, salt="a"),
        ask("adapter", tokens, adapter="a"),
        ask("salt 2", tokens, salt="b"),
    ]
    driver = drive(config=WHOLE_PAGES)
    answers = driver.run(plain, *others)
    assert [answers[r.name].started.usage.hit for r in others] == [0, 0, 0]
    assert driver.run(ask("again", tokens, salt="a"))["again"].started.usage.hit == 48
    driver.run(ask("image", tokens, spans=(image,)))
    assert driver.answers["image"].started.usage.hit == 32
    other = dataclasses.replace(image, digest=b"two")
    assert driver.run(ask("other", tokens, spans=(other,)))["other"].started.usage.hit == 32
    assert driver.run(ask("same", tokens, spans=(image,)))["same"].started.usage.hit == 48


def test_prompt_only_is_computed_and_published() -> None:
    tokens = draw(64, 1)
    driver = drive(config=WHOLE_PAGES)
    answer = driver.run(ask("warm", tokens, 0))["warm"]
    assert [type(event).__name__ for event in answer.events] == ["Started", "Finished"]
    assert answer.started.usage == PromptUsage(prompt=64, hit=0, computed=64)
    assert answer.finished.reason is FinishReason.LENGTH
    assert answer.finished.output_tokens == 0
    # All of it is there now, so nothing is left to compute; an answer needs the last position.
    assert driver.run(ask("again", tokens, 0))["again"].started.usage.computed == 0
    assert driver.run(ask("more", [*tokens, 5]))["more"].started.usage.hit == 64
    assert driver.run(ask("same", tokens))["same"].started.usage.hit == 48


def test_logits_only_where_a_token_is_drawn() -> None:
    """200 tokens in three chunks and two answers: one row for each token drawn."""
    rows = []

    class Counting:
        def __init__(self) -> None:
            self._model = tiny_decoder()

        def __getattr__(self, name: str) -> object:
            return getattr(self._model, name)

        def forward(self, context):
            scores = self._model.forward(context)
            rows.append((len(context.tokens), len(scores)))
            return scores

    config = dataclasses.replace(WHOLE_PAGES, step_tokens=80, alone_tokens=None)
    engine = build_engine(Counting(), TOKENIZER, config)  # type: ignore[arg-type]
    Driver(engine).run(ask("a", draw(200, 1), 3), ask("b", draw(200, 2), 0))
    # a: 80, 80, and 40 with the first score, beside which b has two pages; then b has four pages
    # beside each further token of a. Neither the first two passes nor the end of b need scores.
    assert rows == [(72, 1), (65, 1), (65, 1)]
    assert engine.stats().computed_tokens == 400


def test_answers_are_found_by_the_next_turn() -> None:
    model, tokens = tiny_decoder(), draw(30, 1)
    driver = drive(model)
    first = driver.run(ask("first", tokens, 20))["first"]
    assert len(first.tokens) == 20
    second = ask("second", tokens + first.tokens + draw(9, 2))
    answer = driver.run(second)["second"]
    # 49 tokens have K and V; the last one drawn was never computed. Three pages are complete, and
    # the fourth was kept as it was.
    assert answer.started.usage.hit == 49
    check_answer(model, second, answer)


@pytest.mark.parametrize(
    ("cache", "policy"),
    [("radix", "lru"), ("radix", "lfu"), ("radix", "cost"), ("hash", "cost"), ("naive", "lru")],
)
def test_every_cache_and_order_gives_the_same_answers(cache: str, policy: str) -> None:
    model, requests = tiny_decoder(), siblings(5, 40)
    driver = drive(model, EngineConfig(pages=9, cache=cache, policy=policy))
    answers = driver.run(*requests)
    for request in requests:
        check_answer(model, request, answers[request.name])


def test_static_and_dynamic_containers_answer_alike() -> None:
    requests = [
        dataclasses.replace(r, max_tokens=30, sampling=Sampling(temperature=1.0, seed=i))
        for i, r in enumerate(siblings(4, 33, 7))
    ]
    found = []
    for container in Container:
        driver = drive(config=EngineConfig(pages=12, page_size=8, container=container))
        answers = driver.run(*requests)
        found.append([answers[r.name].tokens for r in requests])
        if container is Container.STATIC:
            assert driver.engine.stats().preempted == 0
    assert found[0] == found[1]


def test_pages_come_back_from_a_tier() -> None:
    model, tiers = tiny_decoder(), TierStack([HostTier(1 << 24)])
    engine = build_engine(model, TOKENIZER, EngineConfig(pages=8), offload=Offload(tiers))
    driver = Driver(engine)
    tokens = draw(100, 1)
    cold = driver.run(ask("cold", tokens))["cold"]
    driver.run(ask("other", draw(110, 2)))
    back = driver.run(ask("back", tokens))["back"]
    usage = back.started.usage
    assert (usage.hit, usage.restored, usage.computed) == (96, 96, 4)
    assert usage.restore_s > 0
    assert back.tokens == cold.tokens
    engine.close()


def test_reset_forgets_and_changes_no_answer() -> None:
    driver, request = drive(), ask("a", draw(64, 1))
    first = driver.run(request)["a"].tokens
    assert driver.engine.reset_cache() == 5  # four complete ones, and three tokens of the answer
    driver.answers.clear()
    again = driver.run(request)["a"]
    assert again.started.usage.hit == 0
    assert again.tokens == first

"""Several users at once, a pool that is too small, a tier, cancels and resets: no page is lost."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from local_backend.engine.api import FinishReason, GenerationRequest, Sampling
from local_backend.engine.build import build_engine
from local_backend.engine.config import EngineConfig
from local_backend.engine.loop import EngineLoop
from local_backend.errors import CacheStateError
from local_backend.kvcache.offload import Offload, WriteMode
from local_backend.kvcache.tiers.host import HostTier
from local_backend.kvcache.tiers.stack import TierStack
from local_backend.models.tiny import tiny_decoder
from tests.unit.local_backend.engine.driving import (
    TOKENIZER,
    Answer,
    check_answer,
)
from tests.unit.local_backend.models.running import draw

USERS = 5
EACH = 12


def requests_of(user: int) -> Iterator[tuple[GenerationRequest, int | None]]:
    """What a user asks for, and after how many events he leaves."""
    source = random.Random(user)
    for number in range(EACH):
        stem = draw(48, source.randrange(3))[: source.choice([8, 20, 33, 48])]
        request = GenerationRequest(
            name=f"u{user}-{number}",
            tokens=tuple(stem + draw(source.randrange(12), source.randrange(99))),
            max_tokens=source.choice([0, 1, 5, 16]),
            sampling=Sampling(temperature=source.choice([0.0, 1.0]), seed=number),
            hit_limit=source.choice([None, None, 0, 17]),
            salt=source.choice([None, "other"]),
        )
        yield request, source.choice([None, None, None, 1, 3])


@pytest.mark.parametrize("mode", list(WriteMode))
def test_a_crowd_of_users_leaves_every_page_accounted_for(mode: WriteMode) -> None:
    model = tiny_decoder()
    config = EngineConfig(
        page_size=4, pages=34, step_tokens=24, alone_tokens=None, max_running=4, max_waiting=4
    )
    tiers = Offload(TierStack([HostTier(1 << 17)]), mode=mode)
    loop = EngineLoop(build_engine(model, TOKENIZER, config, offload=tiers))
    loop.start()

    def use(user: int) -> list[tuple[GenerationRequest, Answer]]:
        found = []
        for request, leaves in requests_of(user):
            answer = Answer()
            handle = loop.submit(request)
            for event in handle:
                answer.events.append(event)
                if len(answer.events) == leaves:
                    handle.cancel()
            found.append((request, answer))
            loop.check_integrity()
            with contextlib.suppress(CacheStateError):  # usually somebody is at work
                loop.reset_cache()
        return found

    with ThreadPoolExecutor(USERS) as pool:
        answers = [pair for found in pool.map(use, range(USERS)) for pair in found]
    assert len(answers) == USERS * EACH
    for request, answer in answers:
        answer.check_order()
        assert answer.finished.reason is not FinishReason.FAILED
        check_answer(model, request, answer)
        if len(answer.events) > 1:
            usage = answer.started.usage
            assert usage.hit + usage.computed == usage.prompt
            assert usage.joined + usage.restored <= usage.hit
            assert request.hit_limit is None or usage.hit <= request.hit_limit
    for _ in range(5000):
        if all(not pool.protected for pool in loop.stats().pools.values()):
            break
        time.sleep(0.002)
    loop.check_integrity()
    (size,) = loop.stats().pools.values()
    assert size.protected == 0
    assert size.available + size.evictable == size.total == 34
    assert sum(loop.stats().finished.values()) == len(answers)
    loop.close()

"""Many clients, few pages: they come, leave, wait and evict one another, and nothing gets lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import pytest

from tests.unit.local_backend.server.running import Running, filled, running

CLIENTS, REQUESTS, PAGES = 6, 30, 900
MARK = {"type": "ephemeral"}


@pytest.fixture(scope="module")
def crowded() -> Iterator[Running]:
    with running(pages=PAGES, max_running=4, context_length=PAGES) as found:
        yield found


def body(draw: random.Random) -> dict[str, Any]:
    """One of a few hundred requests that begin alike."""
    family, size = draw.choice("abcd"), draw.choice([40, 150, 300])
    system = [{"type": "text", "text": family * size, "cache_control": MARK}]
    user = [{"type": "text", "text": f"{draw.randrange(3)}" * draw.choice([1, 60])}]
    if draw.random() < 0.5:
        user[0]["cache_control"] = MARK
    messages = [{"role": "user", "content": user}]
    return filled({"system": system, "messages": messages, "max_tokens": draw.choice([1, 8, 40])})


def client(server: Running, seed: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Send requests one after the other; some answers are left in the middle."""
    draw, kept = random.Random(seed), []
    with anthropic.Anthropic(base_url=server.url, api_key="one", max_retries=0) as sdk:
        for _ in range(REQUESTS):
            asked = body(draw)
            if draw.random() < 0.3:
                with sdk.messages.create(**asked, stream=True) as stream:
                    for event, _ in zip(stream, range(draw.randrange(1, 6)), strict=False):
                        assert event.type != "error"
                continue
            found = sdk.messages.create(**asked)
            kept.append(
                (repr(asked), found.content[0].text if found.content else "", found.to_dict())
            )
    return kept


def test_a_crowd_in_a_small_cache(crowded: Running) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        rows = [
            row for rows in pool.map(lambda n: client(crowded, n), range(CLIENTS)) for row in rows
        ]
    assert len(rows) > CLIENTS * REQUESTS // 2
    said: dict[str, str] = {}
    for asked, text, answer in rows:
        usage, engine = answer["usage"], answer["cacheaudit"]["engine"]
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        assert read == engine["hit_tokens"]
        assert written + usage["input_tokens"] == engine["computed_tokens"]
        assert said.setdefault(asked, text) == text  # from the cache, evicted or beside others
    assert sum(row[2]["usage"]["cache_read_input_tokens"] for row in rows) > 0
    crowded.pages_are_free()
    assert crowded.metric("engine_evicted_pages_total") > PAGES
    assert crowded.metric("open_requests") == 0

"""How long a request of 800 KB takes to expand, and that nothing unchanged is digested again.

Run by name (``pytest tests/bench/test_expand.py -s``); it prints figures and asserts no times.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from cacheaudit.providers import blocks
from cacheaudit.providers.registry import expand

WORDS = ("alpha", "beta", "gamma\n", "delta", "épsilon", '"quoted"')
ROUNDS = 15


def request(messages: int = 430) -> dict[str, Any]:
    """Build a request of about 800 KB and 900 content blocks, always the same."""
    chance = random.Random(7)

    def words(size: int) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(size // 7))

    turns: list[dict[str, Any]] = []
    for index in range(messages):
        said = {"type": "text", "text": words(250)}
        if index % 2:
            use = {"type": "tool_use", "id": f"t{index}", "name": "Read"}
            use |= {"input": {"file_path": f"/src/{index}.py", "limit": index}}
            turns.append({"role": "assistant", "content": [said, use]})
        else:
            result = {"type": "tool_result", "tool_use_id": f"t{index - 1}"}
            result |= {"content": words(2_500)}
            turns.append({"role": "user", "content": [result, said]})
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [
        {"name": f"tool_{n}", "description": words(900), "input_schema": schema} for n in range(38)
    ]
    system = [{"type": "text", "text": words(500)}, {"type": "text", "text": words(20_000)}]
    return {"model": "claude-opus-5", "tools": tools, "system": system, "messages": turns}


def best(job: Callable[[], object]) -> float:
    """Return the shortest CPU time of several rounds in milliseconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times) * 1_000


def test_expand_800_kb(capsys: pytest.CaptureFixture[str]) -> None:
    body = request()
    prompt = expand(body)
    size = len(json.dumps(body))
    assert 750_000 < size < 1_000_000
    assert len(prompt.blocks) == 38 + 2 + 2 * 430
    dumps = best(lambda: json.dumps(body))
    fresh = best(lambda: expand(body))
    again = best(lambda: expand(body, previous=prompt))
    with capsys.disabled():
        print(
            f"\n{size / 1_000:.0f} KB, {len(prompt.blocks)} blocks: json.dumps {dumps:.2f} ms, "
            f"expand {fresh:.2f} ms ({fresh / dumps:.2f}x), "
            f"with previous {again:.2f} ms ({again / dumps:.2f}x)"
        )


def test_an_unchanged_prefix_is_not_digested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[int] = []
    plain = blocks.digest

    def counting(data: bytes) -> bytes:
        digested.append(len(data))
        return plain(data)

    body = request()
    monkeypatch.setattr(blocks, "digest", counting)
    prompt = expand(body)
    assert len(digested) == len(prompt.blocks)
    digested.clear()
    more = {"role": "user", "content": [{"type": "text", "text": "next"}]}
    grown = json.loads(json.dumps({**body, "messages": [*body["messages"], more]}))
    longer = expand(grown, previous=prompt)
    assert len(digested) == 1
    assert len(longer.blocks) == len(prompt.blocks) + 1
    for before, after in zip(prompt.blocks, longer.blocks, strict=False):
        assert after.digest is before.digest
        assert after.canonical is before.canonical
    for old, new in zip(prompt.prefix_digests, longer.prefix_digests, strict=False):
        assert new is old

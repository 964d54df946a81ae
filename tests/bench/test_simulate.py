"""How long 10,000 calls of 500 content blocks take, and that a call's work does not grow with them.

Run by name (``pytest tests/bench/test_simulate.py -s``); it prints figures and asserts no times,
only how much slower a plain walk over every prompt is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
import pytest

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Marker, Parameter, Prompt, chain, digest
from cacheaudit.simulate.build import Builder, Built
from cacheaudit.simulate.run import run
from cacheaudit.simulate.switches import Switches

ORDER = ("tools", "system", "messages")
SETTINGS = (Parameter("model", "tools", b'"claude-opus-5"'),)
GROWTH = 2


def block(number: int, *, marker: Marker | None = None) -> ContentBlock:
    canonical = b'{"text":"%d","type":"text"}' % number
    return ContentBlock(
        level="messages",
        path="messages[0].content[0]",
        kind="text",
        role="user",
        message=number,
        canonical=canonical,
        digest=digest(canonical),
        tokens=50,
        tokens_origin="recorded",
        marker=marker,
    )


def session(calls: int, blocks: int) -> list[Call]:
    """Build a lane whose prompts grow by two content blocks from ``blocks`` on, then start anew."""
    start = [block(n) for n in range(blocks)]
    made: list[Call] = []
    body, previous, serial = list(start), None, blocks
    for number in range(calls):
        if len(body) >= blocks * 1.5:
            body = list(start)
        body += [block(serial + n) for n in range(GROWTH)]
        serial += GROWTH
        marked = (*body[:-1], msgspec.structs.replace(body[-1], marker=Marker()))
        previous = Prompt(
            provider="anthropic",
            model="claude-opus-5",
            level_order=ORDER,
            parameters=SETTINGS,
            blocks=marked,
            prefix_digests=chain(ORDER, SETTINGS, marked, previous),
        )
        at = number * 20.0
        made.append(
            Call(
                id=str(number),
                session="s",
                provider="anthropic",
                surface="claude_api",
                model="claude-opus-5",
                started_at=at,
                first_token_at=at + 1,
                ended_at=at + 9,
                prompt=previous,
            )
        )
    return made


def walk(calls: Sequence[Call]) -> int:
    """Add up every prompt and remember each prefix: the least that a walk over all of it does."""
    seen: dict[bytes, int] = {}
    for call in calls:
        assert call.prompt is not None
        running = 0
        for one, identity in zip(call.prompt.blocks, call.prompt.prefix_digests, strict=True):
            running += one.tokens or 0
            seen[identity] = running
    return len(seen)


def seconds(job: Callable[[], object], rounds: int = 3) -> float:
    """Return the shortest CPU time of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        job()
        best = min(best, time.process_time() - start)
    return best


def test_ten_thousand_calls_of_five_hundred_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    calls = session(10_000, 500)
    mine, plain = seconds(lambda: run(calls), 2), seconds(lambda: walk(calls), 2)
    with capsys.disabled():
        print(f"\n10,000 x 500: {mine:.2f} s; a plain walk over every prompt: {plain:.2f} s")
    assert all(row.predicted is not None for row in run(calls).calls)


def test_a_calls_work_does_not_grow_with_its_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred times the prompt: the plain walk takes far more of it than the simulator does."""
    small, large = session(1_000, 50), session(1_000, 5_000)
    mine = seconds(lambda: run(large)) / seconds(lambda: run(small))
    plain = seconds(lambda: walk(large)) / seconds(lambda: walk(small))
    with capsys.disabled():
        print(f"\n50 to 5,000 content blocks: simulator x {mine:.1f}, plain walk x {plain:.0f}")
    assert mine < plain / 5


def test_a_call_looks_up_no_more_than_its_new_blocks_and_its_markers() -> None:
    """Counted, not timed: reads of the shared table for a call that adds two content blocks."""

    class Counting(dict[bytes, int]):
        used = 0

        def __getitem__(self, key: bytes) -> int:
            Counting.used += 1
            return super().__getitem__(key)

        def __contains__(self, key: object) -> bool:
            Counting.used += 1
            return super().__contains__(key)

    used = []
    for blocks in (50, 5_000):
        calls = session(3, blocks)
        builder = Builder(Switches())
        builder._sizes["anthropic/claude-opus-5"] = Counting()
        for call in calls[:2]:
            builder.build(call)
        Counting.used = 0
        assert isinstance(builder.build(calls[2]), Built)
        used.append(Counting.used)
    assert used[1] <= used[0] + 10  # bisection: some steps more, not thousands

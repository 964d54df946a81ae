"""What is measured of every engine, in the same way; standard library only, any interpreter.

Each time is a pair: wall seconds and processor seconds of all threads of the process, each the
least of some repetitions. Prompts are random ids, so that nothing is found where it should not.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

VOCABULARY = 49_152
PROMPTS = (512, 2048, 8000)
CONTEXT = 2048
BATCHES = (1, 8)
STEPS = 24
STEM, NEW = 4096, 100
GREEDY = 16

Times = tuple[float, float]


class Engine(Protocol):
    """An engine as the protocol sees it."""

    name: str

    def prompt(self, tokens: Sequence[int]) -> None:
        """Compute the prompt, or what the cache does not hold of it, and the first token."""

    def decode(self, prompts: Sequence[Sequence[int]], steps: int) -> Times:
        """The time of so many further tokens for each prompt, side by side."""

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        """The likeliest continuation."""


def draw(count: int, seed: int) -> list[int]:
    """Random ids."""
    source = random.Random(seed)
    return [source.randrange(10, VOCABULARY) for _ in range(count)]


def timed(job: Callable[[], object]) -> Times:
    """Wall and processor time of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return time.perf_counter() - wall, time.process_time() - cpu


def least(times: Sequence[Times]) -> Times:
    """Of each kind the least."""
    return min(wall for wall, _ in times), min(cpu for _, cpu in times)


def measure(engine: Engine, prompts: Sequence[int], repeats: int) -> dict[str, Any]:
    """All figures of one engine."""
    found: dict[str, Any] = {"engine": engine.name, "prefill": {}, "decode": {}}
    found["greedy"] = engine.greedy(draw(64, 1), GREEDY)
    seed = 100
    for length in prompts:
        times = []
        for _ in range(repeats if length < 4000 else max(1, repeats - 1)):
            seed += 1
            tokens = draw(length, seed)
            times.append(timed(lambda tokens=tokens: engine.prompt(tokens)))
        found["prefill"][length] = least(times)
        _say(engine.name, "prefill", length, least(times))
    for batch in getattr(engine, "batches", BATCHES):
        group = [draw(CONTEXT, 1000 + number) for number in range(batch)]
        times = [engine.decode(group, STEPS) for _ in range(repeats)]
        found["decode"][batch] = least([(wall / STEPS, cpu / STEPS) for wall, cpu in times])
        _say(engine.name, "decode", batch, found["decode"][batch])
    found["cold"] = timed(lambda: engine.prompt(draw(STEM + NEW, 5000)))
    stem = draw(STEM, 6000)
    engine.prompt(stem)
    times = []
    for number in range(repeats + 2):
        tokens = stem + draw(NEW, 6001 + number)
        times.append(timed(lambda tokens=tokens: engine.prompt(tokens)))
    found["warm"] = least(times)
    _say(engine.name, "cold, warm", 0, found["cold"], found["warm"])
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


def main(build: Callable[[str, int], Engine]) -> None:
    """``SCRIPT WEIGHTS THREADS REPEATS PROMPTS REPORT``: measure and write the report."""
    weights, threads, repeats, prompts, report = sys.argv[1:6]
    lengths = [int(length) for length in prompts.split(",")]
    found = measure(build(weights, int(threads)), lengths, int(repeats))
    Path(report).write_text(json.dumps(found))

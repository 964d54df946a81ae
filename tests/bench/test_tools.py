"""What finding, calling, scripting and cutting cost; figures to read, no limits of time.

Run by name (``pytest tests/bench/test_tools.py -s``). The aim for a search among 1,000 tools is
2 ms; beside it stands the same ranking computed document by document.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from cacheaudit import OutputFilter, OutputStore, ToolDirectory
from tests.unit.agent.tools.sample import plain_tool
from tests.unit.agent.tools.test_search import naive

WORDS = [
    *("read", "write", "list", "create", "delete", "update", "fetch", "send", "search", "merge"),
    *("close", "open", "file", "log", "test", "run", "issue", "branch", "commit", "user", "mail"),
    *("calendar", "event", "invoice", "order", "stock", "page", "query", "table", "row", "key"),
    *("cache", "token", "session", "agent", "message", "thread", "channel", "team", "deploy"),
]
ROUNDS = 200


def timed(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return milliseconds of processor time for one call, the middle of many."""
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        call()
        times.append((time.thread_time() - start) * 1e3)
    return statistics.median(times)


def a_thousand() -> ToolDirectory:
    draw = random.Random(1)
    tools = []
    for number in range(1_000):
        name = "_".join(draw.sample(WORDS, 3)) + f"_{number}"
        text = " ".join(draw.choices(WORDS, k=25))
        properties = {
            word: {"type": "string", "description": " ".join(draw.choices(WORDS, k=8))}
            for word in draw.sample(WORDS, 4)
        }
        tools.append(plain_tool(name, text, **properties))
    return ToolDirectory(tools)


def test_search() -> None:
    started = time.thread_time()
    directory = a_thousand()
    built = (time.thread_time() - started) * 1e3
    query = "read the log of a test run"
    ours = timed(lambda: directory.search(query, 5))
    tools = directory.tools()
    oracle = timed(lambda: naive(tools, query), 5)
    best = max(naive(tools, query).items(), key=lambda item: (item[1], item[0]))
    assert directory.search(query, 1)[0].name == best[0]
    session = directory.open()
    whole = timed(lambda: session.finder.search({"query": query}))
    print(f"\n1,000 definitions checked and registered: {built:.0f} ms")
    print(
        f"search: {ours:.3f} ms; document by document {oracle:.0f} ms ({oracle / ours:.0f} times)"
    )
    print(f"search_tools with five schemas as JSON: {whole:.3f} ms")


def test_calls_and_scripts() -> None:
    def double(number: int) -> int:
        """Double."""
        return 2 * number

    with ToolDirectory([double], exposure="codemode") as directory:
        direct = directory.open(exposure="direct")
        session = directory.open()
        session.call("run_code", {"script": "1"})
        wall: dict[str, float] = {}
        for name, call in {
            "one call": lambda: direct.call("double", {"number": 3}),
            "one script": lambda: session.call("run_code", {"script": "1 + 1"}),
            "a script with 100 calls": lambda: session.call(
                "run_code", {"script": "for n in range(100): await double(n)"}
            ),
        }.items():
            times = []
            for _ in range(20):
                started = time.perf_counter()
                assert not call().is_error
                times.append((time.perf_counter() - started) * 1e3)
            wall[name] = statistics.median(times)
    print("\n" + ", ".join(f"{name}: {ms:.1f} ms" for name, ms in wall.items()))
    print(f"a call inside a script costs {wall['a script with 100 calls'] / 100:.2f} ms")


def test_outputs(tmp_path: Path) -> None:
    keep = OutputFilter(store=OutputStore(tmp_path))
    line = "2026-11-30 10:00:00 worker {} handled a request in 12 ms\n"
    calm = "".join(line.format(n) for n in range(360_000))
    loud = calm.replace("handled a request", "ERROR: cannot open it")
    print()
    for name, text in (("20 MB log", calm), ("20 MB of errors", loud), ("3 KB", calm[:3_000])):
        spent = timed(lambda text=text: keep.apply(text), 3)  # type: ignore[misc]
        done = keep.apply(text)
        print(f"{name}: {spent:.1f} ms, {done.tokens_before:,} → {done.tokens_after:,} tokens")

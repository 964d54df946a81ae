"""What placing markers costs a call of 800 KB, beside the bare SDK in the same run.

Run by name (``pytest tests/bench/test_planner.py -s``). The caller's processor time decides: it is
what the planner adds before the call returns. Rounds of bare and of planned calls alternate, and
the middle of their ratios is printed; the aim is 20 % at the most.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.plan import Outgoing
from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.scope import Scope
from tests.bench.test_expand import request
from tests.bench.test_wrap import Loop, mock
from tests.unit.agent.servers import KEY

CALLS = 10
ROUNDS = 7


def timed(loop: Loop) -> float:
    """Return the processor time of the calling thread for one call, the middle of several."""
    times = []
    for _ in range(CALLS):
        start = time.thread_time()
        loop.call()
        times.append(time.thread_time() - start)
    return statistics.median(times)


@pytest.mark.parametrize("mode", ["observe", "auto"])
def test_beside_the_bare_sdk(tmp_path: Path, capsys: Any, mode: Any) -> None:
    sent: list[bytes] = []
    plain = anthropic.Anthropic(api_key=KEY, http_client=keeping(sent))
    with CacheAudit(tmp_path / "usage.db", mode) as audit, audit.session("bench") as s:
        bare, wrapped = Loop(plain), Loop(audit.wrap(plain))
        bare.call()
        wrapped.call()  # the first call of a session loads modules and opens the store
        assert audit.flush(120)
        ratios, before, after = [], [], []
        for _ in range(ROUNDS):
            gc.collect()
            before.append(timed(bare))
            after.append(timed(wrapped))
            ratios.append(after[-1] / before[-1] - 1)
            assert audit.flush(120)
        assert audit.state.faults == {}
        report = s.report()
    marked = json.dumps(json.loads(sent[-1])).count('"cache_control"')
    assert marked == (4 if mode == "auto" else 0)
    with capsys.disabled():
        print(
            f"\n{mode}: bare {min(before) * 1e3:.2f} ms, wrapped {min(after) * 1e3:.2f} ms,"
            f" middle of the ratios {statistics.median(ratios):+.1%}"
        )
        print(report.splitlines()[-4:])


def keeping(sent: list[bytes]) -> Any:
    """Return an HTTP client that answers at once and keeps the last body."""
    from tests.unit.agent.servers import HTTP

    inner = mock()

    def handle(asked: Any) -> Any:
        sent[:] = [asked.content]
        return inner.handle_request(asked)

    return HTTP.Client(transport=HTTP.MockTransport(handle))


def test_the_planner_alone(capsys: Any) -> None:
    planner = BreakpointPlanner()
    body = request()
    messages = body["messages"]
    figures: list[tuple[str, float]] = []

    def plan(count: int) -> None:
        out = Outgoing(
            {**body, "messages": messages[:count]},
            "https://api.anthropic.com/v1/messages",
            Scope("s"),
            f"c{count}",
            1_795_000_000.0 + count,
        )
        assert planner.plan(out) is not None

    figures.append(("first call", clock(lambda: plan(401))))
    later = [clock(lambda n=n: plan(n)) for n in range(403, 430, 2)]
    figures.append(("later calls, median", statistics.median(later)))
    with capsys.disabled():
        print()
        for name, seconds in figures:
            print(f"  {name:24} {seconds * 1e3:7.2f} ms")


def clock(job: Callable[[], object]) -> float:
    start = time.thread_time()
    job()
    return time.thread_time() - start

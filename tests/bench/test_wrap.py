"""What recording costs a call of 800 KB, beside the bare SDK in the same run.

Run by name (``pytest tests/bench/test_wrap.py -s``); it prints figures and asserts no times. Rounds
of bare and of recorded calls alternate, so that a busy machine slows both. Three figures are told
apart:

* wall time of a call as the caller sees it: the median, and the quickest tenth, which others
  disturb least; with a pause between calls, such as an agent's tools and the model itself make, and
  back to back, as no agent calls;
* processor time of the thread that calls: what the hook does before the call returns;
* processor time of the whole process for a call, the writer's work included, everything written.
"""

from __future__ import annotations

import gc
import importlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import pytest

from cacheaudit import CacheAudit
from tests.bench.test_expand import request
from tests.unit.agent.servers import HTTP, KEY, Reply, Script, loopback, message

CALLS = 12
ROUNDS = 8
PAUSE = 0.06


class Loop:
    """An agent's loop: each request is the one before it and one more exchange."""

    def __init__(self, client: anthropic.Anthropic) -> None:
        self._client = client
        self._body = {**request(), "max_tokens": 64}
        self._said = list(self._body["messages"])

    def call(self) -> None:
        self._client.messages.create(**{**self._body, "messages": self._said})
        self._said = [
            *self._said,
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": f"next, please: {len(self._said)}"},
        ]


class Figures:
    """Wall time of every call, and processor time of the caller and of the process."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.own: list[float] = []
        self.process: list[float] = []

    def round(self, loop: Loop, pause: float, settle: Callable[[], object]) -> None:
        process = time.process_time()
        for _ in range(CALLS):
            wall, own = time.perf_counter(), time.thread_time()
            loop.call()
            self.wall.append(time.perf_counter() - wall)
            self.own.append(time.thread_time() - own)
            if pause:
                time.sleep(pause)
        settle()
        self.process.append((time.process_time() - process) / CALLS)


def median(times: list[float]) -> float:
    return statistics.median(times) * 1_000


def quick(times: list[float]) -> float:
    return statistics.quantiles(times, n=10)[0] * 1_000


def compare(bare: Loop, recorded: Loop, pause: float, flush: Callable[[], object]) -> list[str]:
    one, two = Figures(), Figures()
    bare.call()
    recorded.call()  # the first call of a session loads modules and opens the store
    flush()
    gc.collect()
    for _ in range(ROUNDS):
        one.round(bare, pause, lambda: None)
        two.round(recorded, pause, flush)
    lines = []
    for what, figure, a, b in (
        ("wall time, median", median, one.wall, two.wall),
        ("wall time, quickest tenth", quick, one.wall, two.wall),
        ("caller's processor time", median, one.own, two.own),
        ("whole process, all written", median, one.process, two.process),
    ):
        before, after = figure(a), figure(b)
        lines.append(f"  {what:28} {before:7.2f} → {after:7.2f} ms ({(after / before - 1):+.1%})")
    return lines


def mock() -> Any:
    answer = HTTP.Response(200, json=message()).content
    head = {"content-type": "application/json"}
    return HTTP.MockTransport(lambda _: HTTP.Response(200, content=answer, headers=head))


@pytest.mark.parametrize("pause", [PAUSE, 0.0], ids=["with pauses", "back to back"])
def test_without_a_network(tmp_path: Path, capsys: Any, pause: float) -> None:
    with CacheAudit(tmp_path / "usage.db", "observe") as audit:
        plain = anthropic.Anthropic(api_key=KEY, http_client=HTTP.Client(transport=mock()))
        with audit.session("bench") as s:
            lines = compare(Loop(plain), Loop(audit.wrap(plain)), pause, lambda: audit.flush(120))
        assert len(s.calls()) == CALLS * ROUNDS + 1
        assert audit.state.faults == {}
        assert audit.state.dropped_bodies == 0
    show(capsys, f"observe, no network, pause {pause * 1_000:.0f} ms", lines)


def test_over_a_loopback_server(tmp_path: Path, capsys: Any) -> None:
    script = Script()
    script.answer = lambda *_: Reply(message())  # type: ignore[method-assign]
    with loopback(script) as address, CacheAudit(tmp_path / "usage.db", "observe") as audit:
        plain = anthropic.Anthropic(api_key=KEY, base_url=address)
        with plain, audit.session("bench"):
            lines = compare(Loop(plain), Loop(audit.wrap(plain)), PAUSE, lambda: audit.flush(120))
        assert audit.state.faults == {}
    show(capsys, f"observe, loopback server, pause {PAUSE * 1_000:.0f} ms", lines)


def test_what_the_sdk_itself_asks_for_a_middleware(capsys: Any) -> None:
    """A middleware that does nothing: the part of the cost that is not ours."""
    plain = anthropic.Anthropic(api_key=KEY, http_client=HTTP.Client(transport=mock()))
    through = plain.with_middleware(lambda request, call_next: call_next(request))
    show(
        capsys,
        "a middleware that does nothing",
        compare(Loop(plain), Loop(through), 0.0, gc.isenabled),
    )


def show(capsys: Any, title: str, lines: list[str]) -> None:
    version = importlib.import_module("anthropic").__version__
    with capsys.disabled():
        print(f"\n{title} (anthropic {version})", *lines, sep="\n")

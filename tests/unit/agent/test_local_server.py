"""Keep-alive, fan-out and probe against the local engine, whose usage comes from real reuse."""

from __future__ import annotations

import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import anthropic
import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.fan_out.cells import cell
from cacheaudit.agent.keep_alive.realised import realised
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.agent.probe.conclude import conclude
from cacheaudit.agent.probe.http import endpoint, first_model
from cacheaudit.agent.probe.requests import Probe
from cacheaudit.agent.probe.run import probe
from cacheaudit.model.clock import FixedClock
from cacheaudit.pricing.book import PriceBook
from tests.unit.agent.servers import KEY
from tests.unit.local_backend.server.running import Running, running

TEXT = "What is kept is found again. " * 30
MODEL = "claude-opus-5"
START = 1_795_996_800.0


@pytest.fixture(scope="module")
def engine() -> Iterator[Running]:
    with running(any_model=True) as found:
        yield found


def plan(api: Any = "messages", run: str = "r") -> Probe:
    return Probe(model="tiny", document=TEXT, run=run, api=api, most_output=16)


def test_the_probe(engine: Running) -> None:
    assert first_model(engine.url, 10) == "tiny"
    rows = list(probe(plan(), endpoint(engine.url, "messages"), time.perf_counter))
    assert [row.complete for row in rows] == [True] * 4
    kept = rows[0].cache_write
    assert kept is not None
    assert kept > len(TEXT) // 8
    assert [(row.cache_write, row.cache_read) for row in rows] == [
        (kept, 0),
        (0, kept),
        (0, kept),
        (kept, 0),
    ]
    # Random weights may end the turn at once; where they do not, sixteen tokens can be read.
    spoke = [row for row in rows if row.output == 16]
    assert spoke
    assert all(row.first_text_s is not None for row in spoke)
    assert conclude(rows).verdict == "confirmed"


def test_the_probe_of_chat_completions() -> None:
    with running(rules="implicit") as engine:
        rows = list(probe(plan("chat"), endpoint(engine.url, "chat"), time.perf_counter))
    assert conclude(rows).verdict == "confirmed", rows
    assert rows[2].cache_read
    assert rows[3].cache_read is not None
    assert rows[3].cache_read < rows[2].cache_read


@pytest.mark.parametrize(("mark", "wait"), [(False, True), (True, False), (True, True)])
def test_cells_of_the_fan_out(engine: Running, mark: bool, wait: bool) -> None:
    server = endpoint(engine.url, "messages")
    found = cell(plan(), server, time.perf_counter, mark=mark, wait=wait)
    assert all(row.complete for row in found.rows)
    first, *others = found.rows
    assert first.cache_read == 0
    assert first.cache_write is not None
    for row in others:
        if mark and wait:
            assert row.cache_read is not None
            assert row.cache_read > 0.8 * first.cache_write
            assert row.cache_write is not None
            assert row.cache_write < 0.2 * first.cache_write
        elif wait:
            assert (row.cache_read, row.cache_write) == (0, first.cache_write)


def ask() -> dict[str, Any]:
    mark = {"type": "ephemeral"}
    return {
        "model": MODEL,
        "max_tokens": 2,
        "system": [{"type": "text", "text": TEXT, "cache_control": mark}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
    }


@pytest.mark.parametrize("mode", ["idle", "off"])
def test_keep_alive_bridges_a_pause(tmp_path: Path, mode: Any) -> None:
    """A pause of 470 s: with one refresh at 270 s the entry is still there, without it is not."""
    clock = FixedClock(START)
    settings = KeepAlive(mode=mode, min_savings=Decimal(0))
    with (
        running(any_model=True) as engine,
        CacheAudit(tmp_path / "u.db", "observe", keep_alive=settings, clock=clock) as audit,
        anthropic.Anthropic(api_key=KEY, base_url=engine.url, max_retries=0) as bare,
    ):
        client = audit.wrap(bare)

        def pause(seconds: float) -> None:
            assert audit.flush()
            clock.advance(seconds)
            engine.call("/admin/clock", {"advance_s": seconds})
            service = audit._refreshes
            if service is not None:
                service.keeper.tick()
                while any(s.busy for s in service.keeper._series.values()):
                    time.sleep(0.005)

        with audit.session("s") as session:
            first = client.messages.create(**ask())
            pause(270)
            pause(200)
            second = client.messages.create(**ask())
        written = first.usage.cache_creation_input_tokens
        assert written
        assert second.usage.cache_read_input_tokens == (written if mode == "idle" else 0)
        found = realised(session.calls(), PriceBook())
        if mode == "off":
            assert found is None
            return
        assert audit.keep_alive is not None
        assert audit.keep_alive.verified == 1
        assert found is not None
        # One read for one write, at 5 dollars a million; what stands behind the marker is paid
        # twice, and so is one token of output (25 dollars), since nobody said that 0 is taken.
        fresh = first.usage.input_tokens + 5
        assert found.gain == (written * Decimal("1.05") - fresh) * Decimal("0.000005")
        assert audit.keep_alive.spent == (written * Decimal("0.1") + fresh) * Decimal("0.000005")

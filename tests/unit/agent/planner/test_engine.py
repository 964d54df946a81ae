"""The planner in front of the local engine, whose usage comes from what it really reused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic

from cacheaudit import CacheAudit
from tests.unit.agent.planner.bodies import text
from tests.unit.agent.servers import KEY, MODEL
from tests.unit.local_backend.server.running import running


def test_an_unmarked_loop_reads_what_it_wrote(tmp_path: Path) -> None:
    said: list[Any] = [{"role": "user", "content": text(300, 1)}]
    with (
        running(any_model=True) as engine,
        CacheAudit(tmp_path / "usage.db") as audit,
        anthropic.Anthropic(api_key=KEY, base_url=engine.url) as plain,
        audit.session("s") as s,
    ):
        wrapped = audit.wrap(plain)
        for turn in range(4):
            reply = wrapped.messages.create(
                model=MODEL, max_tokens=2, system=text(2_600, 2), messages=said
            )
            said = [
                *said,
                {"role": "assistant", "content": reply.content or "ok"},
                {"role": "user", "content": text(200, turn)},
            ]
        assert audit.state.faults == {}
        usages = [call.usage for call in s.calls() if call.usage is not None]
        report = s.report()
    assert len(usages) == 4
    assert usages[0].cache_read == 0
    for before, after in pairwise(usages):
        assert before.prompt_size is not None
        assert before.uncached_input is not None
        # What stands behind the last content block, such as the answer's beginning, is not kept.
        assert after.cache_read == before.prompt_size - before.uncached_input
        assert after.cache_write
    assert "Planner: markers on 4 of 4 calls" in report

"""Recorded requests of real agents: extended exactly, compacted validly, words kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.agent.compaction.history import faults
from cacheaudit.agent.compaction.kept import carried
from cacheaudit.agent.compaction.request import obstacle, prefix_request
from cacheaudit.agent.compaction.rewrite import kept_beside, parts, rewritten
from cacheaudit.agent.compaction.settings import Structure
from cacheaudit.providers.registry import expand
from tests.unit.agent.compaction.histories import said

HANDLE = "out_" + "0" * 32
pytestmark = pytest.mark.shared


def bodies(shared: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((shared / "data" / "captures").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            body = json.loads(line).get("body")
            if isinstance(body, dict) and obstacle(body) is None:
                yield body


def test_summary_requests_extend_recorded_ones(shared: Path) -> None:
    seen = 0
    for body in bodies(shared):
        before = expand(body, provider="anthropic")
        asked = prefix_request(body, Structure(), 900, last=body)
        after = expand(asked, provider="anthropic")
        count = len(before.blocks)
        assert after.prefix_digests[:count] == before.prefix_digests
        assert len(after.blocks) == count + 1
        assert set(after.marked) <= {*before.marked, count - 1}
        seen += 1
    assert seen > 5


@pytest.mark.parametrize("keep", [0, 500, 20_000])
def test_recorded_conversations_stay_valid(shared: Path, keep: int) -> None:
    cut = 0
    for body in bodies(shared):
        messages = body["messages"]
        found = parts(messages, keep)
        if found.is_done or faults(messages):
            continue
        made = rewritten(found, "S", kept_beside(found, (), (), 10**6, HANDLE), HANDLE)
        assert faults(made) == []
        again = carried(made)
        assert [*again.kept.words, *said(again.rest)] == said(messages)
        assert parts(made, keep).is_done
        cut += 1
    assert cut > 0 or keep == 20_000

"""Public reports of fan-outs and routing: requests wait for what they want to read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.planner.planner import BreakpointPlanner
from tests.unit.agent.fan_out.cache_server import CacheScript
from tests.unit.agent.fan_out.test_send import asend, requests, send
from tests.unit.agent.planner.bodies import text
from tests.unit.agent.planner.play import START, outgoing

SHARED, OWN = 4_000, 10


@pytest.mark.parametrize("way", [send, asend])
def test_f01_equal_requests_at_once_do_not_both_write(audit: CacheAudit, way: Any) -> None:
    script = CacheScript()
    same = [requests(1)[0], requests(1)[0]]
    way(audit, script, requests=same)
    assert script.counts == [(SHARED + OWN, 0, 0), (0, SHARED + OWN, 0)]


@pytest.mark.parametrize("way", [send, asend])
def test_f04_agents_that_start_together_write_their_common_prefix_once(
    audit: CacheAudit, way: Any
) -> None:
    """Twenty-three of them: one writes the shared part, all others read it."""
    script = CacheScript()
    way(audit, script, requests=requests(23))
    written = sum(write for write, _, _ in script.counts)
    assert written == SHARED + 23 * OWN
    assert sum(read for _, read, _ in script.counts) == 22 * SHARED
    apart = CacheScript()
    way(audit, apart, requests=requests(23), order=False, mark=False, concurrency=23)
    assert sum(write for write, _, _ in apart.counts) > 10 * written


def test_f07_requests_with_one_front_have_one_routing_key() -> None:
    planner = BreakpointPlanner()
    keys = []
    for number, session in enumerate(["a", "b", "a"]):
        body = {
            "model": "gpt-5.4",
            "messages": [
                {"role": "system", "content": text(9_000, 1)},
                {"role": "user", "content": f"question {number}"},
            ],
        }
        request = outgoing(
            body, number, START + number, session=session,
            url="https://api.openai.com/v1/chat/completions",
        )  # fmt: skip
        made = planner.plan(request)
        assert made is not None
        keys.append(made["prompt_cache_key"])
        assert json.dumps(made["messages"]) == json.dumps(body["messages"])
    assert len(set(keys)) == 1

"""What a server with the same rules accepts, and what a real client's requests become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.jobs.lint import lint_body
from local_backend.errors import LocalBackendError
from local_backend.rules.base import Block, Level, MarkerError, Prompt
from local_backend.rules.markers import marks_of
from local_backend.server.content import Part
from local_backend.server.request import MessagesRequest, parse_request
from tests.unit.agent.planner.bodies import bodies, sessions
from tests.unit.agent.planner.play import MODEL, START, Played, outgoing, stripped, unmarked


def refusal(body: Any) -> str | None:
    """Say why the local server refuses a request; ``None``: it takes it."""
    try:
        marks_of(seen(parse_request(body)))
    except (LocalBackendError, MarkerError) as error:
        return str(error)
    return None


def seen(request: MessagesRequest) -> Prompt:
    levels: list[tuple[Level, tuple[Part, ...]]] = [
        (Level.TOOLS, request.tools),
        (Level.SYSTEM, request.system),
        *((Level.MESSAGES, parts) for _, parts in request.messages),
    ]
    blocks = tuple(
        Block(
            level=level,
            kind=part.kind,
            digest=part.digest,
            tokens=1,
            ttl=part.ttl,
            markable=part.markable,
            path=part.path,
        )
        for level, parts in levels
        for part in parts
    )
    return Prompt(
        id="x", blocks=blocks, tokens=tuple(range(len(blocks))), automatic=request.automatic
    )


@settings(max_examples=40)
@given(sessions(), st.sampled_from(["auto", "5m", "1h"]))
def test_the_local_server_takes_every_planned_request(items: list[Played], ttl: Any) -> None:
    planner = BreakpointPlanner(PlanPolicy(ttl=ttl))
    for number, item in enumerate(items):
        assert refusal(item.body) is None
        planned = planner.plan(outgoing(item.body, number, item.at))
        assert refusal(planned or item.body) is None


@settings(max_examples=12)
@given(sessions(), st.booleans(), st.booleans(), st.booleans())
def test_nor_does_it_refuse_one_that_was_put_in_order(
    items: list[Played], stable: bool, inputs: bool, moved: bool
) -> None:
    policy = PlanPolicy(stable_tools=stable, stable_inputs=inputs, move_volatile=moved)
    planner = BreakpointPlanner(policy)
    for number, item in enumerate(items):
        raw = json.dumps(item.body)
        planned = planner.plan(outgoing(item.body, number, item.at))
        assert json.dumps(item.body) == raw
        assert refusal(planned or item.body) is None
        tools = [tool["name"] for tool in (planned or item.body).get("tools", ())]
        assert sorted(tools) == sorted(tool["name"] for tool in item.body.get("tools", ()))


@settings(max_examples=30)
@given(bodies(), st.booleans())
def test_it_refuses_nothing_that_it_took_before(body: dict[str, Any], marked: bool) -> None:
    planner = BreakpointPlanner(PlanPolicy(complete=marked))
    planned = planner.plan(outgoing(body))
    if planned is not None and refusal(body) is None:
        assert refusal(dict(planned)) is None


@pytest.mark.shared
@pytest.mark.parametrize("mode", ["default", "complete", "bare"])
def test_recorded_requests_of_a_real_client(shared: Path, mode: str) -> None:
    """Every one of them: as the client marked it, completed, and without its markers."""
    policy = PlanPolicy(complete=mode == "complete")
    count = marked = 0
    for found in captured(shared):
        planner = BreakpointPlanner(policy)
        for number, recorded in enumerate(found):
            body = unmarked(recorded) if mode == "bare" else recorded
            raw = json.dumps(body)
            planned = planner.plan(outgoing(body, number, START + number))
            assert json.dumps(body) == raw
            count += 1
            if planned is None:
                continue
            marked += 1
            assert mode != "default" or "cache_control" not in raw
            assert stripped(dict(planned)) == stripped(body)
            assert refused(dict(planned)) <= refused(body)
    assert count == 21 + 3 + 4
    assert marked or mode != "bare"


def captured(shared: Path) -> list[list[dict[str, Any]]]:
    """Return the recorded requests by file; of two files there are the fronts alone."""
    folder = shared / "data" / "captures"
    found = [
        [json.loads(line)["body"] for line in file.read_text().splitlines()]
        for file in sorted(folder.glob("*.jsonl"))
    ]
    [pinned] = folder.glob("pinned-*.json")
    found.append([r["body"] for r in json.loads(pinned.read_text())["records"] if "body" in r])
    ask = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "go on"}]}
    for file in sorted(folder.glob("growth-*.json")):
        grown = json.loads(file.read_text())
        found.append([{**ask, **grown[name]} for name in ("watermark", "newest")])
    return found


def refused(body: dict[str, Any]) -> set[str]:
    return {p.rule for p in lint_body(body, provider="anthropic") if p.level == "refused"}

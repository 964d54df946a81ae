"""What the cases share: a loop of an agent, and what a planner makes of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.model.call import Call
from tests.unit.agent.planner.bodies import results, text, uses
from tests.unit.agent.planner.play import (
    MODEL,
    START,
    Played,
    call_of,
    input_cost,
    outgoing,
    play,
    rows,
)

MARK = {"type": "ephemeral"}


def loop(turns: int = 6, gap: float = 20.0, model: str = MODEL) -> list[Played]:
    """A loop with three tools: each request is the one before and one tool round more."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": 100,
        "tools": [tool(name) for name in ("alpha", "beta", "gamma")],
        "system": [{"type": "text", "text": text(9_000, 3)}],
        "messages": [{"role": "user", "content": "go"}],
    }
    items = [Played(copy.deepcopy(body), START)]
    for number in range(turns):
        body["messages"] += [
            {"role": "assistant", "content": [uses(number)]},
            {"role": "user", "content": [results(number, 3_000)]},
        ]
        items.append(Played(copy.deepcopy(body), START + gap * (number + 1)))
    return items


def tool(name: str, **more: Any) -> dict[str, Any]:
    properties = {"path": {"type": "string"}, "line": {"type": "integer"}}
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": text(700, len(name)), "input_schema": schema, **more}


def changed(items: Sequence[Played], change: Callable[[dict[str, Any], int], Any]) -> list[Played]:
    """Change every body of a session; ``change`` is given the body and its number."""
    made = copy.deepcopy(list(items))
    for number, item in enumerate(made):
        change(item.body, number)
    return made


def planned(items: Sequence[Played], **policy: Any) -> tuple[list[Call], str]:
    """Play a session with a planner; returns its calls and the planner's report."""
    planner = BreakpointPlanner(PlanPolicy(**policy))
    calls = play(planner, items)
    return calls, "\n".join(planner.report("s"))


def reads(calls: Sequence[Call]) -> list[int]:
    return [read for _, read in rows(calls)]


def sizes(calls: Sequence[Call]) -> list[int]:
    return [call.usage.prompt_size or 0 for call in calls if call.usage]


def reads_all_before(calls: Sequence[Call], first: int = 1) -> bool:
    """Whether each request reads all that the one before it sent."""
    return reads(calls)[first:] == sizes(calls)[first - 1 : -1]


def without(items: Sequence[Played]) -> Any:
    """What the session costs as it is given."""
    return input_cost([call_of(n, item, item.body) for n, item in enumerate(items)])


def sent(planner: BreakpointPlanner, body: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """The body that is sent for one that is given."""
    made = planner.plan(outgoing(body, number, START + 10.0 * number))
    return body if made is None else json.loads(json.dumps(made))

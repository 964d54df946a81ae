"""The seam of the planner: once for each call, never in ``observe``, harmless when broken."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.plan import Logical, LogicalCalls, Outgoing
from cacheaudit.errors import ConfigError
from cacheaudit.model.call import Call
from tests.unit.agent.servers import MODEL, Reply, Script, async_client, client

ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 16,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
}
BUSY = Reply(
    {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
    529,
    headers={"retry-after-ms": "1"},
)


class Marking:
    """Numbers its plans, so that a second one for the same call would show."""

    def __init__(self) -> None:
        self.seen: list[Outgoing] = []
        self.learned: list[Call] = []

    def plan(self, request: Outgoing) -> Mapping[str, Any] | None:
        self.seen.append(request)
        return {**request.body, "metadata": {"user_id": f"plan {len(self.seen)}"}}

    def learn(self, call: Call) -> None:
        self.learned.append(call)


def test_a_call_is_planned_once_and_its_retries_send_the_same(
    make: Callable[..., CacheAudit],
) -> None:
    planner = Marking()
    audit = make(mode="auto", planner=planner)
    script = Script(BUSY, BUSY)
    wrapped = audit.wrap(client(script, max_retries=3))
    own = copy.deepcopy(ASK)
    with audit.session("s", task="t"):
        wrapped.messages.create(**ASK)
        wrapped.messages.create(**ASK)
    assert [json.loads(b)["metadata"]["user_id"] for b in script.sent] == ["plan 1"] * 3 + [
        "plan 2"
    ]
    assert own == ASK
    assert len(planner.seen) == 2
    assert (planner.seen[0].scope.session, planner.seen[0].scope.task) == ("s", "t")
    assert audit.flush()
    assert [call.attempt for call in planner.learned] == [0, 1, 2, 0]


def test_the_same_asynchronously(make: Callable[..., CacheAudit]) -> None:
    planner = Marking()
    audit = make(mode="auto", planner=planner)
    script = Script(BUSY)

    async def run() -> None:
        await audit.wrap(async_client(script, max_retries=3)).messages.create(**ASK)

    asyncio.run(run())
    assert [json.loads(b)["metadata"]["user_id"] for b in script.sent] == ["plan 1"] * 2


def test_observing_asks_no_planner(make: Callable[..., CacheAudit]) -> None:
    planner = Marking()
    script = Script()
    make(mode="observe", planner=planner).wrap(client(script)).messages.create(**ASK)
    assert planner.seen == []
    assert "metadata" not in json.loads(script.sent[0])


@pytest.mark.parametrize("fault", [ValueError, RecursionError, MemoryError])
def test_a_broken_planner_changes_nothing(
    make: Callable[..., CacheAudit], fault: type[Exception]
) -> None:
    class Broken(Marking):
        def plan(self, request: Outgoing) -> Mapping[str, Any] | None:
            raise fault

    audit = make(mode="auto", planner=Broken())
    bare, script = Script(), Script()
    client(bare).messages.create(**ASK)
    with audit.session("s") as s:
        audit.wrap(client(script)).messages.create(**ASK)
    assert script.sent == bare.sent
    assert audit.state.faults == {f"plan:{fault.__name__}": 1}
    assert len(s.calls()) == 1


def test_a_plan_that_cannot_be_sent_changes_nothing(make: Callable[..., CacheAudit]) -> None:
    """A planner that returns something else than a body is a broken planner."""

    class Odd(Marking):
        def plan(self, request: Outgoing) -> Any:
            return "not a body"

    audit = make(mode="auto", planner=Odd())
    bare, script = Script(), Script()
    client(bare).messages.create(**ASK)
    audit.wrap(client(script)).messages.create(**ASK)
    assert script.sent == bare.sent
    assert audit.state.faults == {"plan:TypeError": 1}


def test_a_mode_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="no mode"):
        CacheAudit("x.db", "sometimes")  # type: ignore[arg-type]


def test_logical_calls_are_bounded() -> None:
    calls = LogicalCalls(kept=3)
    for number in range(5):
        calls.first(str(number), Logical(f"id{number}"))
    assert [calls.again(str(n)) and calls.again(str(n)).id for n in range(5)] == [  # type: ignore[union-attr]
        None,
        None,
        "id2",
        "id3",
        "id4",
    ]
    calls.forget("3")
    calls.forget("3")
    assert calls.again("3") is None
    calls.first(None, Logical("x"))
    assert calls.again(None) is None

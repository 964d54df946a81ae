"""Sessions, lanes and purposes: by context, and where nothing is said, by content."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cacheaudit import CacheAudit
from cacheaudit.errors import UsageError
from cacheaudit.model.clock import FixedClock
from tests.unit.agent.servers import MODEL, Reply, Script, async_client, client, message


def ask(text: str, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": text}]
    return {"model": MODEL, "max_tokens": 1, "messages": said, **more}


def rows(audit: CacheAudit) -> list[tuple[str, str, str, str | None]]:
    found = [call for session in audit.sessions() for call in session.calls]
    return [(c.session, c.lane, c.purpose, c.task) for c in found]


def test_a_session_and_a_lane_inside_it(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    with audit.session("issue-42", task="fix"):
        wrapped.messages.create(**ask("main line"))
        with audit.session("explorer"):
            wrapped.messages.create(**ask("look around"))
            with audit.session("reader", task="read"):
                wrapped.messages.create(**ask("read this"))
        wrapped.messages.create(**ask("main line"))
    assert rows(audit) == [
        ("issue-42", "main", "main", "fix"),
        ("issue-42", "explorer", "subagent", "fix"),
        ("issue-42", "explorer/reader", "subagent", "read"),
        ("issue-42", "main", "main", "fix"),
    ]


def test_a_fresh_session_inside_another_one(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    with audit.session("one"), audit.session("two", fresh=True):
        wrapped.messages.create(**ask("x"))
    assert rows(audit) == [("two", "main", "main", None)]


def test_sessions_without_a_name_differ(audit: CacheAudit) -> None:
    with audit.session() as one:
        pass
    with audit.session() as two:
        pass
    assert one.id != two.id


@pytest.mark.parametrize("purpose", ["compaction", "keep_alive", "warm_up", "probe", "other"])
def test_a_purpose_keeps_the_lane(audit: CacheAudit, purpose: str) -> None:
    wrapped = audit.wrap(client(Script()))
    with audit.session("s"), audit.session("worker"), audit.purpose(purpose):
        wrapped.messages.create(**ask("x"))
    assert rows(audit) == [("s", "worker", purpose, None)]


def test_a_purpose_that_does_not_exist(audit: CacheAudit) -> None:
    with pytest.raises(UsageError, match="no purpose"):
        audit.purpose("fun")
    with pytest.raises(UsageError, match="no purpose"):
        audit.session("s", purpose="fun")


def test_purposes_told_by_the_request(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    with audit.session("s"):
        wrapped.messages.create(**{**ask("x"), "max_tokens": 0})
        wrapped.messages.create(**ask("x", extra_body={"compaction": {"type": "summarize"}}))
    assert [row[2] for row in rows(audit)] == ["warm_up", "compaction"]


def test_side_calls_of_a_session_get_a_lane_of_their_own(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    system = "you are an agent that works in a repository, carefully and step by step"
    said: list[Any] = [{"role": "user", "content": "fix the bug"}]
    with audit.session("s"):
        for turn in range(3):
            wrapped.messages.create(model=MODEL, max_tokens=1, system=system, messages=said)
            said += [
                {"role": "assistant", "content": "hello there"},
                {"role": "user", "content": f"go on {turn}"},
            ]
            wrapped.messages.create(**ask("a title for: fix the bug", system="write titles"))
    assert [row[1] for row in rows(audit)] == ["main", "side-1"] * 3


def test_outside_any_session_calls_share_the_run(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    wrapped.messages.create(**ask("x"))
    wrapped.messages.create(**ask("x"))
    names = {row[0] for row in rows(audit)}
    assert len(names) == 1
    assert names.pop().startswith("run-")


def test_the_session_that_the_request_names(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    wrapped.messages.create(**ask("x", metadata={"user_id": "user_1_account__session_abc-1"}))
    wrapped.messages.create(**ask("x", extra_headers={"x-session-id": "from-header"}))
    with audit.session("mine"):
        wrapped.messages.create(**ask("x", extra_headers={"x-session-id": "from-header"}))
    assert [row[0] for row in rows(audit)] == ["abc-1", "from-header", "mine"]


def test_tasks_of_a_loop_keep_their_own_sessions(audit: CacheAudit) -> None:
    wrapped = audit.wrap(async_client(Script()))

    async def one(name: str) -> None:
        async with audit.session(name):
            for _ in range(3):
                await asyncio.sleep(0)
                await wrapped.messages.create(**ask(name))

    async def run() -> None:
        await asyncio.gather(*(one(f"t{n}") for n in range(5)))

    asyncio.run(run())
    assert sorted(row[0] for row in rows(audit)) == sorted([f"t{n}" for n in range(5)] * 3)


def test_a_thread_sees_the_session_when_the_context_is_handed_on(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))

    def work() -> None:
        wrapped.messages.create(**ask("x"))

    with audit.session("s"):
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        thread.join()
    assert [row[0] for row in rows(audit)] == ["s"]


def test_two_audits_do_not_see_each_others_sessions(make: Callable[..., CacheAudit]) -> None:
    one, two = make(db="sqlite://"), make(db="sqlite://")
    wrapped = two.wrap(one.wrap(client(Script())))
    with one.session("of-one"):
        wrapped.messages.create(**ask("x"))
    assert [row[0] for row in rows(one)] == ["of-one"]
    assert [row[0][:4] for row in rows(two)] == ["run-"]


def test_leaving_in_another_context_harms_nobody(audit: CacheAudit) -> None:
    scope = audit.session("s")
    contextvars.copy_context().run(scope.__enter__)
    scope.__exit__(None, None, None)
    scope.__exit__(None, None, None)


def test_time_in_tools_is_the_gap_behind_a_request_for_them(
    make: Callable[..., CacheAudit],
) -> None:
    class Steps:
        at = 1_800_000_000.0

        def now(self) -> float:
            return self.at

    clock = Steps()
    audit = make(clock=clock)
    script = Script(Reply(message(1, stop_reason="tool_use")))
    wrapped = audit.wrap(client(script))
    with audit.session("s") as s:
        wrapped.messages.create(**ask("x"))
        clock.at += 42
        wrapped.messages.create(**ask("x"))
        clock.at += 10
        wrapped.messages.create(**ask("x"))
    assert [call.tool_seconds for call in s.calls()] == [None, 42, None]


def test_ids_that_a_server_gives_out_twice_are_told_apart(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script(*[Reply(message(1))] * 3)))
    with audit.session("s") as s:
        for _ in range(3):
            wrapped.messages.create(**ask("x"))
    ids = [call.id for call in s.calls()]
    assert len(set(ids)) == 3
    assert ids[0] == "msg_0001"
    assert all(name.startswith("msg_0001#") for name in ids[1:])


def test_provider_diagnostics_are_kept(audit: CacheAudit) -> None:
    reason = {"type": "tools_changed", "cache_missed_input_tokens": 12_345}
    replies = [
        Reply(message(1, diagnostics={"cache_miss_reason": reason})),
        Reply(message(2, diagnostics=None)),
        Reply(message(3, diagnostics=None)),
    ]
    wrapped = audit.wrap(client(Script(*replies)))
    asked = {"diagnostics": {"previous_message_id": "msg_0001"}}
    with audit.session("s") as s:
        wrapped.messages.create(**ask("x", extra_body=asked))
        wrapped.messages.create(**ask("x", extra_body=asked))
        wrapped.messages.create(**ask("x"))
    found = [c.diagnostics and (c.diagnostics.type, c.diagnostics.missed_tokens) for c in s.calls()]
    assert found == [("tools_changed", 12_345), ("none", None), None]


def test_the_report_of_a_session(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    with audit.session("issue-42") as s:
        wrapped.messages.create(**ask("x"))
        with audit.session("helper"):
            wrapped.messages.create(**ask("y"))
    text = s.report()
    assert text.splitlines()[:3] == [
        "Session issue-42: 2 calls (1 subagent)",
        "Input 4,680 tokens: 85.5 % read from cache, 12.8 % written, 1.7 % uncached",
        "Output 24 tokens",
    ]
    # 2 x (40 x 5 + 300 x 6.25 + 2,000 x 0.5 + 12 x 25) dollars for a million tokens
    assert text.splitlines()[3] == "Cost $0.0068"


def test_the_report_of_an_empty_session(audit: CacheAudit) -> None:
    with audit.session("empty") as s:
        pass
    assert s.report() == "Session empty: no calls recorded."


def test_a_refresh_while_tools_run_takes_nothing_from_their_time(
    make: Callable[..., CacheAudit],
) -> None:
    clock = FixedClock(1_800_000_000.0)
    audit = make(clock=clock)
    wrapped = audit.wrap(client(Script(Reply(message(1, stop_reason="tool_use")))))
    with audit.session("s") as s:
        wrapped.messages.create(**ask("x"))
        clock.advance(270)
        with audit.purpose("keep_alive"):
            wrapped.messages.create(**ask("x"))
        clock.advance(130)
        wrapped.messages.create(**ask("x"))
    assert [call.tool_seconds for call in s.calls()] == [None, None, 400]


def test_what_follows_a_fan_out_is_none_of_its_lanes(audit: CacheAudit) -> None:
    """A subagent's request holds all of the main line and more; the next main request does too."""

    def said(*texts: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text} for text in texts]
        return {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": content}]}

    wrapped = audit.wrap(client(Script()))
    with audit.session("s"):
        wrapped.messages.create(**said("task"))
        with audit.session("reviewer"):
            wrapped.messages.create(**said("task", "result", "review it"))
        wrapped.messages.create(**said("task", "result", "reviewed"))
        with audit.session("main"), audit.purpose("keep_alive"):
            wrapped.messages.create(**said("task", "result", "reviewed"))
        wrapped.messages.create(**said("task", "result", "reviewed", "go on"))
    assert [lane for _, lane, _, _ in rows(audit)] == ["main", "reviewer", "main", "main", "main"]

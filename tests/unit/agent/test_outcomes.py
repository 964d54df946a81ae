"""``session.outcome``: said once, kept with the task's last call, read by compare."""

from __future__ import annotations

from typing import Any

import pytest

from cacheaudit import CacheAudit
from cacheaudit.errors import UsageError
from tests.unit.agent.servers import MODEL, Reply, Script, client, message, usage

ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 10,
    "messages": [{"role": "user", "content": "hi"}],
}


def outcomes(audit: CacheAudit, session: str = "s") -> list[str | None]:
    return [call.outcome for call in audit.sessions([session])[0].calls]


def test_it_stands_on_the_last_call(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    with audit.session("s", task="t") as s:
        wrapped.messages.create(**ASK)
        wrapped.messages.create(**ASK)
        assert s.outcome("accepted")
    assert outcomes(audit) == [None, "accepted"]
    # A second word replaces the first; the call stays as it was otherwise.
    before = audit.sessions(["s"])[0].calls[1]
    assert s.outcome("rejected")
    after = audit.sessions(["s"])[0].calls[1]
    assert after.outcome == "rejected"
    assert (after.usage, after.prompt, after.id) == (before.usage, before.prompt, before.id)
    assert s.outcome(None)
    assert outcomes(audit) == [None, None]


def test_tasks_of_one_session(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    for task, outcome in (("a", "accepted"), ("b", "rejected")):
        with audit.session("s", task=task) as s:
            wrapped.messages.create(**ASK)
        s.outcome(outcome)  # type: ignore[arg-type]
    with audit.session("s", task="a") as s:
        wrapped.messages.create(**ASK)
    assert outcomes(audit) == ["accepted", "rejected", None]
    audit.outcome("s", "accepted", "b")
    assert outcomes(audit) == ["accepted", "accepted", None]


def test_side_calls_are_not_the_last_of_a_task(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    with audit.session("s") as s:
        wrapped.messages.create(**ASK)
        with audit.purpose("keep_alive"):
            wrapped.messages.create(**ASK)
        s.outcome("accepted")
    assert outcomes(audit) == ["accepted", None]


def test_a_late_reading_does_not_undo_it(audit: CacheAudit) -> None:
    script = Script(Reply(message(1, usage=usage())))
    with audit.session("s") as s:
        audit.wrap(client(script)).messages.create(**ASK)
        s.outcome("accepted")
    (session,) = audit.sessions(["s"])
    assert audit.close()
    from cacheaudit.store import open_store

    with open_store(str(audit._db)) as store:
        import msgspec

        again = msgspec.structs.replace(session.calls[0], outcome=None)
        store.write([again], source="recorder")
        (found,) = store.sessions(["s"])
    assert found.calls[0].outcome == "accepted"


def test_no_call_no_outcome(audit: CacheAudit) -> None:
    with audit.session("s") as s:
        assert not s.outcome("accepted")


def test_there_are_two(audit: CacheAudit) -> None:
    with audit.session("s") as s, pytest.raises(UsageError, match="accepted or rejected"):
        s.outcome("fine")  # type: ignore[arg-type]

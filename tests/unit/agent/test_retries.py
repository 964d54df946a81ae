"""Retries are attempts of one call: each is recorded, one is billed, all hang together."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest

from cacheaudit import CacheAudit
from cacheaudit.model.call import Call
from tests.unit.agent.servers import (
    HTTP,
    KEY,
    MODEL,
    Reply,
    Script,
    async_client,
    client,
    loopback,
)

ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 16,
    "messages": [{"role": "user", "content": "hello"}],
}


def refused(status: int, kind: str) -> Reply:
    body = {"type": "error", "error": {"type": kind, "message": "try later"}}
    return Reply(body, status, headers={"retry-after-ms": "1"})


def troubled() -> Script:
    return Script(
        refused(429, "rate_limit_error"),
        refused(529, "overloaded_error"),
        HTTP.ReadTimeout("slow"),
    )


def assert_linked(calls: tuple[Call, ...]) -> None:
    assert [call.attempt for call in calls] == [0, 1, 2, 3]
    assert [call.purpose for call in calls] == ["main", "retry", "retry", "retry"]
    errors = [call.error for call in calls]
    assert [e and (e.type, e.status) for e in errors] == [
        ("rate_limit_error", 429),
        ("overloaded_error", 529),
        ("timeout", None),
        None,
    ]
    assert [call.usage is not None for call in calls] == [False, False, False, True]
    logical = calls[1].extra["logical_call"]
    assert {call.extra["logical_call"] for call in calls[1:]} == {logical}
    assert calls[0].dedupe_key == f"recorder:{logical}"
    assert len({call.dedupe_key for call in calls}) == 4
    assert len({call.prompt.prefix_digests for call in calls if call.prompt}) == 1
    assert {call.lane for call in calls} == {"main"}


@pytest.mark.parametrize("stream", [False, True])
def test_429_529_time_out_and_then_an_answer(audit: CacheAudit, stream: bool) -> None:
    script = troubled()
    with audit.session("s") as s:
        answer = audit.wrap(client(script, max_retries=4)).messages.create(**ASK, stream=stream)
        if stream:
            list(answer)
    assert len(script.sent) == 4
    assert_linked(s.calls())
    assert audit.state.faults == {}


def test_the_same_asynchronously(audit: CacheAudit) -> None:
    async def run() -> None:
        async with audit.session("s"):
            await audit.wrap(async_client(troubled(), max_retries=4)).messages.create(**ASK)

    asyncio.run(run())
    assert_linked(audit.session("s").calls())


def test_on_a_real_connection(audit: CacheAudit) -> None:
    script = Script(refused(529, "overloaded_error"))
    with (
        loopback(script) as address,
        anthropic.Anthropic(api_key=KEY, base_url=address) as own,
        audit.session("s") as s,
    ):
        audit.wrap(own).messages.create(**ASK)
    assert [(c.attempt, c.error and c.error.status) for c in s.calls()] == [(0, 529), (1, None)]


def test_the_next_call_is_a_call_of_its_own(audit: CacheAudit) -> None:
    script = Script(refused(529, "overloaded_error"))
    wrapped = audit.wrap(client(script))
    with audit.session("s") as s:
        wrapped.messages.create(**ASK)
        wrapped.messages.create(**ASK)
    calls = s.calls()
    assert [call.attempt for call in calls] == [0, 1, 0]
    assert "logical_call" not in calls[2].extra


def test_a_call_that_fails_for_good(audit: CacheAudit) -> None:
    script = Script(*[refused(529, "overloaded_error")] * 3)
    with audit.session("s") as s, pytest.raises(anthropic.APIStatusError):
        audit.wrap(client(script, max_retries=2)).messages.create(**ASK)
    assert [(c.attempt, c.error and c.error.status) for c in s.calls()] == [
        (0, 529),
        (1, 529),
        (2, 529),
    ]


def test_no_server_at_all(audit: CacheAudit) -> None:
    own = anthropic.Anthropic(api_key=KEY, base_url="http://127.0.0.1:9", max_retries=0)
    with own, audit.session("s") as s, pytest.raises(anthropic.APIConnectionError):
        audit.wrap(own).messages.create(**ASK)
    (call,) = s.calls()
    assert call.error is not None
    assert call.error.type == "connection"
    assert call.prompt is not None
    assert call.usage is None


def test_an_answer_that_is_no_json(audit: CacheAudit) -> None:
    script = Script(Reply(b"<html>bad gateway</html>", 502, headers={"content-type": "text/html"}))
    with audit.session("s") as s, pytest.raises(anthropic.APIStatusError):
        audit.wrap(client(script, max_retries=0)).messages.create(**ASK)
    (call,) = s.calls()
    assert call.error is not None
    assert call.error.status == 502


def test_a_message_of_an_error_that_quotes_the_key_is_not_kept(audit: CacheAudit) -> None:
    body = {"type": "error", "error": {"type": "authentication_error", "message": f"bad {KEY}"}}
    with audit.session("s") as s, pytest.raises(anthropic.AuthenticationError):
        audit.wrap(client(Script(Reply(body, 401)), max_retries=0)).messages.create(**ASK)
    (call,) = s.calls()
    assert call.error is not None
    assert (call.error.type, call.error.status, call.error.message) == (
        "authentication_error",
        401,
        None,
    )

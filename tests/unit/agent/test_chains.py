"""What spans several requests: message threads, the tool runner, batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anthropic
import pytest

from cacheaudit import CacheAudit
from tests.unit.agent.servers import MODEL, Reply, Script, client, message, usage

HAS_THREADS = int(anthropic.__version__.split(".")[0]) >= 2


def tool_turn(number: int) -> dict[str, Any]:
    use = {
        "type": "tool_use",
        "id": f"toolu_{number}",
        "name": "weather",
        "input": {"city": "Bern"},
    }
    return message(number, content=[use], stop_reason="tool_use")


@anthropic.beta_tool
def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"rain in {city}"


def run_tools(audit: CacheAudit, script: Script) -> tuple[Any, ...]:
    with audit.session("s") as s:
        runner = audit.wrap(client(script)).beta.messages.tool_runner(
            model=MODEL,
            max_tokens=16,
            system="be brief",
            tools=[weather],
            messages=[{"role": "user", "content": "how is the weather in Bern?"}],
        )
        final = runner.until_done()
    assert final.content[0].text == "hello there"
    return s.calls()


def test_the_tool_runner_and_its_thread(audit: CacheAudit) -> None:
    script = Script(Reply(tool_turn(1)), Reply(tool_turn(2)), Reply(message(3)))
    calls = run_tools(audit, script)
    bodies = [json.loads(body) for body in script.sent]
    if HAS_THREADS:
        # The server holds the conversation: what is sent is not what is read.
        assert [len(body["messages"]) for body in bodies] == [1, 1, 1]
        assert "tools" not in bodies[1]
    assert [len(call.prompt.blocks) for call in calls] == [3, 5, 7]
    assert [block.level for block in calls[2].prompt.blocks] == ["tools", "system"] + [
        "messages"
    ] * 5
    for shorter, longer in pairwise(calls):
        known = len(shorter.prompt.prefix_digests)
        assert longer.prompt.prefix_digests[:known] == shorter.prompt.prefix_digests
    assert [call.lane for call in calls] == ["main"] * 3
    assert calls[1].tool_seconds is not None
    assert audit.state.faults == {}


@pytest.mark.skipif(not HAS_THREADS, reason="this SDK has no message threads")
def test_a_thread_of_streams(audit: CacheAudit) -> None:
    """What the server said in a stream is part of the prompt that it reads next."""
    wrapped = audit.wrap(client(Script()))
    with audit.session("s") as s:
        thread = wrapped.beta.messages.thread(model=MODEL, max_tokens=16, system="be brief")
        for text in ("one", "two", "three"):
            with thread.stream({"role": "user", "content": text}) as stream:
                assert stream.get_final_message().content[0].text == "hello there"
    assert [len(call.prompt.blocks) for call in s.calls() if call.prompt] == [2, 4, 6]


def test_a_thread_whose_beginning_was_not_recorded(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    with audit.session("s") as s:
        wrapped.messages.create(
            model=MODEL,
            max_tokens=1,
            messages=[{"role": "user", "content": "and then?"}],
            extra_body={"thread": {"type": "continue", "previous_message_id": "msg_unknown"}},
        )
    (call,) = s.calls()
    assert call.prompt is None
    assert call.usage is not None


RESULTS = [
    {
        "custom_id": "a",
        "result": {"type": "succeeded", "message": message(1, usage=usage(read=0, write=900))},
    },
    {
        "custom_id": "b",
        "result": {"type": "succeeded", "message": message(2, usage=usage(read=900, write=0))},
    },
    {
        "custom_id": "c",
        "result": {
            "type": "errored",
            "error": {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}},
        },
    },
    {"custom_id": "d", "result": {"type": "expired"}},
]
BATCH = {
    "id": "msgbatch_1",
    "type": "message_batch",
    "processing_status": "ended",
    "request_counts": {"processing": 0, "succeeded": 2, "errored": 1, "canceled": 0, "expired": 0},
    "created_at": "2026-11-30T00:00:00Z",
    "expires_at": "2026-12-01T00:00:00Z",
    "results_url": "https://api.anthropic.com/v1/messages/batches/msgbatch_1/results",
}


def asked(key: str) -> dict[str, Any]:
    said = [{"role": "user", "content": f"question {key}"}]
    params = {"model": MODEL, "max_tokens": 8, "system": "the same for all", "messages": said}
    return {"custom_id": key, "params": params}


def batch_script() -> Script:
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in RESULTS)
    kind = {"content-type": "application/x-jsonl"}
    return Script(
        Reply(BATCH),
        Reply(BATCH),
        Reply(frames=[lines[:50], lines[50:]], headers=kind),
        Reply(BATCH),
        Reply(frames=[lines], headers=kind),
    )


def test_a_batch_is_recorded_when_its_results_are_read(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(batch_script()))
    with audit.session("s", task="nightly") as s:
        made = wrapped.messages.batches.create(requests=[asked(key) for key in "abcd"])
    assert s.calls() == ()
    first = [entry.custom_id for entry in wrapped.messages.batches.results(made.id)]
    again = [entry.custom_id for entry in wrapped.messages.batches.results(made.id)]
    assert first == again == ["a", "b", "c", "d"]
    calls = {call.lane: call for call in s.calls()}
    assert set(calls) == {"batch/a", "batch/b", "batch/c", "batch/d"}
    one, two, bad, late = (calls[f"batch/{key}"] for key in "abcd")
    assert one.usage is not None
    assert (one.usage.write_5m, one.usage.cache_read, one.usage.service_tier) == (900, 0, "batch")
    assert two.usage is not None
    assert (two.usage.write_5m, two.usage.cache_read) == (0, 900)
    assert one.prompt is not None
    assert two.prompt is not None
    assert one.prompt.prefix_digests[0] == two.prompt.prefix_digests[0]
    assert one.task == "nightly"
    assert one.start_span is not None
    assert bad.usage is None
    assert bad.error is not None
    assert bad.error.type == "invalid_request_error"
    assert late.error is not None
    assert late.error.type == "expired"
    assert audit.state.faults == {}


def test_results_of_a_batch_of_another_program(make: Callable[..., CacheAudit]) -> None:
    audit = make()
    script = batch_script()
    script._replies[:] = script._replies[1:3]
    with audit.session("s") as s:
        list(audit.wrap(client(script)).messages.batches.results("msgbatch_1"))
    calls = s.calls()
    assert [call.usage is not None for call in calls] == [True, True, False, False]
    assert [call.prompt for call in calls] == [None] * 4

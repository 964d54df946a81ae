"""Whatever fails inside the recorder, the caller's call is as if it were not there."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from cacheaudit import CacheAudit
from tests.unit.agent.servers import HTTP, MODEL, Reply, Script, async_client, client, message
from tests.unit.agent.test_styles import ASYNC, SYNC

# Every step that a call goes through, in the caller's thread and in the writer's.
STEPS = [
    "hooks.interest",
    "hooks.current",
    "hooks.new_id",
    "hooks.Attempt",
    "hooks.Logical",
    "plan.LogicalCalls.first",
    "plan.LogicalCalls.forget",
    "recorder.Recorder.reserve",
    "recorder.Recorder.weigh",
    "recorder.Recorder.hand_over",
    "recorder.Recorder._start",
    "capture.Capture.request",
    "capture.Capture.response",
    "capture._picked",
    "capture.tee",
    "tee._tee_class",
    "attempt.Attempt.take",
    "attempt.Sink.__init__",
    "writer.Writer._made_of",
    "writer.Writer._settle",
    "maker.read_body",
    "maker.hear",
    "maker.endpoint_of",
    "maker.CallMaker.__init__",
    "maker.CallMaker.calls",
    "unfold.Unfolder.prompt",
    "ledger.Ledger.write",
    "ledger.Ledger.store",
]


class BrokenError(Exception):
    """What an injected step raises."""


def break_step(monkeypatch: pytest.MonkeyPatch, step: str, error: type[Exception]) -> None:
    module, _, path = step.partition(".")
    holder: Any = importlib.import_module(f"cacheaudit.agent.{module}")
    *outer, name = path.split(".")
    for part in outer:
        holder = getattr(holder, part)

    def fail(*_: Any, **__: Any) -> Any:
        raise error("injected")

    assert hasattr(holder, name), step
    monkeypatch.setattr(holder, name, fail)


@pytest.fixture(autouse=True)
def _calm(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Do not wait for a store that is broken on purpose."""
    monkeypatch.setattr("cacheaudit.agent.ledger._PATIENCE", ())
    caplog.set_level(logging.CRITICAL, logger="cacheaudit.agent")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", [BrokenError, MemoryError, RecursionError])
def test_a_fault_at_any_step_leaves_sync_calls_alone(
    make: Callable[..., CacheAudit],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    error: type[Exception],
) -> None:
    audit = make()
    with monkeypatch.context() as patch:
        break_step(patch, step, error)
        for style in SYNC:
            bare, recorded = Script(), Script()
            assert style(audit.wrap(client(recorded))) == style(client(bare))
            assert recorded.sent == bare.sent
        audit.flush(0.2)
    if not step.startswith("writer."):
        assert audit.state.faults or audit.state.lost, "the step was never reached"


@pytest.mark.parametrize("step", STEPS)
def test_a_fault_at_any_step_leaves_async_calls_alone(
    make: Callable[..., CacheAudit], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    audit = make()

    async def run() -> None:
        for style in ASYNC:
            bare, recorded = Script(), Script()
            expected = await style(async_client(bare))
            assert await style(audit.wrap(async_client(recorded))) == expected
            assert recorded.sent == bare.sent

    with monkeypatch.context() as patch:
        break_step(patch, step, BrokenError)
        asyncio.run(run())
        audit.flush(0.2)


@pytest.mark.parametrize("step", STEPS)
def test_a_fault_at_any_step_leaves_the_callers_exception_alone(
    make: Callable[..., CacheAudit], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    audit = make()
    ask = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    with monkeypatch.context() as patch:
        break_step(patch, step, BrokenError)
        refused = Script(Reply({"type": "error", "error": {"type": "x", "message": "y"}}, 400))
        with pytest.raises(anthropic.BadRequestError):
            audit.wrap(client(refused, max_retries=0)).messages.create(**ask)
        unreachable = Script(HTTP.ConnectError("no route"))
        with pytest.raises(anthropic.APIConnectionError):
            audit.wrap(client(unreachable, max_retries=0)).messages.create(**ask)
        audit.flush(0.2)


@pytest.mark.parametrize("step", STEPS)
def test_a_fault_at_any_step_leaves_the_transport_alone(
    make: Callable[..., CacheAudit], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    audit = make()
    inner = HTTP.MockTransport(lambda _: HTTP.Response(200, json=message()))
    with monkeypatch.context() as patch:
        break_step(patch, step, BrokenError)
        with HTTP.Client(transport=audit.transport(inner)) as http:
            body = {"model": MODEL, "messages": []}
            found = http.post("https://api.anthropic.com/v1/messages", json=body)
        audit.flush(0.2)
    assert found.json() == message()


def test_a_broken_clock(make: Callable[..., CacheAudit]) -> None:
    class Stopped:
        def now(self) -> float:
            raise BrokenError

    audit = make(clock=Stopped())
    for style in SYNC:
        assert style(audit.wrap(client(Script()))) == "hello there"
    assert audit.state.faults


def test_a_clock_that_stops_in_the_middle_of_a_stream(make: Callable[..., CacheAudit]) -> None:
    class Stopping:
        left = 4

        def now(self) -> float:
            self.left -= 1
            if self.left < 0:
                raise BrokenError
            return 1_800_000_000.0

    audit = make(clock=Stopping())
    ask = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    with audit.wrap(client(Script())).messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == "hello there"
    assert audit.state.faults


def test_a_caller_told_of_calls_who_raises(make: Callable[..., CacheAudit]) -> None:
    def refuse(_: Any) -> None:
        raise BrokenError

    audit = make(on_call=refuse)
    with audit.session("s") as s:
        assert SYNC[0](audit.wrap(client(Script()))) == "hello there"
    assert len(s.calls()) == 1
    assert audit.state.faults == {"learn:BrokenError": 1}


def test_faults_are_logged_once_and_without_content(
    make: Callable[..., CacheAudit],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="cacheaudit.agent")
    audit = make()
    with monkeypatch.context() as patch:
        break_step(patch, "maker.hear", BrokenError)
        wrapped = audit.wrap(client(Script()))
        for _ in range(3):
            SYNC[0](wrapped)
        audit.flush()
    assert audit.state.faults == {"make:BrokenError": 3}
    assert len(caplog.records) == 1
    assert "injected" not in caplog.text
    assert "hello" not in caplog.text

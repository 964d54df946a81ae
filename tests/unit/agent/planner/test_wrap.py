"""The planner at work: the SDK's own loop against a server, through middleware and transport."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.middleware import with_body
from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from tests.unit.agent.planner.bodies import text
from tests.unit.agent.planner.play import outgoing, unmarked
from tests.unit.agent.servers import (
    HTTP,
    KEY,
    MODEL,
    Reply,
    Script,
    async_client,
    client,
    loopback,
    message,
    transport,
    usage,
)

MARKER = {"type": "ephemeral"}
TOOLS = [{"name": "read", "description": "reads", "input_schema": {"type": "object"}}]
ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 16,
    "system": text(6_000, 2),
    "tools": TOOLS,
    "messages": [{"role": "user", "content": "hello"}],
}


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[CacheAudit]:
    with CacheAudit(tmp_path / "usage.db") as made:
        yield made
        assert made.state.faults == {}


def loop(wrapped: Any, turns: int = 3) -> None:
    """Do what an agent does: append the answer and a result, ask again."""
    said: list[Any] = list(ASK["messages"])
    for turn in range(turns):
        reply = wrapped.messages.create(**{**ASK, "messages": said})
        said = [
            *said,
            {"role": "assistant", "content": reply.content},
            {"role": "user", "content": [{"type": "text", "text": text(900, turn)}]},
        ]


def test_an_unchanged_loop_over_a_real_connection_is_marked(audit: CacheAudit) -> None:
    script = Script(
        Reply(message(1, usage=usage(0, 1_700, 0))),
        Reply(message(2, usage=usage(1_700, 250, 0))),
        Reply(message(3, usage=usage(1_950, 250, 0))),
    )
    with (
        loopback(script) as address,
        audit.session("work") as s,
        anthropic.Anthropic(api_key=KEY, base_url=address) as plain,
    ):
        loop(audit.wrap(plain))
    first, _, last = (json.loads(body) for body in script.sent)
    assert first["system"] == [{"type": "text", "text": ASK["system"], "cache_control": MARKER}]
    assert first["messages"][0]["content"][0]["cache_control"] == MARKER
    assert [n for n, m in enumerate(last["messages"]) if "cache_control" in json.dumps(m)] == [2, 4]
    report = s.report()
    assert "Planner: markers on 3 of 3 calls (end 3, system 3" in report
    assert "end kept for 5m: expected 5m USD" in report
    assert "1h USD" in report
    assert "No loss of cached tokens was found" in report
    calls = s.calls()
    assert [call.prompt.marked[-1] for call in calls if call.prompt] == [2, 4, 6]


def test_what_is_sent_equals_what_the_bare_client_sends_but_for_markers(audit: CacheAudit) -> None:
    bare, script = Script(), Script()
    own = copy.deepcopy(ASK)
    listed = {**ASK, "system": [{"type": "text", "text": ASK["system"]}]}
    listed["messages"] = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    client(bare).messages.create(**listed)
    audit.wrap(client(script)).messages.create(**listed)
    sent = unmarked(json.loads(script.sent[0]))
    assert sent.pop("diagnostics") == {"previous_message_id": None}
    assert json.dumps(sent) == json.dumps(json.loads(bare.sent[0]))
    assert own == ASK


@pytest.mark.parametrize("style", ["create", "stream", "manager", "raw", "beta"])
def test_every_style_is_planned(audit: CacheAudit, style: str) -> None:
    script = Script()
    wrapped = audit.wrap(client(script))
    if style == "create":
        wrapped.messages.create(**ASK)
    elif style == "stream":
        for _ in wrapped.messages.create(**ASK, stream=True):
            pass
    elif style == "manager":
        with wrapped.messages.stream(**ASK) as stream:
            stream.until_done()
    elif style == "raw":
        wrapped.messages.with_raw_response.create(**ASK)
    else:
        wrapped.beta.messages.create(**ASK)
    assert script.sent[0].count(b'"cache_control"') == 2


def test_asynchronously(audit: CacheAudit) -> None:
    script = Script()

    async def run() -> None:
        await audit.wrap(async_client(script)).messages.create(**ASK)

    asyncio.run(run())
    assert script.sent[0].count(b'"cache_control"') == 2


def test_the_callers_markers_are_left_alone(audit: CacheAudit) -> None:
    bare, script = Script(), Script()
    own = {**ASK, "cache_control": MARKER}
    client(bare).messages.create(**own)
    with audit.session("s") as s:
        audit.wrap(client(script)).messages.create(**own)
    assert script.sent == bare.sent
    assert "1 left as sent: the caller placed markers" in s.report()


def test_completing_them(tmp_path: Path) -> None:
    script = Script()
    with CacheAudit(tmp_path / "x.db", policy=PlanPolicy(complete=True)) as audit:
        own = {**ASK, "cache_control": {**MARKER, "ttl": "1h"}}
        audit.wrap(client(script)).messages.create(**own)
    sent = json.loads(script.sent[0])
    assert sent["cache_control"] == {**MARKER, "ttl": "1h"}
    assert sent["system"][0]["cache_control"] == {**MARKER, "ttl": "1h"}
    assert "cache_control" not in json.dumps(sent["messages"])


def test_observing_changes_nothing(tmp_path: Path) -> None:
    bare, script = Script(), Script()
    client(bare).messages.create(**ASK)
    with CacheAudit(tmp_path / "x.db", "observe") as audit, audit.session("s") as s:
        audit.wrap(client(script)).messages.create(**ASK)
        assert "Planner" not in s.report()
    assert script.sent == bare.sent


# ── the provider's own diagnosis ─────────────────────────────────────────────────────────────────


def test_diagnoses_are_asked_for_and_kept_with_the_call(audit: CacheAudit) -> None:
    missed = {"type": "messages_changed", "cache_missed_input_tokens": 123}
    script = Script(
        Reply(message(1)),
        Reply(message(2, diagnostics={"cache_miss_reason": missed})),
        Reply(message(3, diagnostics=None)),
    )
    wrapped = audit.wrap(client(script, base_url="https://api.anthropic.com"))
    with audit.session("s") as s:
        for _ in range(3):
            wrapped.messages.create(**ASK)
            assert audit.flush()
    asked = [json.loads(body)["diagnostics"]["previous_message_id"] for body in script.sent]
    assert asked == [None, "msg_0001", "msg_0002"]
    found = [call.diagnostics for call in s.calls()]
    assert found[0] is None
    assert found[1] is not None
    assert (found[1].type, found[1].missed_tokens) == ("messages_changed", 123)
    assert found[2] is not None
    assert found[2].type == "none"


@pytest.mark.parametrize("address", ["https://gateway.example.org", "http://127.0.0.1:9"])
def test_nobody_else_is_asked(audit: CacheAudit, address: str) -> None:
    script = Script()
    audit.wrap(client(script, base_url=address)).messages.create(**ASK)
    assert "diagnostics" not in json.loads(script.sent[0])


def test_a_question_of_the_callers_own_stays(audit: CacheAudit) -> None:
    script = Script()
    wrapped = audit.wrap(client(script, base_url="https://api.anthropic.com"))
    question = {"diagnostics": {"previous_message_id": "msg_x"}}
    wrapped.messages.create(**ASK, extra_body=question)
    assert json.loads(script.sent[0])["diagnostics"] == {"previous_message_id": "msg_x"}


def test_diagnoses_can_be_switched_off(tmp_path: Path) -> None:
    script = Script()
    with CacheAudit(tmp_path / "x.db", policy=PlanPolicy(diagnostics=False)) as audit:
        audit.wrap(client(script, base_url="https://api.anthropic.com")).messages.create(**ASK)
    assert "diagnostics" not in json.loads(script.sent[0])


# ── what a store remembers, and other clients ────────────────────────────────────────────────────


def test_pauses_of_earlier_programs_decide_the_lifetime(tmp_path: Path) -> None:
    """A user who comes back after ten minutes, again and again, gets markers for an hour."""

    class Late:
        def __init__(self) -> None:
            self.at = 1_795_000_000.0

        def now(self) -> float:
            return self.at

    clock = Late()
    scripts = []
    for _ in range(2):
        scripts.append(Script())
        with CacheAudit(tmp_path / "x.db", clock=clock) as audit:
            wrapped = audit.wrap(client(scripts[-1]))
            wrapped.messages.create(**{**ASK, "system": "x"})
            assert audit.flush()  # the store is open now
            for number in range(20):
                with audit.session(f"s{number}{clock.at}"):
                    for said in grown(4):
                        wrapped.messages.create(**{**ASK, "messages": said})
                        clock.at += 600
            assert audit.flush()
        clock.at += 100_000
    first = [json.loads(script.sent[1])["messages"][0]["content"] for script in scripts]
    assert [block[0]["cache_control"].get("ttl") for block in first] == [None, "1h"]


def grown(turns: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the messages of a conversation, one exchange more each time."""
    said: list[dict[str, Any]] = list(ASK["messages"])
    for turn in range(turns):
        yield list(said)
        said += [{"role": "assistant", "content": "x"}]
        said += [{"role": "user", "content": text(300, turn)}]


@pytest.mark.parametrize("http", [httpx, HTTP], ids=["httpx", "of the SDK"])
def test_any_client_through_a_transport(audit: CacheAudit, http: Any) -> None:
    script = Script()
    made = http.Client(transport=audit.transport(transport(script, http)))
    asked = made.post("https://example.org/v1/messages", json=ASK, headers={"x-own": "kept"})
    assert asked.status_code == 200
    assert script.sent[0].count(b'"cache_control"') == 2
    assert script.heads[0]["x-own"] == "kept"
    assert script.heads[0]["content-length"] == str(len(script.sent[0]))


def test_signed_requests_go_through_as_they_are(audit: CacheAudit) -> None:
    script = Script()
    made = httpx.Client(transport=audit.transport(transport(script, httpx)))
    body = json.dumps(ASK).encode()
    made.post(
        "https://example.org/v1/messages", content=body, headers={"x-amz-content-sha256": "f00"}
    )
    made.post(
        "https://example.org/v1/messages",
        content=body,
        headers={"authorization": "AWS4-HMAC-SHA256 Credential=x"},
    )
    assert script.sent == [body, body]


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────


def test_many_threads_share_one_planner(audit: CacheAudit) -> None:
    script = Script()
    wrapped = audit.wrap(client(script))

    def work(number: int) -> None:
        with audit.session(f"s{number}"):
            loop(wrapped, 5)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(script.sent) == 40
    assert all(b'"cache_control"' in body for body in script.sent)


def test_a_planner_of_ones_own_takes_its_place(tmp_path: Path) -> None:
    mine = BreakpointPlanner(PlanPolicy(ttl="1h"))
    script = Script()
    with CacheAudit(tmp_path / "x.db", planner=mine) as audit:
        audit.wrap(client(script)).messages.create(**ASK)
    assert b'"ttl":"1h"' in script.sent[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_is_not_held_up_by_a_thread_of_its_parent() -> None:
    planner = BreakpointPlanner()
    with planner._lock:
        child = os.fork()
        if child == 0:
            made = planner.plan(outgoing(ASK))
            os._exit(0 if made is not None else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    ("model", "address", "planned"),
    [
        ("tiny", "http://127.0.0.1:9/v1/messages", True),
        (MODEL, "http://127.0.0.1:9/v1/messages", True),
        ("claude-opus-5", "https://gateway.example.org/v1/messages?beta=true", True),
        ("tiny", "https://gateway.example.org/v1/messages", False),
        ("deepseek-chat", "https://api.deepseek.com/anthropic/v1/messages", False),
    ],
)
def test_where_markers_are_placed(model: str, address: str, planned: bool) -> None:
    body = {**ASK, "model": model}
    assert (BreakpointPlanner().plan(outgoing(body, url=address)) is not None) == planned


def test_a_request_of_another_make_is_copied_by_the_sdk() -> None:
    class Other:
        def copy(self, *, body: Any) -> Any:
            return ("copied", body)

    assert with_body(Other(), {"a": 1}) == ("copied", {"a": 1})

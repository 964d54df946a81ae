"""A compactor in a running loop: what it sends, keeps, logs, and what a failure leaves."""

from __future__ import annotations

import asyncio
import copy
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.compaction.compactor import Compactor
from cacheaudit.agent.compaction.history import faults
from cacheaudit.agent.compaction.kept import carried
from cacheaudit.agent.compaction.settings import Clearing, Compaction
from cacheaudit.agent.outputs.store import OutputStore
from cacheaudit.errors import OutputError, UsageError
from cacheaudit.model.call import Call
from cacheaudit.model.clock import FixedClock
from cacheaudit.model.usage import Usage
from tests.unit.agent.compaction.histories import body, rounds, said
from tests.unit.agent.servers import Reply, Script, async_client, client, message, usage

START = 1_795_996_800.0
SUMMARY = "## Goal\nThe parser works.\n## Next steps\nRun the tests."
TOOL = {"type": "tool_use", "id": "x9", "name": "run", "input": {}}
# 40 rounds of about 1,700 tokens.
LONG = rounds(40, 6_000)


def summary(**changes: Any) -> Reply:
    return Reply(message(content=[{"type": "text", "text": SUMMARY}], **changes))


def make(tmp_path: Path, script: Script, plan: Compaction | None = None, **more: Any) -> Compactor:
    return Compactor(
        more.pop("client", None) or client(script, max_retries=0),
        OutputStore(tmp_path / "store"),
        plan or Compaction(keep_recent=4_000, at=30_000, remaining_turns=30),
        clock=more.pop("clock", FixedClock(START)),
        **more,
    )


def warmed(compactor: Compactor, messages: list[dict[str, Any]] = LONG) -> dict[str, Any]:
    """Tell it of the request before the last round, all of it cached; return the next one."""
    last = body(messages[:-2])
    compactor.took(last, message(usage=usage(read=60_000, write=6_000, fresh=10)))
    return body(messages)


def test_a_warm_conversation_is_compacted_behind_its_prefix(tmp_path: Path) -> None:
    script = Script(summary())
    compactor = make(tmp_path, script)
    compactor.pin("finding", "the lexer drops CR")
    compactor.pin_result("c3")
    compactor.open_file("parser.py", lambda: "def parse(): ...")
    request = warmed(compactor)
    before = copy.deepcopy(request)
    made = compactor.prepare(request)
    assert request == before
    outcome = compactor.outcome
    assert outcome is not None
    assert outcome.compacted
    assert outcome.decision.action == "prefix"
    assert outcome.decision.occasion == "threshold"
    assert outcome.messages_before == 81
    assert outcome.messages_after == len(made["messages"]) < 10
    assert outcome.freed > 50_000
    sent = json.loads(script.sent[0])
    assert sent["tools"] == request["tools"]
    assert len(sent["messages"]) == 81
    assert faults(made["messages"]) == []
    found = carried(made["messages"])
    assert SUMMARY in found.head[0]["content"][0]["text"]
    assert found.kept.words == ("fix the parser",)
    assert [(pin.name, pin.text[:6]) for pin in found.kept.pins] == [
        ("finding", "the le"),
        ("c3", "row 3 "),
    ]
    assert [(file.path, file.text) for file in found.kept.files] == [
        ("parser.py", "def parse(): ...")
    ]
    assert compactor.original(str(outcome.original)) == LONG
    # Asked again at once, nothing is older than the summary.
    assert compactor.prepare(made) == made
    assert compactor.outcome is not None
    assert compactor.outcome.decision.reason in ("nothing_older", "no_occasion")
    assert len(script.sent) == 1


@pytest.mark.parametrize(
    ("replies", "failure", "asked"),
    [
        (
            [Reply({"type": "error", "error": {"type": "overloaded_error"}}, 529)],
            "request_failed",
            1,
        ),
        ([OSError("gone")], "request_failed", 1),
        ([Reply(message(content=[TOOL], stop_reason="tool_use"))] * 2, "called_a_tool", 2),
        ([summary(stop_reason="max_tokens")], "cut_off", 1),
        ([summary(stop_reason="refusal")], "refusal", 1),
        ([Reply(message(content=[{"type": "text", "text": " \n"}]))], "empty", 1),
        ([Reply(message(content=[{"type": "text", "text": "long " * 90_000}]))], "no_shorter", 1),
    ],
    ids=["overloaded", "network", "tools", "cut", "refusal", "empty", "long"],
)
def test_a_failure_leaves_the_history_as_it_was(
    tmp_path: Path, replies: list[Any], failure: str, asked: int
) -> None:
    script = Script(*replies)
    compactor = make(tmp_path, script)
    request = warmed(compactor)
    before = copy.deepcopy(request)
    made = compactor.prepare(request)
    assert made == before == request
    assert made["messages"] is request["messages"]
    assert compactor.outcome is not None
    assert (compactor.outcome.compacted, compactor.outcome.failure) == (False, failure)
    assert len(script.sent) == asked
    # The conversation goes on as before, and its cache with it.
    script.answer = lambda *_: summary()  # type: ignore[method-assign]
    assert compactor.prepare(request)["messages"] != request["messages"]


def test_a_tool_call_is_answered_and_the_summary_asked_for_again(tmp_path: Path) -> None:
    script = Script(Reply(message(content=[TOOL], stop_reason="tool_use")), summary())
    compactor = make(tmp_path, script)
    made = compactor.prepare(warmed(compactor))
    assert compactor.outcome is not None
    assert (compactor.outcome.compacted, compactor.outcome.attempts) == (True, 2)
    assert len(compactor.outcome.usage) == 2
    first, second = (json.loads(sent)["messages"] for sent in script.sent)
    assert second[: len(first)] == first
    assert second[-1]["content"][0]["is_error"] is True
    assert faults(made["messages"]) == []


def test_what_fails_again_and_again_is_tried_less_and_less(tmp_path: Path) -> None:
    script = Script(*[summary(stop_reason="max_tokens")] * 6)
    compactor = make(tmp_path, script)
    request = warmed(compactor)
    asked = []
    for number in range(26):
        compactor.prepare(request)
        assert compactor.outcome is not None
        if compactor.outcome.failure == "cut_off":
            asked.append(number)
        else:
            assert compactor.outcome.decision.reason == "failed_before"
    assert asked == [0, 1, 4, 11]
    # Where somebody asks for it, it is tried at once; a success forgets the failures.
    compactor.compact(request)
    assert compactor.outcome.failure == "cut_off"
    script.answer = lambda *_: summary()  # type: ignore[method-assign]
    assert compactor.compact(request)["messages"] != request["messages"]
    request = warmed(compactor)
    assert compactor.prepare(request)["messages"] != request["messages"]


def test_an_open_file_that_is_gone_does_not_end_the_conversation(tmp_path: Path) -> None:
    compactor = make(tmp_path, Script(summary()))
    compactor.open_file("gone.py", (tmp_path / "gone.py").read_text)
    compactor.open_file("here.py", "x = 1")
    made = compactor.prepare(warmed(compactor))
    assert compactor.outcome is not None
    assert compactor.outcome.compacted
    files = {file.path: file.text for file in carried(made["messages"]).kept.files}
    assert files == {"gone.py": "(could not be read: FileNotFoundError)", "here.py": "x = 1"}


def test_a_store_that_is_full_leaves_the_history_as_it_was(tmp_path: Path) -> None:
    script = Script(summary())
    compactor = Compactor(
        client(script, max_retries=0),
        OutputStore(tmp_path, quota=100),
        Compaction(at=30_000, remaining_turns=30),
        clock=FixedClock(START),
    )
    request = warmed(compactor)
    assert compactor.prepare(request)["messages"] is request["messages"]
    assert compactor.outcome is not None
    assert compactor.outcome.failure == "not_kept"
    assert script.sent == []


def test_when_warm_cold_and_idle(tmp_path: Path) -> None:
    clock = FixedClock(START)
    plan = Compaction(
        keep_recent=4_000,
        when=("threshold", "cold", "before_expiry"),
        at=10**9,
        return_probability=0.9,
        remaining_turns=10,
    )
    script = Script(*[summary()] * 3)
    compactor = make(tmp_path, script, plan, clock=clock)
    assert compactor.expires_in() is None
    request = warmed(compactor)
    assert compactor.prepare(request)["messages"] is request["messages"]
    assert compactor.outcome is not None
    assert compactor.outcome.decision.reason == "no_occasion"
    # Five minutes, of which nine tenths pass.
    assert compactor.expires_in() == 270
    clock.advance(270)
    assert compactor.expires_in() == 0
    assert compactor.idle(request)["messages"] is not request["messages"]
    assert compactor.outcome.decision.occasion == "before_expiry"
    late = make(tmp_path, script, plan, clock=clock)
    request = warmed(late)
    clock.advance(300)
    assert late.prepare(request)["messages"] is not request["messages"]
    assert late.outcome is not None
    assert late.outcome.decision.occasion == "cold"
    # Nothing of the conversation is marked: nobody will read it again.
    sent = json.loads(script.sent[-1])
    assert "cache_control" in sent["system"][0]
    assert "cache_control" not in json.dumps(sent["messages"])


def test_a_loop_that_marks_its_last_message_finds_it_marked(tmp_path: Path) -> None:
    mark = {"type": "ephemeral"}
    last = LONG[-1]
    block = {**last["content"][0], "cache_control": mark}
    marked = [*LONG[:-1], {**last, "content": [block]}]
    script = Script(summary())
    compactor = make(tmp_path, script)
    made = compactor.prepare(warmed(compactor, marked))
    assert made["messages"][-1]["content"][-1]["cache_control"] == mark
    assert json.dumps(made["messages"]).count("cache_control") == 1


def test_a_refresh_keeps_the_conversation_warm(tmp_path: Path) -> None:
    clock = FixedClock(START)
    with CacheAudit(tmp_path / "u.db", "observe", clock=clock) as audit:
        compactor = make(tmp_path, Script(), Compaction(when="cold"), audit=audit, clock=clock)
        request = warmed(compactor)
        (hear,) = audit.learners
        clock.advance(270)
        read = Usage(cache_read=66_000)
        hear(Call(id="r", purpose="keep_alive", started_at=clock.now(), usage=read))
        # Another conversation's refresh is none of this one's.
        other = Usage(cache_read=5_000)
        hear(Call(id="o", purpose="keep_alive", started_at=clock.now() + 200, usage=other))
        clock.advance(299)
        assert compactor.prepare(request) == request
        assert compactor.outcome is not None
        assert compactor.outcome.decision.reason == "no_occasion"
        clock.advance(1)
        compactor.prepare(request)
        assert compactor.outcome.decision.occasion == "cold"
        del compactor
        hear(Call(id="late", purpose="keep_alive", started_at=0.0, usage=read))


def test_the_providers_own_compaction_is_sent_back_first(tmp_path: Path) -> None:
    block = {"type": "compaction", "content": "the gist", "signature": "abc"}
    script = Script(Reply(message(content=[block], stop_reason="compaction")))
    plan = Compaction(mode="server", keep_recent=4_000, at=30_000, remaining_turns=30)
    compactor = make(tmp_path, script, plan)
    made = compactor.prepare(warmed(compactor))
    sent = json.loads(script.sent[0])
    assert sent["compaction"]["type"] == "summarize"
    assert "compact-2026-09-04" in script.heads[0]["anthropic-beta"]
    first, second = made["messages"][:2]
    assert first == {"role": "assistant", "content": [block]}
    assert second["role"] == "user"
    assert carried(made["messages"]).kept.words == ("fix the parser",)
    assert faults(made["messages"]) == []
    assert compactor.prepare(made) == made


def test_a_server_that_knows_no_compaction(tmp_path: Path) -> None:
    script = Script(summary())
    compactor = make(tmp_path, script, Compaction(mode="server", at=30_000, remaining_turns=30))
    request = warmed(compactor)
    assert compactor.prepare(request)["messages"] is request["messages"]
    assert compactor.outcome is not None
    assert compactor.outcome.failure == "not_supported"


def test_clearing_empties_results_without_a_request(tmp_path: Path) -> None:
    script = Script()
    plan = Compaction(
        mode="clear", at=30_000, remaining_turns=60, clearing=Clearing(at_least=20_000)
    )
    compactor = make(tmp_path, script, plan)
    compactor.pin_result("c0")
    made = compactor.prepare(warmed(compactor))
    assert script.sent == []
    assert compactor.outcome is not None
    assert compactor.outcome.compacted
    assert len(made["messages"]) == len(LONG)
    assert made["messages"][:4] == LONG[:4]
    text = made["messages"][4]["content"][0]["content"]
    handle = text.partition("kept as ")[2].rstrip("]")
    assert OutputStore(tmp_path / "store").text(handle) == LONG[4]["content"][0]["content"]
    assert made["messages"][-8:] == LONG[-8:]


def test_standalone_on_another_model(tmp_path: Path) -> None:
    script = Script(summary())
    plan = Compaction(
        mode="standalone", at=30_000, remaining_turns=30, standalone_model="claude-haiku-4-5"
    )
    compactor = make(tmp_path, script, plan)
    made = compactor.prepare(warmed(compactor))
    assert json.loads(script.sent[0])["model"] == "claude-haiku-4-5"
    assert said(made["messages"])[0].startswith("<conversation_summary")


def test_decisions_are_logged_with_both_prices(
    tmp_path: Path,
) -> None:
    clock = FixedClock(START)
    with CacheAudit(tmp_path / "u.db", "observe", clock=clock) as audit:
        script = Script(summary())
        compactor = Compactor(
            audit.wrap(client(script, max_retries=0)),
            OutputStore(tmp_path / "store"),
            Compaction(keep_recent=4_000, at=30_000, remaining_turns=2),
            audit=audit,
            clock=clock,
        )
        with audit.session("s", task="t"):
            request = warmed(compactor)
            assert compactor.prepare(request) == request
            kept = compactor.outcome
            compactor.compact(request)
        (call,) = audit.sessions(["s"])[0].calls
        assert (call.purpose, call.task, call.lane) == ("compaction", "t", "main")

        from cacheaudit.store import open_store

        with open_store(str(tmp_path / "u.db")) as store:
            first, second, third = store.decisions("s")
    assert kept is not None
    assert (first.kind, first.action, first.alternative) == ("compaction", "keep", "prefix")
    assert kept.decision.keep is not None
    assert kept.decision.best is not None
    assert first.action_price == kept.decision.keep.total
    assert first.alternative_price == kept.decision.best.total
    stages = first.details["stages"]["prefix"]
    total = sum(Decimal(stages[name]) for name in ("summary", "first", "later"))
    assert total == first.alternative_price
    assert first.details["break_even_turns"] > 2
    assert (second.action, second.alternative) == ("prefix", "keep")
    assert second.action_price == first.alternative_price
    assert (third.kind, third.action) == ("compaction_outcome", "prefix")
    assert third.details["attempts"] == 1
    # What the summary request took, as reported: 2,000 read, 300 written, 40 sent, 12 put out.
    paid = 2_000 * Decimal("0.5") + 300 * Decimal("6.25") + 40 * 5 + 12 * 25
    assert third.action_price == paid / 1_000_000
    assert third.details["expected"] == stages["summary"]


def test_an_asynchronous_client(tmp_path: Path) -> None:
    script = Script(summary(), OSError("gone"))

    async def run() -> None:
        async with async_client(script, max_retries=0) as bare:
            compactor = make(tmp_path, script, client=bare)
            request = warmed(compactor)
            assert (await compactor.aprepare(request))["messages"] != LONG
            other = make(tmp_path, script, client=bare)
            request = warmed(other)
            assert (await other.acompact(request))["messages"] is request["messages"]

    asyncio.run(run())


def test_bad_use_is_an_error(tmp_path: Path) -> None:
    compactor = make(tmp_path, Script())
    with pytest.raises(UsageError, match="thread"):
        compactor.prepare(body(LONG, thread={"type": "create"}))
    with pytest.raises(OutputError):
        compactor.original("out_" + "1" * 32)
    with pytest.raises(OutputError):
        compactor.original("../etc")

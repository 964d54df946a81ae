"""The reported accounting faults of other tools, row by row: the right number from end to end."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cases.bills import (
    STOP,
    WHEN,
    answer,
    archive,
    bill,
    capture,
    ended,
    lines,
    messages_usage,
    prices,
    started,
    stream,
    transcript_line,
)

SAMPLES = Path(__file__).resolve().parents[3] / "fixtures" / "sessions" / "agents"


def test_a02_the_prompt_is_more_than_input_tokens(tmp_path: Path) -> None:
    usage = messages_usage(7, 10_000, 0, 20)
    for file in (
        capture(tmp_path / "c.jsonl", answer("msg_1", usage)),
        archive(tmp_path / "a.har", answer("msg_1", usage)),
    ):
        found = bill(tmp_path, file)
        assert found.parts == (7, 10_000, 0, 20)
        assert found.total == 10_007


def test_a03_the_total_is_the_sum_of_the_parts(tmp_path: Path) -> None:
    split = {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 40}
    native = {
        "schema": "cacheaudit.call/1",
        "id": "msg_1",
        "session": "s",
        "provider": "anthropic",
        "surface": "claude_api",
        "model": "claude-opus-4-8",
        "started_at": WHEN,
        "response": answer("msg_1", messages_usage(5, 2_000, 340, 77, cache_creation=split)),
    }
    found = bill(tmp_path, lines(tmp_path / "x.session.jsonl", [native]))
    assert (found.fresh, found.read, found.w5, found.w1, found.out) == (5, 2_000, 300, 40, 77)
    assert found.total == 5 + 2_000 + 300 + 40


def test_a04_a_delta_that_repeats_the_start_adds_nothing(tmp_path: Path) -> None:
    usage = messages_usage(9, 1, 0, 1)
    text = stream(started(usage), ended({**usage, "output_tokens": 6}), STOP)
    for file in (
        capture(tmp_path / "c.jsonl", text),
        archive(tmp_path / "a.har", text, mime="text/event-stream"),
    ):
        found = bill(tmp_path, file)
        assert found.parts == (9, 1, 0, 6)
        assert found.total == 10
    (tmp_path / "raw.sse").write_text(text)
    assert bill(tmp_path, tmp_path / "raw.sse").parts == (9, 1, 0, 6)


def test_a06_cache_fields_of_the_start_survive_the_delta(tmp_path: Path) -> None:
    text = stream(started(messages_usage(50, 2_400, 120, 1)), ended({"output_tokens": 31}), STOP)
    found = bill(tmp_path, capture(tmp_path / "c.jsonl", text))
    assert found.parts == (50, 2_400, 120, 31)
    assert found.total == 2_570


@pytest.mark.parametrize("order", [(9, 9, 159), (159, 9, 9), (9, 159, 9)])
def test_a08_the_highest_output_of_a_message_counts(tmp_path: Path, order: tuple[int, ...]) -> None:
    rows = [transcript_line("m1", messages_usage(3, 1_000, 50, out)) for out in order]
    found = bill(tmp_path, lines(tmp_path / "s1.jsonl", rows))
    assert found.parts == (3, 1_000, 50, 159)
    assert found.calls == 1


def test_a08_copies_in_other_files_count_once(tmp_path: Path) -> None:
    rows = [transcript_line("m1", messages_usage(3, 1_000, 50, out)) for out in (9, 9, 159)]
    lines(tmp_path / "p" / "s1.jsonl", rows[:2])
    lines(tmp_path / "p" / "s2.jsonl", [{**row, "sessionId": "s2"} for row in rows])
    found = bill(tmp_path, tmp_path / "p")
    assert found.parts == (3, 1_000, 50, 159)
    assert found.calls == 1


def test_a10_one_line_a_block_is_one_message(tmp_path: Path) -> None:
    twice, once = 2_770_325_879, 521_818_600
    rows = [
        transcript_line(ident, messages_usage(1, read, 0, 5), stop_reason="tool_use", uuid=uuid)
        for ident, read, uuid in (("a", twice, "1"), ("a", twice, "2"), ("b", once, "3"))
    ]
    assert 2 * twice + once == 6_062_470_358
    found = bill(tmp_path, lines(tmp_path / "s1.jsonl", rows))
    assert found.read == 3_292_144_479
    assert found.out == 10


def test_a12_sidechains_are_paid_for(tmp_path: Path) -> None:
    rows = [
        transcript_line("main", messages_usage(10, 0, 540, 54)),
        transcript_line(
            "side", messages_usage(10, 0, 460, 46), isSidechain=True, agentId="a1", uuid="x"
        ),
    ]
    found = bill(tmp_path, lines(tmp_path / "s1.jsonl", rows))
    assert found.parts == (20, 0, 1_000, 100)
    assert found.calls == 2


def test_a15_one_hour_writes_cost_twice_the_input(tmp_path: Path) -> None:
    usage = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 1_000_000}
    message = {
        "role": "assistant",
        "provider": "anthropic",
        "model": "claude-opus-4-8",
        "content": [],
        "usage": {**usage, "cacheWrite1h": 400_000, "totalTokens": 1_000_000},
        "timestamp": 1_790_000_000_000,
    }
    pi = lines(
        tmp_path / "pi.jsonl",
        [
            {"type": "session", "version": 3, "id": "p", "timestamp": WHEN, "cwd": "/x"},
            {"type": "message", "id": "1", "parentId": None, "timestamp": WHEN, "message": message},
        ],
    )
    found = bill(tmp_path, pi)
    assert found.w1 == 400_000
    assert found.written == 1_000_000
    assert found.cost == Decimal("7.75")

    split = {"ephemeral_5m_input_tokens": 600_000, "ephemeral_1h_input_tokens": 400_000}
    row = transcript_line(
        "m", messages_usage(0, 0, 1_000_000, 0, cache_creation=split), model="claude-opus-4-8"
    )
    found = bill(tmp_path, lines(tmp_path / "s1.jsonl", [row]))
    assert (found.w5, found.w1) == (600_000, 400_000)
    assert found.cost == Decimal("7.75")


def _litellm(model: str, provider: str, **usage: Any) -> dict[str, Any]:
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {
        "request_id": "r1",
        "call_type": "acompletion",
        "custom_llm_provider": provider,
        "model": model,
        "spend": 0.002059,
        "startTime": "2025-10-05T10:00:00Z",
        "endTime": "2025-10-05T10:00:02Z",
        "session_id": "s",
        "status": "success",
        **{name: usage[name] for name in counts},
        "metadata": {"usage_object": usage},
    }


def test_a19_cached_tokens_of_a_stream_are_not_fresh(tmp_path: Path) -> None:
    usage = {
        "prompt_tokens": 2_459,
        "completion_tokens": 23,
        "total_tokens": 2_482,
        "prompt_tokens_details": {"cached_tokens": 2_455},
    }
    spend = _litellm("claude-3-5-haiku-20241022", "anthropic", **usage)
    found = bill(tmp_path, lines(tmp_path / "spend.jsonl", [spend]))
    assert found.parts == (4, 2_455, 0, 23)
    assert found.cost == Decimal("0.0002916")

    chunk = {"id": "chatcmpl-1", "model": "claude-3-5-haiku-20241022", "object": "x"}
    text = stream(
        {**chunk, "choices": [{"index": 0, "delta": {"content": "y"}, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**chunk, "choices": [], "usage": usage},
    )
    url = "https://gateway.example.org/v1/chat/completions"
    text += "data: [DONE]\n\n"
    file = capture(tmp_path / "c.jsonl", text, url=url, model="claude-3-5-haiku-latest")
    found = bill(tmp_path, file)
    assert found.parts == (4, 2_455, 0, 23)
    assert found.cost == Decimal("0.0002916")


def test_a20_almost_all_of_a_prompt_was_read(tmp_path: Path) -> None:
    options = prices(tmp_path, "zai", "glm-test", uncached="1.4", read="0.26", output="4.4")
    usage = {
        "prompt_tokens": 27_147,
        "completion_tokens": 351,
        "total_tokens": 27_498,
        "prompt_tokens_details": {"cached_tokens": 27_146},
    }
    file = lines(tmp_path / "spend.jsonl", [_litellm("zai/glm-test", "zai", **usage)])
    found = bill(tmp_path, file, options=options)
    assert found.parts == (1, 27_146, 0, 351)
    assert found.cost == Decimal("0.00860376")


@pytest.mark.parametrize("total", [130_213 + 130_208, None])
def test_a22_inclusive_input_beside_its_parts_is_not_added(
    tmp_path: Path, total: int | None
) -> None:
    usage = {"input": 130_213, "input_cache_read": 128_955, "input_cache_creation": 1_253}
    row = {
        "id": "o1",
        "trace_id": "t",
        "session_id": "s",
        "type": "GENERATION",
        "start_time": WHEN,
        "provided_model_name": "claude-sonnet-4-5",
        "usage_details": {**usage, **({"total": total} if total else {})},
        "cost_details": {},
    }
    found = bill(tmp_path, lines(tmp_path / "lf.jsonl", [row]))
    assert (found.fresh, found.read, found.written) == (5, 128_955, 1_253)
    assert found.total == 130_213


def test_a22_exclusive_input_is_added(tmp_path: Path) -> None:
    usage = {"input": 5, "input_cache_read": 128_955, "input_cache_creation": 1_253, "output": 8}
    row = {
        "id": "o1",
        "trace_id": "t",
        "type": "GENERATION",
        "start_time": WHEN,
        "provided_model_name": "claude-sonnet-4-5",
        "usage_details": usage,
    }
    found = bill(tmp_path, lines(tmp_path / "lf.jsonl", [row]))
    assert found.parts == (5, 128_955, 1_253, 8)
    assert found.total == 130_213


def test_a25_every_iteration_is_billed(tmp_path: Path) -> None:
    usage = messages_usage(
        23,
        0,
        5_000,
        90,
        iterations=[
            {"type": "compaction", **messages_usage(180, 40_000, 2_000, 700)},
            {"type": "message", **messages_usage(23, 0, 5_000, 90)},
        ],
    )
    for file in (
        capture(tmp_path / "c.jsonl", answer("msg_1", usage)),
        capture(tmp_path / "s.jsonl", stream(started(usage), ended(usage), STOP)),
        lines(tmp_path / "s1.jsonl", [transcript_line("m", usage, model="claude-opus-4-8")]),
    ):
        found = bill(tmp_path, file)
        assert found.parts == (203, 40_000, 7_000, 790)
        # Opus 4.8: 5, 0.5, 6.25 and 25 for a million tokens.
        assert found.cost == Decimal("0.084515")


def test_a25_declined_attempts_are_not_billed(tmp_path: Path) -> None:
    served = {"type": "fallback_message", "model": "claude-opus-4-6"}
    usage = messages_usage(
        100,
        0,
        0,
        30,
        iterations=[
            {"type": "message", "model": "claude-opus-5", **messages_usage(100, 0, 0, 4)},
            {**served, **messages_usage(100, 0, 0, 30)},
        ],
    )
    found = bill(tmp_path, capture(tmp_path / "c.jsonl", answer("msg_1", usage)))
    assert found.parts == (100, 0, 0, 30)


def test_a26_the_tier_above_200k_holds_for_reads(tmp_path: Path) -> None:
    rows = "started_at,model,provider,total_input,cache_write,cache_read,output\n"
    rows += f"{WHEN},claude-sonnet-4-20250514,anthropic,250000,0,240000,0\n"
    (tmp_path / "log.csv").write_text(rows)
    found = bill(tmp_path, tmp_path / "log.csv")
    assert found.cost == Decimal("0.144") + Decimal("0.06")
    usage = messages_usage(10_000, 240_000, 0, 0)
    body = answer("msg_1", usage, model="claude-sonnet-4-20250514")
    found = bill(tmp_path, capture(tmp_path / "c.jsonl", body, model="claude-sonnet-4-0"))
    assert found.cost == Decimal("0.204")


def test_a29_bedrock_reads_are_not_subtracted(tmp_path: Path) -> None:
    model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    url = f"https://bedrock-runtime.us-east-1.amazonaws.com/model/{model}/converse"
    body = {
        "output": {"message": {"role": "assistant", "content": [{"text": "y"}]}},
        "stopReason": "end_turn",
        "usage": {
            "inputTokens": 12,
            "cacheReadInputTokens": 4_000,
            "cacheWriteInputTokens": 0,
            "outputTokens": 9,
            "totalTokens": 4_021,
        },
    }
    request = {"messages": [{"role": "user", "content": [{"text": "x"}]}]}
    found = bill(tmp_path, capture(tmp_path / "c.jsonl", body, url=url, request=request))
    assert found.parts == (12, 4_000, 0, 9)
    assert found.total == 4_012
    assert not found.problems.keys() & {"negative_part", "cache_exceeds_input"}

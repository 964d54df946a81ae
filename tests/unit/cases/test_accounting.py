"""The reported accounting faults of other tools, row by row: the right number from end to end."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cases.bills import (
    STOP,
    WHEN,
    Bill,
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
from tests.unit.cli.helpers import run

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


def _span(**attributes: Any) -> dict[str, Any]:
    return {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "chat",
        "startTimeUnixNano": "1790848800000000000",
        "endTimeUnixNano": "1790848804000000000",
        "attributes": [
            {
                "key": key.replace("__", "."),
                "value": {"intValue": str(value)}
                if isinstance(value, int)
                else {"stringValue": value},
            }
            for key, value in attributes.items()
        ],
    }


def test_a29_a_span_with_exclusive_input_never_goes_negative(tmp_path: Path) -> None:
    span = _span(
        gen_ai__operation__name="chat",
        gen_ai__system="aws.bedrock",
        gen_ai__request__model="anthropic.claude-sonnet-4-5-20250929-v1:0",
        gen_ai__usage__input_tokens=12,
        gen_ai__usage__cache_read_input_tokens=4_000,
        gen_ai__usage__output_tokens=9,
    )
    spans = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "x"}, "spans": [span]}]}]}
    found = bill(tmp_path, lines(tmp_path / "spans.jsonl", [spans]))
    assert (found.fresh, found.read, found.out) == (12, 4_000, 9)
    assert found.problems["input_without_cache"] == 1


@pytest.mark.parametrize("place", ["beside", "inside"])
def test_a30_openrouter_writes_are_read_from_either_place(tmp_path: Path, place: str) -> None:
    details: dict[str, Any] = {"cached_tokens": 1_000}
    usage: dict[str, Any] = {
        "prompt_tokens": 9_000,
        "completion_tokens": 10,
        "total_tokens": 9_010,
        "prompt_tokens_details": details,
    }
    if place == "beside":
        usage["cache_creation_input_tokens"] = 7_500
    else:
        details["cache_write_tokens"] = 7_500
    body = {
        "id": "gen-1",
        "model": "anthropic/claude-sonnet-4.5",
        "choices": [{"message": {"content": "y"}, "finish_reason": "stop"}],
        "usage": usage,
    }
    url = "https://openrouter.ai/api/v1/chat/completions"
    for model in ("anthropic/claude-sonnet-4.5", "openrouter/auto"):
        found = bill(tmp_path, capture(tmp_path / "c.jsonl", body, url=url, model=model))
        _openrouter_bill(found)


def _openrouter_bill(found: Bill) -> None:
    assert found.parts == (500, 1_000, 7_500, 10)
    assert found.total == 9_000
    # 3, 0.3, 3.75 and 15 for a million tokens.
    assert found.cost == Decimal("0.030075")


def test_a31_hits_and_misses_have_each_their_price(tmp_path: Path) -> None:
    rates = {"uncached": "0.28", "read": "0.028", "output": "0.42"}
    options = prices(tmp_path, "deepseek", "deepseek-chat", **rates)
    usage = {
        "prompt_tokens": 1_000,
        "completion_tokens": 100,
        "total_tokens": 1_100,
        "prompt_cache_hit_tokens": 896,
        "prompt_cache_miss_tokens": 104,
        "prompt_tokens_details": {"cached_tokens": 896},
    }
    body = {
        "id": "x1",
        "model": "deepseek-chat",
        "choices": [{"message": {"content": "y"}, "finish_reason": "stop"}],
        "usage": usage,
    }
    url = "https://api.deepseek.com/chat/completions"
    file = capture(tmp_path / "c.jsonl", body, url=url, model="deepseek-chat")
    found = bill(tmp_path, file, options=options)
    assert found.parts == (104, 896, 0, 100)
    expected = 104 * Decimal("0.28") + 896 * Decimal("0.028") + 100 * Decimal("0.42")
    assert found.cost == expected / 1_000_000


def _rollout(*totals: int, ident: str, forked: str | None = None, second: int = 0) -> list[Any]:
    meta = {"id": ident, "timestamp": "2026-10-05T09:59:59.000Z", "cwd": "/x"}
    if forked is not None:
        meta["forked_from_id"] = forked
    rows: list[Any] = [
        {"timestamp": "2026-10-05T09:59:59.000Z", "type": "session_meta", "payload": meta},
        {
            "timestamp": "2026-10-05T09:59:59.500Z",
            "type": "turn_context",
            "payload": {"model": "gpt-5.2-codex"},
        },
    ]
    before = 0
    for number, total in enumerate(totals):
        counts = {"cached_input_tokens": 0, "output_tokens": 0, "reasoning_output_tokens": 0}
        info = {
            "total_token_usage": {**counts, "input_tokens": total, "total_tokens": total},
            "last_token_usage": {
                **counts,
                "input_tokens": total - before,
                "total_tokens": total - before,
            },
        }
        before = total
        rows.append(
            {
                "timestamp": f"2026-10-05T10:00:{second + number:02d}.000Z",
                "type": "event_msg",
                "payload": {"type": "token_count", "info": info},
            }
        )
    return rows


def test_a33_a_fork_counts_its_history_once(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    lines(folder / "rollout-a.jsonl", _rollout(60, 100, ident="a"))
    lines(folder / "rollout-b.jsonl", _rollout(60, 100, 150, ident="b", forked="a"))
    found = bill(tmp_path, folder)
    assert found.total == 150


def test_a36_cached_tokens_are_inside_the_prompt(tmp_path: Path) -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "total_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 5},
    }
    body = {
        "id": "chatcmpl-1",
        "model": "gpt-4.1",
        "choices": [{"message": {"content": "y"}, "finish_reason": "stop"}],
        "usage": usage,
    }
    url = "https://api.openai.com/v1/chat/completions"
    found = bill(tmp_path, capture(tmp_path / "c.jsonl", body, url=url))
    assert found.parts == (5, 5, 0, 20)
    assert found.total is not None
    assert found.out is not None
    assert found.total + found.out == 30


def test_a37_null_in_a_delta_keeps_what_was_said_before(tmp_path: Path) -> None:
    nulls = {
        "input_tokens": None,
        "cache_creation_input_tokens": None,
        "cache_read_input_tokens": None,
        "output_tokens": 15,
    }
    text = stream(started(messages_usage(8, 300, 20, 1)), ended(nulls), STOP)
    found = bill(tmp_path, capture(tmp_path / "c.jsonl", text))
    assert found.parts == (8, 300, 20, 15)
    # Never reported at all is not the same as zero.
    unknown = {"input_tokens": 8, "cache_read_input_tokens": None, "output_tokens": 1}
    found = bill(tmp_path, capture(tmp_path / "n.jsonl", stream(started(unknown), ended(nulls))))
    assert (found.total, found.read, found.fresh) == (8, None, None)


def test_a38_cached_text_is_inside_the_prompt_and_thoughts_are_output(tmp_path: Path) -> None:
    usage = {
        "promptTokenCount": 5_000,
        "cachedContentTokenCount": 4_096,
        "candidatesTokenCount": 200,
        "thoughtsTokenCount": 300,
        "totalTokenCount": 5_500,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 5_000}],
        "cacheTokensDetails": [{"modality": "TEXT", "tokenCount": 4_096}],
    }
    body = {
        "candidates": [{"content": {"parts": [{"text": "y"}]}, "finishReason": "STOP"}],
        "modelVersion": "gemini-2.5-pro",
        "responseId": "x1",
        "usageMetadata": usage,
    }
    url = "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent"
    request = {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}
    found = bill(tmp_path, capture(tmp_path / "c.jsonl", body, url=url, request=request))
    assert found.parts == (904, 4_096, 0, 500)
    # 1.25, 0.125 and 10 for a million tokens.
    assert found.cost == Decimal("0.001130") + Decimal("0.000512") + Decimal("0.005")


def test_a39_a_local_server_that_does_not_say_is_unknown(tmp_path: Path) -> None:
    url = "http://127.0.0.1:8000/v1/messages"
    null = {
        "input_tokens": 100,
        "cache_read_input_tokens": None,
        "cache_creation_input_tokens": None,
        "output_tokens": 7,
    }
    absent = {"input_tokens": 100, "output_tokens": 7}
    for number, usage in enumerate((null, absent)):
        body = answer("msg_1", usage, model="qwen3-8b")
        found = bill(tmp_path, capture(tmp_path / f"{number}.jsonl", body, url=url))
        assert (found.total, found.fresh, found.read, found.out) == (100, None, None, 7)
    said = {
        "input_tokens": 36,
        "cache_read_input_tokens": 64,
        "cache_creation_input_tokens": 0,
        "output_tokens": 7,
    }
    body = answer("msg_1", said, model="qwen3-8b")
    found = bill(tmp_path, capture(tmp_path / "said.jsonl", body, url=url))
    assert found.parts == (36, 64, 0, 7)
    assert (found.total, found.w5, found.w1) == (100, found.w5, None)


def test_every_row_of_the_accounting_cases_is_here(shared: Path) -> None:
    text = (shared / "cases" / "bugbank.md").read_text()
    section = text.split("## 4. ")[1].split("## 5. ")[0]
    rows = {line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| A")}
    assert len(rows) == 21
    named = {name.split("_")[1].upper() for name in globals() if name.startswith("test_a")}
    assert rows <= named


def test_a_side_line_that_repeats_its_parent_is_paid_for_once(tmp_path: Path) -> None:
    usage = messages_usage(3, 1_000, 50, 9)
    parent = [transcript_line(ident, usage) for ident in ("m1", "m2")]
    side = {"isSidechain": True, "agentId": "a1"}
    repeated = transcript_line("m2", usage, requestId="req_other", uuid="c", **side)
    own = transcript_line("m3", messages_usage(1, 2, 3, 4), uuid="o", **side)
    inline = lines(tmp_path / "inline" / "s1.jsonl", [*parent, repeated, own])
    lines(tmp_path / "apart" / "s1.jsonl", parent)
    lines(tmp_path / "apart" / "s1" / "subagents" / "agent-a1.jsonl", [repeated, own])
    for path in (inline, tmp_path / "apart"):
        found = bill(tmp_path, path)
        assert found.parts == (7, 2_002, 103, 22)
        assert found.calls == 3
        assert found.problems["repeated_calls_left_out"] == 1
        url = f"sqlite:///{tmp_path / path.parent.name}.db"
        assert run(tmp_path, "import", str(path), "--db", url).exit_code == 0
        assert bill(tmp_path, options=("--db", url)).parts == (7, 2_002, 103, 22)


def test_a_period_says_what_it_left_out_for_want_of_a_date(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "start,model,total_input,cache_read,output\n00:05,claude-opus-4-8,10,0,1\n"
    )
    dated = tmp_path / "dated.csv"
    dated.write_text(
        f"started_at,model,total_input,cache_read,output\n{WHEN},claude-opus-4-8,7,0,1\n"
    )
    options = ("--until", "2026-11-01")
    found = bill(tmp_path, dated, tmp_path / "log.csv", options=options)
    assert found.total == 7
    assert found.problems["undated_calls_left_out"] == 1

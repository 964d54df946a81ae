"""Accounting cases, continued: spans, gateways, forks, local servers, and what is beside them."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cases.bills import (
    STOP,
    WHEN,
    Bill,
    answer,
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
    folder = Path(__file__).parent
    source = "".join(path.read_text() for path in folder.glob("test_accounting*.py"))
    named = {name.upper() for name in re.findall(r"^def test_(a\d+)_", source, re.MULTILINE)}
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

"""Spend logs of the LiteLLM proxy."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.ingest.detect import head_of
from cacheaudit.ingest.sources.litellm import SOURCE
from tests.unit.ingest.wire_samples import SECRET, WIRE, lines, parts, read, request


def row(**more: Any) -> dict[str, Any]:
    return {
        "request_id": "r1",
        "call_type": "acompletion",
        "spend": 0.5,
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "total_tokens": 107,
        "startTime": "2026-09-01 10:00:00.250",
        "endTime": "2026-09-01 10:00:02",
        "model": "claude-opus-5",
        "custom_llm_provider": "anthropic",
        "session_id": "s",
        "metadata": {},
        **more,
    }


@pytest.mark.parametrize("name", ["litellm.csv", "litellm.jsonl"])
def test_both_exports_give_the_same_calls(name: str) -> None:
    calls, problems = read(SOURCE, WIRE / name)
    assert [c.id for c in calls] == ["r1", "r2", "r4"]
    assert parts(calls[0]) == (4, 0, None, None, 2455, 1)
    assert parts(calls[1]) == (4, 2455, None, None, 0, 23)
    assert calls[2].usage is None
    assert calls[2].error is not None
    assert (calls[2].error.type, calls[2].error.status) == ("RateLimitError", 429)
    assert [c.reported_cost for c in calls] == [
        Decimal("0.0024616"),
        Decimal("0.000292"),
        Decimal("0.0"),
    ]
    assert {(c.session, c.provider, c.surface) for c in calls} == {
        ("lite-1", "anthropic", "claude_api")
    }
    first = calls[0]
    assert (first.started_at, first.first_token_at, first.ended_at) == (
        1_788_256_800.0,
        1_788_256_801.5,
        1_788_256_804.0,
    )
    assert calls[1].first_token_at is None
    assert problems == {"answered_by_gateway": 1, "write_ttl_assumed": 1}
    assert all(SECRET not in repr(call) for call in calls)


def test_the_prompt_count_includes_the_cache(tmp_path: Path) -> None:
    usage = {
        "prompt_tokens": 27147,
        "completion_tokens": 351,
        "total_tokens": 27498,
        "prompt_tokens_details": {"cached_tokens": 27146},
    }
    path = lines(tmp_path / "l.jsonl", [row(prompt_tokens=27147, metadata={"usage_object": usage})])
    calls, problems = read(SOURCE, path)
    assert parts(calls[0]) == (1, 27146, None, None, None, 351)
    assert problems == {}


def test_a_row_without_usage_object_knows_no_split(tmp_path: Path) -> None:
    calls, problems = read(SOURCE, lines(tmp_path / "l.jsonl", [row()]))
    usage = calls[0].usage
    assert usage is not None
    assert (usage.total_input, usage.cache_read, usage.uncached_input) == (100, None, None)
    assert problems == {"cache_split_unknown": 1}


def test_older_rows_keep_cache_counts_beside_the_columns(tmp_path: Path) -> None:
    metadata = {
        "additional_usage_values": {
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 30,
        }
    }
    calls, _ = read(SOURCE, lines(tmp_path / "l.jsonl", [row(metadata=json.dumps(metadata))]))
    assert parts(calls[0]) == (10, 60, None, None, 30, 7)


def test_stored_requests_become_prompts_and_cut_ones_are_counted(tmp_path: Path) -> None:
    cut = request("One? ... (litellm_truncated 900 chars)")
    path = lines(
        tmp_path / "l.jsonl",
        [
            row(request_id="a", proxy_server_request=request("One?")),
            row(request_id="b", proxy_server_request=json.dumps(request("One?", "Yes.", "Two?"))),
            row(request_id="c", proxy_server_request=cut),
        ],
    )
    calls, problems = read(SOURCE, path)
    one, two = calls[0].prompt, calls[1].prompt
    assert one is not None
    assert two is not None
    assert two.prefix_digests[: len(one.blocks)] == one.prefix_digests
    assert calls[2].prompt is None
    assert problems["truncated_body"] == 1


def test_surfaces(tmp_path: Path) -> None:
    rows = [
        row(
            request_id="1", custom_llm_provider="bedrock", model="us.anthropic.claude-opus-4-8-v1:0"
        ),
        row(request_id="2", custom_llm_provider="vertex_ai", model="claude-opus-5@20260701"),
        row(request_id="3", custom_llm_provider="hosted_vllm", model="qwen3-coder"),
        row(request_id="4", custom_llm_provider="", model="gemini/gemini-3.8-flash"),
    ]
    calls, _ = read(SOURCE, lines(tmp_path / "l.jsonl", rows))
    assert [(c.provider, c.surface) for c in calls] == [
        ("anthropic", "bedrock"),
        ("anthropic", "google_cloud"),
        ("local", "local"),
        ("gemini", "gemini_api"),
    ]


def test_damage_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "l.jsonl",
        [
            row(request_id="a"),
            '{"request_id": "b", "spend"',
            "3",
            row(request_id="c", prompt_tokens="many", startTime="noon", spend=[]),
            row(request_id="d", prompt_tokens=-5),
            row(request_id="e", metadata="{not json"),
            row(request_id="f", prompt_tokens=0, completion_tokens=0),
            row(request_id="g"),
        ],
    )
    calls, problems = read(SOURCE, path)
    assert [c.id for c in calls] == ["a", "c", "d", "e", "f", "g"]
    assert calls[1].started_at is None
    assert problems.pop("cache_split_unknown") >= 3
    assert problems == {
        "truncated_line": 1,
        "wrong_type": 4,  # the line, the count, the time, the amount
        "negative_part": 1,
        "missing_usage": 1,
    }


def test_other_logs_are_not_claimed(tmp_path: Path) -> None:
    path = lines(tmp_path / "l.jsonl", [{"prompt_tokens": 1, "completion_tokens": 2, "ts": 1}])
    assert SOURCE.detect(head_of(path)) == 0

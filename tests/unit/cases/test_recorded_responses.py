"""The recorded responses of the formats note, through every kind of recording that holds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.unit.cases.bills import (
    STOP,
    WHEN,
    answer,
    bill,
    ended,
    lines,
    messages_usage,
    started,
    stream,
)

ANTHROPIC = "https://api.anthropic.com/v1/messages"
BEDROCK = "https://bedrock-runtime.us-east-1.amazonaws.com/model/{model}/converse"
HAIKU = "us.anthropic.claude-haiku-4-5-20251001-v1:0"


class Case(msgspec.Struct, frozen=True):
    """Responses of one conversation and what they add up to: fresh, read, 5m, 1h, other, out."""

    url: str
    model: str
    responses: tuple[Any, ...]
    parts: tuple[int | None, ...]
    stated: int | None = None


def _split(w5: int, w1: int) -> dict[str, Any]:
    return {"cache_creation": {"ephemeral_5m_input_tokens": w5, "ephemeral_1h_input_tokens": w1}}


def _converse(fresh: int, read: int, write: int, out: int, **more: Any) -> dict[str, Any]:
    return {
        "output": {"message": {"role": "assistant", "content": [{"text": "y"}]}},
        "stopReason": "end_turn",
        "usage": {
            "inputTokens": fresh,
            "outputTokens": out,
            "totalTokens": fresh + read + write + out,
            "cacheReadInputTokens": read,
            "cacheReadInputTokenCount": read,
            "cacheWriteInputTokens": write,
            "cacheWriteInputTokenCount": write,
            **more,
        },
    }


def _chat(model: str, prompt: int, out: int, cached: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{cached}",
        "model": model,
        "choices": [{"message": {"role": "assistant", "content": "y"}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": out,
            "total_tokens": prompt + out,
            "prompt_tokens_details": {"cached_tokens": cached},
            **more,
        },
    }


def _stream(number: int, fresh: int, read: int, write: int, out: int) -> str:
    first = started(messages_usage(fresh, read, write, 1), f"msg_{number}")
    return stream(first, ended({"output_tokens": out}), STOP)


CASES = {
    "openllmetry anthropic stream": Case(
        ANTHROPIC,
        "claude-3-5-sonnet-20240620",
        (_stream(1, 4, 0, 1_167, 289), _stream(2, 4, 1_167, 0, 256)),
        (8, 1_167, None, None, 1_167, 545),
    ),
    "openllmetry bedrock": Case(
        BEDROCK,
        HAIKU,
        (_converse(4, 0, 18_131, 20), _converse(4, 18_131, 0, 50)),
        (8, 18_131, None, None, 18_131, 70),
    ),
    "ruby_llm anthropic": Case(
        ANTHROPIC,
        "claude-haiku-4-5-20251001",
        (
            answer("msg_1", messages_usage(10, 0, 7_351, 4, **_split(7_351, 0))),
            answer("msg_2", messages_usage(10, 7_351, 0, 4, **_split(0, 0))),
        ),
        (20, 7_351, 7_351, 0, None, 8),
    ),
    "ruby_llm bedrock": Case(
        BEDROCK,
        HAIKU,
        (_converse(10, 0, 7_351, 4, cacheDetails=[{"inputTokens": 7_351, "ttl": "5m"}]),),
        (10, 0, 7_351, None, None, 4),
        stated=7_365,
    ),
    "ruby_llm openai": Case(
        "https://api.openai.com/v1/chat/completions",
        "gpt-5.2",
        (_chat("gpt-5.2", 6_165, 5, 0), _chat("gpt-5.2", 6_165, 5, 6_016)),
        (6_165 + 149, 6_016, None, None, None, 10),
    ),
    "ruby_llm deepseek": Case(
        "https://api.deepseek.com/chat/completions",
        "deepseek-chat",
        (
            _chat(
                "deepseek-chat",
                359,
                25,
                256,
                prompt_cache_hit_tokens=256,
                prompt_cache_miss_tokens=103,
            ),
        ),
        (103, 256, None, None, None, 25),
    ),
    "dd-trace anthropic 1h": Case(
        ANTHROPIC,
        "claude-sonnet-4-5-20250929",
        (answer("msg_1", messages_usage(17, 0, 2_056, 100, **_split(0, 2_056))),),
        (17, 0, 0, 2_056, None, 100),
    ),
    "dd-trace bedrock": Case(
        BEDROCK,
        HAIKU,
        (_converse(11, 0, 1_028, 264), _converse(12, 1_028, 0, 185)),
        (23, 1_028, None, None, 1_028, 449),
        stated=1_303 + 1_225,
    ),
    "pydantic-ai anthropic": Case(
        ANTHROPIC,
        "claude-sonnet-4-5",
        (
            answer("msg_1", messages_usage(3, 1_111, 0, 406, **_split(0, 0))),
            answer("msg_2", messages_usage(3, 1_111, 418, 33, **_split(418, 0))),
        ),
        (6, 2_222, 418, 0, None, 439),
    ),
}


def _request(case: Case) -> dict[str, Any]:
    if case.url == BEDROCK:
        return {"messages": [{"role": "user", "content": [{"text": "x"}]}]}
    return {"model": case.model, "messages": [{"role": "user", "content": "x"}]}


def _text(response: Any) -> str:
    return response if isinstance(response, str) else json.dumps(response)


def _capture(case: Case, path: Path) -> Path:
    url = case.url.format(model=case.model)
    return lines(
        path / "capture.jsonl",
        [
            {
                "ts": WHEN,
                "request": {"method": "POST", "url": url, "body": _request(case)},
                "response": {"status": 200, "body": response},
            }
            for response in case.responses
        ],
    )


def _archive(case: Case, path: Path) -> Path:
    entries = [
        {
            "startedDateTime": WHEN,
            "time": 100,
            "request": {
                "method": "POST",
                "url": case.url.format(model=case.model),
                "postData": {"mimeType": "application/json", "text": json.dumps(_request(case))},
            },
            "response": {"status": 200, "content": {"text": _text(response)}},
        }
        for response in case.responses
    ]
    file = path / "archive.har"
    file.write_text(json.dumps({"log": {"version": "1.2", "creator": {}, "entries": entries}}))
    return file


def _python_cassette(case: Case, path: Path) -> Path:
    interactions = [
        {
            "request": {
                "method": "POST",
                "uri": case.url.format(model=case.model),
                "headers": {"content-type": ["application/json"]},
                "body": json.dumps(_request(case)),
            },
            "response": {
                "status": {"code": 200, "message": "OK"},
                "headers": {"date": ["Mon, 05 Oct 2026 10:00:00 GMT"]},
                "body": {"string": _text(response)},
            },
        }
        for response in case.responses
    ]
    file = path / "cassette.yaml"
    file.write_text(yaml.safe_dump({"interactions": interactions, "version": 1}))
    return file


def _ruby_cassette(case: Case, path: Path) -> Path:
    interactions = [
        {
            "request": {
                "method": "post",
                "uri": case.url.format(model=case.model),
                "body": {"encoding": "UTF-8", "string": json.dumps(_request(case))},
                "headers": {},
            },
            "response": {
                "status": {"code": 200, "message": "OK"},
                "headers": {},
                "body": {"encoding": "UTF-8", "string": _text(response)},
            },
            "recorded_at": "Mon, 05 Oct 2026 10:00:00 GMT",
        }
        for response in case.responses
    ]
    file = path / "cassette.yml"
    file.write_text(yaml.safe_dump({"http_interactions": interactions, "recorded_with": "VCR"}))
    return file


@pytest.mark.parametrize("write", [_capture, _archive, _python_cassette, _ruby_cassette])
@pytest.mark.parametrize("name", CASES)
def test_a_recorded_response_totals_as_its_provider_counts(
    tmp_path: Path, name: str, write: Callable[[Case, Path], Path]
) -> None:
    case = CASES[name]
    found = bill(tmp_path, write(case, tmp_path))
    assert (found.fresh, found.read, found.w5, found.w1, found.other, found.out) == case.parts
    assert found.calls == len(case.responses)
    assert found.total == sum(part or 0 for part in case.parts[:-1])
    if case.stated is not None:
        assert (found.total or 0) + (found.out or 0) == case.stated
    assert not {"fields_disagree", "parts_differ_from_total"} & found.problems.keys()

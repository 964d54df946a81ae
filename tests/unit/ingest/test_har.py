"""HTTP archives."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.ingest.detect import head_of
from cacheaudit.ingest.sources.har import SOURCE
from cacheaudit.model.call import MissReason
from tests.unit.ingest.wire_samples import (
    SECRET,
    WIRE,
    examples,
    parts,
    read,
    request,
    response,
)

ANTHROPIC = "https://api.anthropic.com/v1/messages"


def entry(url: str, body: Any, got: Any, **more: Any) -> dict[str, Any]:
    text = body if isinstance(body, str) else json.dumps(body)
    answer = got if isinstance(got, dict) and "text" in got else {"text": json.dumps(got)}
    return {
        "startedDateTime": "2026-09-01T10:00:00.000Z",
        "time": 100,
        "request": {
            "method": "POST",
            "url": url,
            "headers": [],
            "postData": {"mimeType": "application/json", "text": text},
        },
        "response": {"status": 200, "headers": [], "content": answer},
        **more,
    }


def archive(path: Path, *entries: Any) -> Path:
    path.write_text(json.dumps({"log": {"version": "1.2", "entries": list(entries)}}))
    return path


def test_model_calls_are_read_and_all_else_is_passed_over() -> None:
    calls, problems = read(SOURCE, WIRE / "browser.har")
    assert [c.id for c in calls] == ["msg_har_1", "msg_har_2", "browser#5"]
    assert parts(calls[0]) == (4, 0, None, None, 1167, 289)
    assert parts(calls[1]) == (9, 1167, None, None, 300, 21)
    assert problems == {"write_ttl_assumed": 2}
    assert {(c.provider, c.surface) for c in calls} == {("anthropic", "claude_api")}
    first = calls[0]
    assert (first.started_at, first.first_token_at, first.ended_at) == (
        1_790_848_801.0,
        1_790_848_801.5,
        1_790_848_803.5,
    )
    assert calls[1].diagnostics == MissReason("none")
    error = calls[2].error
    assert error is not None
    assert (error.type, error.status) == ("overloaded_error", 529)
    assert calls[2].usage is None
    assert calls[0].extra == {"anthropic-beta": "cache-diagnosis-2026-04-07"}
    assert first.client == "example-agent/1.0"


def test_no_credential_leaves_the_reader() -> None:
    assert SECRET in (WIRE / "browser.har").read_text()
    calls, _ = read(SOURCE, WIRE / "browser.har")
    assert all(SECRET not in repr(call) for call in calls)


@pytest.mark.parametrize(
    ("url", "provider", "surface"),
    [
        ("https://api.anthropic.com/v1/messages?beta=true", "anthropic", "claude_api"),
        (
            "https://bedrock-runtime.eu-west-1.amazonaws.com/model/eu.anthropic.claude-opus-4-8/invoke",
            "anthropic",
            "bedrock",
        ),
        (
            "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-5:rawPredict",
            "anthropic",
            "google_cloud",
        ),
        ("https://my.services.ai.azure.com/anthropic/v1/messages", "anthropic", "foundry"),
        ("http://127.0.0.1:8080/v1/messages", "anthropic", "other"),
        ("https://api.deepseek.com/anthropic/v1/messages", "deepseek", "deepseek"),
        ("https://openrouter.ai/api/v1/messages", "anthropic", "openrouter"),
        ("https://gateway.example/v1/messages", "anthropic", "other"),
    ],
)
def test_endpoints_of_the_messages_api(
    tmp_path: Path, url: str, provider: str, surface: str
) -> None:
    sent = request("One?", anthropic_version="bedrock-2023-05-31")
    calls, problems = read(SOURCE, archive(tmp_path / "a.har", entry(url, sent, response("m"))))
    assert [(c.provider, c.surface) for c in calls] == [(provider, surface)]
    assert calls[0].prompt is not None
    assert problems == {}


@pytest.mark.parametrize(
    ("url", "sent", "got", "expected"),
    [
        (
            "https://api.openai.com/v1/responses",
            {"model": "gpt-5.6-sol", "input": "One?"},
            {
                "id": "resp_1",
                "status": "completed",
                "usage": {
                    "input_tokens": 100,
                    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
                    "output_tokens": 7,
                    "total_tokens": 107,
                },
            },
            ("openai", "openai", "gpt-5.6-sol", (10, 60, None, None, 30, 7)),
        ),
        (
            "https://x.openai.azure.com/openai/deployments/gpt-5.2/chat/completions?api-version=1",
            {"messages": [{"role": "user", "content": "One?"}]},
            {
                "id": "c",
                "usage": {
                    "prompt_tokens": 100,
                    "completion_tokens": 7,
                    "prompt_tokens_details": {"cached_tokens": 64},
                },
            },
            ("openai", "azure", "gpt-5.2", (36, 64, None, None, None, 7)),
        ),
        (
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-3.8-flash:generateContent?key=sk-ant-not-a-real-key",
            {"contents": [{"role": "user", "parts": [{"text": "One?"}]}]},
            {
                "responseId": "g",
                "candidates": [],
                "usageMetadata": {
                    "promptTokenCount": 100,
                    "cachedContentTokenCount": 80,
                    "candidatesTokenCount": 5,
                    "thoughtsTokenCount": 3,
                    "totalTokenCount": 108,
                },
            },
            ("gemini", "gemini_api", "gemini-3.8-flash", (20, 80, None, None, None, 8)),
        ),
        (
            "https://api.deepseek.com/chat/completions",
            {"model": "deepseek-chat", "messages": [{"role": "user", "content": "One?"}]},
            {
                "id": "d",
                "usage": {
                    "prompt_tokens": 359,
                    "completion_tokens": 25,
                    "prompt_cache_hit_tokens": 256,
                    "prompt_cache_miss_tokens": 103,
                },
            },
            ("deepseek", "deepseek", "deepseek-chat", (103, 256, None, None, None, 25)),
        ),
    ],
)
def test_other_apis(
    tmp_path: Path, url: str, sent: Any, got: Any, expected: tuple[Any, ...]
) -> None:
    calls, _ = read(SOURCE, archive(tmp_path / "a.har", entry(url, sent, got)))
    (call,) = calls
    assert (call.provider, call.surface, call.model, parts(call)) == expected
    assert call.prompt is not None
    assert call.prompt.tokens == call.usage.total_input if call.usage else False
    assert SECRET not in repr(call)


def test_a_compressed_body_is_unpacked(tmp_path: Path) -> None:
    packed = zlib.compressobj(wbits=31)
    raw = packed.compress(json.dumps(response("m", input_tokens=77)).encode()) + packed.flush()
    content = {"encoding": "base64", "text": base64.b64encode(raw).decode()}
    path = archive(tmp_path / "a.har", entry(ANTHROPIC, request("One?"), content))
    calls, problems = read(SOURCE, path)
    assert parts(calls[0])[0] == 77
    assert problems == {}


def test_a_request_compressed_with_zstandard(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    raw = zstandard.ZstdCompressor().compress(json.dumps(request("One?", "Yes.", "Two?")).encode())
    sent = entry(ANTHROPIC, base64.b64encode(raw).decode(), response("m"))
    sent["request"]["postData"]["encoding"] = "base64"
    calls, problems = read(SOURCE, archive(tmp_path / "a.har", sent))
    prompt = calls[0].prompt
    assert prompt is not None
    assert len(prompt.at_level("messages")) == 3
    assert problems == {}


def test_the_session_comes_from_the_client(tmp_path: Path) -> None:
    named = request("One?", metadata={"user_id": "user_ab_account_cd_session_ef-1"})
    as_json = request("One?", metadata={"user_id": '{"session_id": "ef-2", "device_id": "x"}'})
    by_header = entry(ANTHROPIC, request("One?"), response("m3"))
    by_header["request"]["headers"] = [{"name": "X-Claude-Code-Session-Id", "value": "ef-3"}]
    path = archive(
        tmp_path / "a.har",
        entry(ANTHROPIC, named, response("m1")),
        entry(ANTHROPIC, as_json, response("m2")),
        by_header,
        entry(ANTHROPIC, request("One?"), response("m4")),
    )
    calls, _ = read(SOURCE, path)
    assert [c.session for c in calls] == ["ef-1", "ef-2", "ef-3", "a"]


def test_retries_and_warm_ups_are_named(tmp_path: Path) -> None:
    again = entry(ANTHROPIC, request("One?"), response("m1"))
    again["request"]["headers"] = [{"name": "X-Stainless-Retry-Count", "value": "2"}]
    warm = entry(ANTHROPIC, request("One?", max_tokens=0), response("m2"))
    calls, _ = read(SOURCE, archive(tmp_path / "a.har", again, warm))
    assert [(c.purpose, c.attempt) for c in calls] == [("retry", 2), ("warm_up", 0)]


def test_damage_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    cut = base64.b64encode(b"\x1f\x8b\x08\x00damaged").decode()
    path = archive(
        tmp_path / "a.har",
        entry(ANTHROPIC, request("One?"), response("m1")),
        "no entry",
        {"startedDateTime": 1},
        entry(ANTHROPIC, '{"cut', response("m2")),
        entry(ANTHROPIC, request("One?"), {"encoding": "base64", "text": cut}),
        entry(ANTHROPIC, {"messages": [7]}, response("m3")),
        entry(ANTHROPIC, request("One?"), response("m4", input_tokens=-1)),
        entry(ANTHROPIC, request("One?"), {"id": "m5"}, startedDateTime="yesterday"),
        entry(ANTHROPIC, request("One?"), response("m6")),
    )
    calls, problems = read(SOURCE, path)
    assert [c.id for c in calls] == ["m1", "m2", "a#5", "m3", "m4", "m5", "m6"]
    assert parts(calls[-1]) == (3, 0, None, None, 0, 9)
    assert problems == {
        "wrong_type": 3,
        "invalid_json": 1,
        "unreadable_body": 1,
        "bad_body": 1,
        "negative_part": 1,
        "missing_usage": 1,
    }
    assert examples(SOURCE, path, "invalid_json") == (f"{path}:4: request body",)


def test_whole_entries_of_a_truncated_archive_are_read(tmp_path: Path) -> None:
    whole = archive(
        tmp_path / "a.har",
        *(entry(ANTHROPIC, request("One {[?"), response(f"m{i}")) for i in range(4)),
    )
    data = whole.read_bytes()
    path = tmp_path / "cut.har"
    path.write_bytes(data[: len(data) - len(data) // 8])
    calls, problems = read(SOURCE, path)
    assert [c.id for c in calls] == ["m0", "m1", "m2"]
    assert problems == {"truncated_document": 1}
    assert SOURCE.detect(head_of(path)) == 90


def test_deep_nesting_costs_one_document_only(tmp_path: Path) -> None:
    good = json.dumps(entry(ANTHROPIC, request("One?"), response("m1")))
    bad = '{"a":' * 50_000 + "1" + "}" * 50_000
    path = tmp_path / "a.har"
    path.write_text('{"log": {"entries": [' + f"{good}, {bad}, {good}" + "]}}")
    calls, problems = read(SOURCE, path)
    assert [c.id for c in calls] == ["m1", "m1"]
    assert sum(problems.values()) == 2


def test_other_encodings(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a.har", entry(ANTHROPIC, request("One?"), response("m1")))
    for name, data in (
        ("bom.har", b"\xef\xbb\xbf" + whole.read_bytes()),
        ("wide.har", whole.read_text().encode("utf-16")),
        ("bad.har", whole.read_bytes().replace(b"One?", b"On\xff?")),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        calls, problems = read(SOURCE, path)
        assert [c.id for c in calls] == ["m1"], name
        assert problems == ({} if name == "bom.har" else {"encoding": 1}), name

"""Streams of every API: usage, identity, content, errors, and what an aborted one keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.dialects.stream import StreamMerger, StreamResult, merge_usage
from cacheaudit.model.call import MissReason
from cacheaudit.model.usage import FLAG_OUTPUT_LOWER_BOUND


def fed(events: list[dict[str, Any]], **arguments: Any) -> StreamResult:
    merger = StreamMerger(**arguments)
    for event in events:
        merger.feed(event)
    return merger.result()


def start(**usage: Any) -> dict[str, Any]:
    message = {
        "id": "msg_1",
        "model": "claude-opus-5",
        "role": "assistant",
        "content": [],
        "diagnostics": {"cache_miss_reason": None},
        "usage": {"output_tokens": 1, **usage},
    }
    return {"type": "message_start", "message": message}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


MESSAGES: list[dict[str, Any]] = [
    start(
        input_tokens=2679,
        cache_read_input_tokens=100,
        cache_creation_input_tokens=40,
        cache_creation={"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 40},
    ),
    {"type": "ping"},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    delta(0, "thinking_delta", thinking="so "),
    delta(0, "thinking_delta", thinking="then"),
    delta(0, "signature_delta", signature="sig"),
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    delta(1, "text_delta", text="Hel"),
    delta(1, "text_delta", text="lo"),
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}},
    },
    delta(2, "input_json_delta", partial_json=""),
    delta(2, "input_json_delta", partial_json='{"z": 1, '),
    delta(2, "input_json_delta", partial_json='"a": 2}'),
    {"type": "content_block_stop", "index": 2},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {
            "input_tokens": 10682,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 90,
            "output_tokens": 510,
            "server_tool_use": {"web_search_requests": 1},
        },
    },
    {"type": "message_stop"},
]


def test_messages_stream() -> None:
    result = fed(MESSAGES)
    assert (result.id, result.model, result.stop_reason) == ("msg_1", "claude-opus-5", "tool_use")
    assert result.complete
    assert result.diagnostics == MissReason("pending")
    assert result.content == (
        {"type": "thinking", "thinking": "so then", "signature": "sig"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"z": 1, "a": 2}},
    )
    assert list(result.content[2]["input"]) == ["z", "a"]
    usage = result.normalised()
    assert usage is not None
    assert (usage.uncached_input, usage.cache_read, usage.output) == (10682, 100, 510)
    # What grew in mid-stream was written by a server tool, for five minutes.
    assert (usage.write_5m, usage.write_1h, usage.web_searches) == (50, 40, 1)
    assert (usage.total_input, usage.flags) == (10682 + 100 + 90, ())


def test_growth_is_counted_once_however_many_deltas_repeat_it() -> None:
    repeated = {
        "type": "message_delta",
        "delta": {},
        "usage": {"cache_creation_input_tokens": 90, "output_tokens": 400},
    }
    usage = fed([MESSAGES[0], repeated, repeated, *MESSAGES[1:]]).normalised()
    assert usage is not None
    assert (usage.write_5m, usage.write_1h, usage.flags) == (50, 40, ())


def test_an_aborted_stream_keeps_what_it_has() -> None:
    result = fed(MESSAGES[:14])
    assert not result.complete
    assert result.content[2] == {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "Read",
        "input": {},
        "partial_json": '{"z": 1, ',
    }
    usage = result.normalised()
    assert usage is not None
    assert usage.flags == (FLAG_OUTPUT_LOWER_BOUND,)
    assert (usage.output, usage.total_input, usage.write_1h) == (1, 2819, 40)


def test_an_error_event_ends_it() -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    result = fed([*MESSAGES[:10], overloaded])
    assert result.error is not None
    assert (result.error.type, result.error.message) == ("overloaded_error", "busy")
    usage = result.normalised()
    assert usage is not None
    assert FLAG_OUTPUT_LOWER_BOUND in usage.flags


def test_null_diagnostics_mean_no_divergence_only_where_one_was_looked_for() -> None:
    opening = start(input_tokens=1)
    opening["message"]["diagnostics"] = None
    asked = {"diagnostics": {"previous_message_id": "msg_0"}}
    assert fed([opening], request=asked).diagnostics == MissReason("none")
    first = {"diagnostics": {"previous_message_id": None}}
    assert fed([opening], request=first).diagnostics is None
    assert fed([opening]).diagnostics is None


def chunk(delta: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": None}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "gpt-6.1-sol",
        "choices": choices,
        "usage": None,
        **fields,
    }


CHAT = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hi"}),
    chunk({"content": " you"}),
    chunk(
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"b":'}}]}
    ),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
    {**chunk(), "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    chunk(
        usage={
            "prompt_tokens": 100,
            "completion_tokens": 9,
            "total_tokens": 109,
            "prompt_tokens_details": {"cached_tokens": 64},
        }
    ),
]


def test_chat_stream_has_usage_in_the_last_chunk() -> None:
    result = fed(CHAT)
    assert (result.id, result.stop_reason, result.complete) == ("chatcmpl-1", "tool_calls", True)
    assert result.content == (
        {"type": "text", "text": "Hi you"},
        {"type": "tool_call", "id": "c1", "name": "f", "arguments": '{"b":1}'},
    )
    usage = result.normalised()
    assert usage is not None
    assert (usage.uncached_input, usage.cache_read, usage.output, usage.flags) == (36, 64, 9, ())


def test_an_aborted_chat_stream_knows_nothing_of_its_usage() -> None:
    result = fed(CHAT[:4])
    assert (result.usage, result.normalised(), result.complete) == (None, None, False)
    assert result.content[0] == {"type": "text", "text": "Hi you"}


def test_usage_in_every_chunk_replaces_and_does_not_add() -> None:
    running = [
        chunk({"content": "a"}, usage={"prompt_tokens": 50, "completion_tokens": n})
        for n in range(1, 6)
    ]
    usage = fed(running).normalised()
    assert usage is not None
    assert (usage.total_input, usage.output) == (50, 5)
    assert FLAG_OUTPUT_LOWER_BOUND in usage.flags


def test_responses_stream() -> None:
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text"}]}]
    done = {
        "id": "resp_1",
        "model": "gpt-6",
        "status": "completed",
        "output": output,
        "prompt_cache_diagnostics": {
            "type": "cache_miss",
            "reason": "tools_changed",
            "cache_missed_tokens": 900,
        },
        "usage": {
            "input_tokens": 1000,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 990},
            "output_tokens": 4,
            "total_tokens": 1004,
        },
    }
    created = {"type": "response.created", "response": {"id": "resp_1", "usage": None}}
    item = {"type": "response.output_item.done", "item": output[0]}
    result = fed([created, item, {"type": "response.completed", "response": done}])
    assert (result.id, result.stop_reason, result.complete) == ("resp_1", "completed", True)
    assert result.content == tuple(output)
    assert result.diagnostics == MissReason("tools_changed", 900)
    usage = result.normalised()
    assert usage is not None
    assert (usage.uncached_input, usage.write_other, usage.flags) == (10, 990, ())
    cut = fed([created, item])
    assert (cut.usage, cut.content, cut.complete) == (None, tuple(output), False)


def test_gemini_stream_takes_the_last_counts() -> None:
    def piece(text: str, **usage: int) -> dict[str, Any]:
        return {
            "responseId": "g1",
            "modelVersion": "gemini-3.8-flash",
            "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}],
            "usageMetadata": usage,
        }

    last = piece("!", promptTokenCount=900, candidatesTokenCount=7, cachedContentTokenCount=800)
    last["candidates"][0]["finishReason"] = "STOP"
    result = fed([piece("Hey", promptTokenCount=900), piece(" ho"), last])
    assert (result.id, result.stop_reason, result.complete) == ("g1", "STOP", True)
    assert result.content == ({"text": "Hey ho!"},)
    usage = result.normalised()
    assert usage is not None
    assert (usage.uncached_input, usage.cache_read, usage.output) == (100, 800, 7)


def test_converse_stream() -> None:
    events: list[dict[str, Any]] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hel"}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "lo"}}},
        {
            "contentBlockStart": {
                "contentBlockIndex": 1,
                "start": {"toolUse": {"toolUseId": "t1", "name": "f"}},
            }
        },
        {
            "contentBlockDelta": {
                "contentBlockIndex": 1,
                "delta": {"toolUse": {"input": '{"q": 1}'}},
            }
        },
        {"messageStop": {"stopReason": "tool_use"}},
        {
            "metadata": {
                "usage": {
                    "inputTokens": 4,
                    "outputTokens": 50,
                    "totalTokens": 18185,
                    "cacheReadInputTokens": 18131,
                    "cacheWriteInputTokens": 0,
                }
            }
        },
    ]
    result = fed(events)
    assert result.content == (
        {"text": "Hello"},
        {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"q": 1}}},
    )
    assert (result.stop_reason, result.complete) == ("tool_use", True)
    usage = result.normalised()
    assert usage is not None
    assert (usage.uncached_input, usage.cache_read, usage.total_input) == (4, 18131, 18135)
    failed = fed([*events[:3], {"throttlingException": {"message": "slow down"}}])
    assert failed.error is not None
    assert failed.error.type == "throttlingException"


VALUE = st.none() | st.integers(0, 1000)
RECORD = st.dictionaries(
    st.sampled_from("abc"), VALUE | st.dictionaries(st.sampled_from("xy"), VALUE)
)


@given(st.lists(RECORD, max_size=6))
def test_the_last_value_that_is_not_null_wins(records: list[dict[str, Any]]) -> None:
    merged: dict[str, Any] = {}
    for record in records:
        merge_usage(merged, record)
    for name in "abc":
        values = [r[name] for r in records if r.get(name) is not None]
        plain = [v for v in values if not isinstance(v, dict)]
        if values and not isinstance(values[-1], dict):
            assert merged[name] == values[-1]
        elif values and not plain:
            for key in "xy":
                inner = [v[key] for v in values if v.get(key) is not None]
                assert merged[name].get(key) == (inner[-1] if inner else None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
FIELDS = [
    "type",
    "message",
    "delta",
    "index",
    "content_block",
    "usage",
    "choices",
    "response",
    "item",
    "candidates",
    "usageMetadata",
    "metadata",
    "contentBlockDelta",
    "contentBlockStart",
    "messageStop",
    "error",
]
KINDS = [
    "message_start",
    "message_delta",
    "content_block_start",
    "content_block_delta",
    "message_stop",
    "response.completed",
    "response.output_item.done",
    "error",
]


@given(
    st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON | st.sampled_from(KINDS)), max_size=6)
)
def test_no_event_makes_merging_fail(events: list[dict[str, Any]]) -> None:
    result = fed(events)
    assert result.events == len(events)
    result.normalised()


@pytest.mark.parametrize("cut", range(len(MESSAGES)))
def test_every_beginning_of_a_stream_has_a_result(cut: int) -> None:
    result = fed(MESSAGES[:cut])
    assert result.complete == (cut >= len(MESSAGES) - 1)
    assert len(result.content) == sum(e["type"] == "content_block_start" for e in MESSAGES[:cut])

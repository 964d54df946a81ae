"""``POST /v1/chat/completions``: the same engine and rules with the inclusive form of usage."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from starlette.responses import JSONResponse, Response

from local_backend.server.chat_request import parse_chat
from local_backend.server.endpoint import Call, log_fault
from local_backend.server.errors import ApiError, error_body
from local_backend.server.limits import read_json, unless_gone
from local_backend.server.messages import EVICTED, diagnostics_of, engine_report
from local_backend.server.service import Opened, Service
from local_backend.server.speech import CallDelta, CallStart, Done, Said, Speech, TextDelta
from local_backend.server.sse import EventStream

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
_DONE = b"data: [DONE]\n\n"


async def create(service: Service, call: Call) -> Response:
    """Answer a request, at once or as a stream.

    Raises:
        ApiError: There is no answer.
    """
    chat = parse_chat(await read_json(call.http, service.settings))
    async with AsyncExitStack() as held:
        identity = service.new_id("chatcmpl-")
        opening = held.enter_async_context(service.open(chat.request, call.caller, identity))
        opened = await unless_gone(call.http, opening)
        said = Speech(opened, service.tokenizer, service.new_id).said()
        headers = {EVICTED: str(opened.outcome.evicted)}
        head = _head(service, opened)
        if not chat.request.stream:
            body = await unless_gone(call.http, _whole(service, opened, head, said))
            return JSONResponse(body, headers=headers)
        chunks = _chunks(service, opened, head, said, with_usage=chat.includes_usage)
        coded = _encoded(chunks, call.id)
        response = EventStream(service, call.http, held.pop_all(), coded, b": ping\n\n")
        response.headers.update(headers)
        return response


def usage_of(service: Service, opened: Opened, output_tokens: int) -> dict[str, Any]:
    """Usage where the prompt includes what was read and written."""
    outcome = opened.outcome
    usage: dict[str, Any] = {
        "prompt_tokens": outcome.total,
        "completion_tokens": output_tokens,
        "total_tokens": outcome.total + output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": outcome.read,
            "cache_write_tokens": outcome.written,
        },
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    if service.rules.name == "deepseek":
        usage["prompt_cache_hit_tokens"] = outcome.read
        usage["prompt_cache_miss_tokens"] = outcome.total - outcome.read
    return usage


def _head(service: Service, opened: Opened) -> dict[str, Any]:
    return {
        "id": opened.identity,
        "created": int(service.clock.now()),
        "model": opened.request.model,
        "service_tier": "default",
    }


async def _whole(
    service: Service, opened: Opened, head: dict[str, Any], said: AsyncIterator[Said]
) -> dict[str, Any]:
    text, calls, reason, spent = "", list[dict[str, Any]](), "stop", 0
    async for item in said:
        if isinstance(item, TextDelta):
            text += item.text
        elif isinstance(item, CallStart):
            calls.append(_call(item))
        elif isinstance(item, CallDelta):
            calls[-1]["function"]["arguments"] += item.json
        elif isinstance(item, Done):
            reason, spent = _REASONS[item.reason], item.output_tokens
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    else:
        message["content"] = text
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {
        **head,
        "object": "chat.completion",
        "choices": [choice],
        "usage": usage_of(service, opened, spent),
        "diagnostics": diagnostics_of(opened),
        "cacheaudit": engine_report(service, opened),
    }


async def _chunks(
    service: Service,
    opened: Opened,
    head: dict[str, Any],
    said: AsyncIterator[Said],
    *,
    with_usage: bool,
) -> AsyncIterator[dict[str, Any]]:
    base = {**head, "object": "chat.completion.chunk"}
    if with_usage:
        base["usage"] = None
    yield _chunk(base, {"role": "assistant", "content": "", "refusal": None})
    calls, spent = -1, 0
    async for item in said:
        if isinstance(item, TextDelta):
            yield _chunk(base, {"content": item.text})
        elif isinstance(item, CallStart):
            calls += 1
            yield _chunk(base, {"tool_calls": [{"index": calls, **_call(item)}]})
        elif isinstance(item, CallDelta):
            bit = {"index": calls, "function": {"arguments": item.json}}
            yield _chunk(base, {"tool_calls": [bit]})
        elif isinstance(item, Done):
            spent = item.output_tokens
            yield _chunk(base, {}, _REASONS[item.reason])
    if with_usage:
        yield {**base, "choices": [], "usage": usage_of(service, opened, spent)}


def _chunk(
    base: dict[str, Any], delta: dict[str, Any], reason: str | None = None
) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {**base, "choices": [choice]}


def _call(item: CallStart) -> dict[str, Any]:
    return {
        "id": item.id,
        "type": "function",
        "function": {"name": item.name, "arguments": ""},
    }


async def _encoded(chunks: AsyncIterator[dict[str, Any]], request_id: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield _encode(chunk)
        yield _DONE
    except ApiError as error:
        yield _encode(error_body(error, request_id))
    except Exception as error:
        log_fault(error, request_id)
        yield _encode(error_body(ApiError(500, "the server failed"), request_id))


def _encode(chunk: dict[str, Any]) -> bytes:
    data = json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))
    return f"data: {data}\n\n".encode("utf-8", errors="replace")

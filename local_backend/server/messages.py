"""``POST /v1/messages``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from starlette.responses import JSONResponse, Response

from local_backend.server.endpoint import Call, log_fault
from local_backend.server.errors import ApiError, error_body
from local_backend.server.limits import read_json, unless_gone
from local_backend.server.request import parse_request
from local_backend.server.service import Opened, Service
from local_backend.server.speech import CallDelta, CallStart, Done, Said, Speech, TextDelta
from local_backend.server.sse import EventStream

EVICTED = "x-cacheaudit-evicted-tokens"


async def create(service: Service, call: Call) -> Response:
    """Answer a request, at once or as a stream.

    Raises:
        ApiError: There is no answer.
    """
    request = parse_request(await read_json(call.http, service.settings))
    async with AsyncExitStack() as held:
        identity = service.new_id("msg_")
        opening = held.enter_async_context(service.open(request, call.caller, identity))
        opened = await unless_gone(call.http, opening)
        events = narrate(service, opened)
        headers = {EVICTED: str(opened.outcome.evicted)}
        if not request.stream:
            body = await unless_gone(call.http, _collected(events))
            return JSONResponse(body, headers=headers)
        chunks = _encoded(events, call.id)
        response = EventStream(
            service, call.http, held.pop_all(), chunks, _encode({"type": "ping"})
        )
        response.headers.update(headers)
        return response


async def narrate(service: Service, opened: Opened) -> AsyncIterator[dict[str, Any]]:
    """The events of an answer, as they stand in a stream."""
    yield {"type": "message_start", "message": _message(service, opened)}
    yield {"type": "ping"}
    speech = Speech(opened, service.tokenizer, service.new_id)
    index, kind = -1, ""
    async for item in speech.said():
        if isinstance(item, Done):
            if kind:
                yield {"type": "content_block_stop", "index": index}
            yield _message_delta(opened, item)
            break
        if isinstance(item, CallStart) or (isinstance(item, TextDelta) and kind != "text"):
            if kind:
                yield {"type": "content_block_stop", "index": index}
            index, block = index + 1, _block(item)
            kind = block["type"]
            yield {"type": "content_block_start", "index": index, "content_block": block}
        if (delta := _delta(item)) is not None:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "message_stop"}


def usage_of(opened: Opened, output_tokens: int) -> dict[str, Any]:
    """Usage in disjoint parts."""
    outcome = opened.outcome
    return {
        "input_tokens": outcome.uncached,
        "cache_creation_input_tokens": outcome.written,
        "cache_read_input_tokens": outcome.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": outcome.writes.get("5m", 0),
            "ephemeral_1h_input_tokens": outcome.writes.get("1h", 0),
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def diagnostics_of(opened: Opened) -> dict[str, Any] | None:
    """What the client asked to be told of its cache; None for nothing to tell."""
    if not opened.request.diagnosed:
        return None
    found, evicted = opened.diagnosis, opened.outcome.evicted
    if found is None and not evicted:
        return None
    reason: dict[str, Any] = {"type": found.type if found else "unavailable"}
    if found is not None and found.missed is not None:
        reason["cache_missed_input_tokens"] = found.missed
    told: dict[str, Any] = {"cache_miss_reason": reason}
    if evicted:
        told["evicted_input_tokens"] = evicted
    return told


def engine_report(service: Service, opened: Opened) -> dict[str, Any]:
    """What only this server can tell: the engine's side, and why not more was read."""
    outcome, started = opened.outcome, opened.started
    used = started.usage
    return {
        "rules": service.rules.name,
        "miss": None if outcome.miss is None else outcome.miss.value,
        "evicted_input_tokens": outcome.evicted,
        "template_drift": opened.rendered.drifts,
        "engine": {
            "prompt_tokens": used.prompt,
            "hit_tokens": used.hit,
            "computed_tokens": used.computed,
            "joined_tokens": used.joined,
            "restored_tokens": used.restored,
            "restore_seconds": used.restore_s,
            "limited_by": used.limited_by,
        },
        "queue_seconds": started.queue_s,
        "prefill_seconds": started.prefill_s,
    }


def _message(service: Service, opened: Opened) -> dict[str, Any]:
    return {
        "id": opened.identity,
        "type": "message",
        "role": "assistant",
        "model": opened.request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "diagnostics": diagnostics_of(opened),
        "usage": usage_of(opened, 0),
        "cacheaudit": engine_report(service, opened),
    }


def _message_delta(opened: Opened, done: Done) -> dict[str, Any]:
    usage = usage_of(opened, done.output_tokens)
    delta = {"stop_reason": done.reason, "stop_sequence": done.stop_sequence, "stop_details": None}
    cumulative = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    shown = {key: usage[key] for key in (*cumulative, "output_tokens")}
    return {"type": "message_delta", "delta": delta, "usage": shown}


def _block(item: Said) -> dict[str, Any]:
    if isinstance(item, CallStart):
        return {"type": "tool_use", "id": item.id, "name": item.name, "input": {}}
    return {"type": "text", "text": ""}


def _delta(item: Said) -> dict[str, Any] | None:
    if isinstance(item, TextDelta):
        return {"type": "text_delta", "text": item.text}
    if isinstance(item, CallDelta):
        return {"type": "input_json_delta", "partial_json": item.json}
    return None


async def _collected(events: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    """One message out of the events of a stream."""
    message: dict[str, Any] = {}
    inputs = ""
    async for event in events:
        kind = event["type"]
        if kind == "message_start":
            message = event["message"]
        elif kind == "content_block_start":
            message["content"].append(event["content_block"])
            inputs = ""
        elif kind == "content_block_delta":
            delta, block = event["delta"], message["content"][-1]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            else:
                inputs += delta["partial_json"]
        elif kind == "content_block_stop" and message["content"][-1]["type"] == "tool_use":
            message["content"][-1]["input"] = json.loads(inputs)
        elif kind == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    return message


async def _encoded(events: AsyncIterator[dict[str, Any]], request_id: str) -> AsyncIterator[bytes]:
    """Events as they go over the wire; what fails on the way becomes one, too."""
    try:
        async for event in events:
            yield _encode(event)
    except ApiError as error:
        yield _encode(error_body(error, request_id))
    except Exception as error:
        log_fault(error, request_id)
        yield _encode(error_body(ApiError(500, "the server failed"), request_id))


def _encode(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"event: {event['type']}\ndata: {data}\n\n".encode("utf-8", errors="replace")

"""A Chat Completions request as a Messages request, so that one path serves both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from local_backend.server.checks import Fields
from local_backend.server.errors import InvalidRequestError
from local_backend.server.request import MOST_STOPS, MessagesRequest, parse_request

DEFAULT_TOKENS = 1024
_ACCEPTED = frozenset(
    {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "stop",
        "seed",
        "n",
        "stream",
        "stream_options",
        "response_format",
        "reasoning_effort",
        "user",
        "metadata",
        "store",
        "service_tier",
        "prompt_cache_key",
        "safety_identifier",
        "cache_control",
        "diagnostics",
        "verbosity",
        "prediction",
        "prompt_cache_retention",
        "prompt_cache_options",
    }
)
# What is no wish at all may be said; anything else of these is not done here.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "audio": (),
    "functions": ([],),
    "function_call": ("none",),
    "web_search_options": (),
    "moderation": (),
}
_CHOICES = {"none": {"type": "none"}, "auto": {"type": "auto"}, "required": {"type": "any"}}
_DATA_URL = "data:"
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a client asks for.

    Attributes:
        request: The same for the Messages API.
        includes_usage: Whether a stream ends with the usage.
    """

    request: MessagesRequest
    includes_usage: bool


def parse_chat(body: Any) -> ChatRequest:
    """Check the body of a request.

    Raises:
        InvalidRequestError: Something is wrong; the message says where.
    """
    fields = Fields(body, "")
    fields.only({*_ACCEPTED, *_NEUTRAL})
    for key, neutral in _NEUTRAL.items():
        if fields.get(key) is not None and fields.get(key) not in neutral:
            raise fields.refuse(key, "is not supported by this server")
    fields.integer("n", 1, 1)
    options = fields.child("stream_options")
    temperature = fields.number("temperature", 0.0, 2.0)
    system, messages = _conversation(fields)
    tools = [_tool(path, item) for path, item in fields.items("tools")]
    allowed = _allowed(fields)
    translated = {
        "model": fields.text("model"),
        "max_tokens": _most_tokens(fields),
        "system": system or None,
        "messages": messages,
        "tools": tools or None,
        "tool_choice": _choice(fields),
        "top_p": fields.number("top_p", 0.0, 1.0),
        "seed": fields.integer("seed", 0, 2**63 - 1),
        "stream": fields.flag("stream"),
        "output_config": _format(fields),
        "cache_control": fields.get("cache_control"),
        "diagnostics": fields.get("diagnostics"),
    }
    request = parse_request({key: value for key, value in translated.items() if value is not None})
    return ChatRequest(
        request=replace(
            request,
            temperature=1.0 if temperature is None else temperature,
            stop_sequences=_stops(fields),
            choice=replace(request.choice, among=allowed),
        ),
        includes_usage=options is not None and options.flag("include_usage"),
    )


def _most_tokens(fields: Fields) -> int:
    newer = fields.integer("max_completion_tokens", 1)
    older = fields.integer("max_tokens", 1)
    return newer or older or DEFAULT_TOKENS


def _conversation(fields: Fields) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Leading system messages, and the rest."""
    system: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for path, item in fields.items("messages"):
        message = Fields(item, path)
        role = message.choice("role", ("system", "developer", "user", "assistant", "tool"))
        if role is None:
            raise message.refuse("role", "is required")
        if role in ("system", "developer"):
            parts = list(_parts(message))
            if messages and parts:
                messages.append({"role": "system", "content": parts})
            else:
                system += parts
        elif role == "tool":
            messages.append({"role": "user", "content": [_result(message)]})
        elif role == "assistant":
            content = [*_parts(message, optional=True), *_refusal(message), *_calls(message)]
            messages.append({"role": role, "content": content})
        else:
            messages.append({"role": role, "content": list(_parts(message))})
    return system, messages


def _parts(message: Fields, *, optional: bool = False) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        if content or not optional:
            yield {"type": "text", "text": content}
        return
    if content is None and optional:
        return
    if content is None:
        raise message.refuse("content", "is required")
    for path, item in message.items("content"):
        part = Fields(item, path)
        kind = part.text("type")
        marker = part.get("cache_control")
        marked = {} if marker is None else {"cache_control": marker}
        if kind in ("text", "refusal"):
            yield {"type": "text", "text": part.text(kind), **marked}
        elif kind == "image_url":
            yield {"type": "image", "source": _source(part), **marked}
        elif kind == "file":
            yield {"type": "document", **_document(part), **marked}
        else:
            raise part.refuse("type", f"{kind!r} is not a known type of content part")


def _refusal(message: Fields) -> Iterator[dict[str, Any]]:
    text = message.optional_text("refusal")
    if text:
        yield {"type": "text", "text": text}


def _document(part: Fields) -> dict[str, Any]:
    file = part.child("file")
    if file is None:
        raise part.refuse("file", "is required")
    name = file.optional_text("filename")
    titled = {"title": name} if name else {}
    data = file.optional_text("file_data")
    if data is None:
        return {"source": {"type": "file", "file_id": file.text("file_id")}, **titled}
    head, _, rest = data.removeprefix(_DATA_URL).partition(",")
    media = head.split(";")[0] if rest else "application/pdf"
    source = {"type": "base64", "media_type": media, "data": rest or head}
    return {"source": source, **titled}


def _source(part: Fields) -> dict[str, Any]:
    image = part.child("image_url")
    if image is None:
        raise part.refuse("image_url", "is required")
    url = image.text("url")
    if not url.startswith(_DATA_URL):
        return {"type": "url", "url": url}
    head, _, data = url[len(_DATA_URL) :].partition(",")
    return {"type": "base64", "media_type": head.split(";")[0], "data": data}


def _calls(message: Fields) -> Iterator[dict[str, Any]]:
    for path, item in message.items("tool_calls"):
        call = Fields(item, path)
        function = call.child("function")
        if function is None:
            raise call.refuse("function", "is required")
        text = function.optional_text("arguments") or "{}"
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            raise function.refuse("arguments", "must be JSON") from None
        if not isinstance(given, dict):
            raise function.refuse("arguments", "must be the JSON of an object")
        yield {
            "type": "tool_use",
            "id": call.text("id"),
            "name": function.text("name"),
            "input": given,
        }


def _result(message: Fields) -> dict[str, Any]:
    content = message.get("content")
    return {
        "type": "tool_result",
        "tool_use_id": message.text("tool_call_id"),
        "content": content if isinstance(content, str) else list(_parts(message, optional=True)),
    }


def _tool(path: str, item: Any) -> dict[str, Any]:
    tool = Fields(item, path)
    if tool.get("type") != "function":
        raise tool.refuse("type", "must be function")
    function = tool.child("function")
    if function is None:
        raise tool.refuse("function", "is required")
    found = {
        "name": function.text("name"),
        "description": function.optional_text("description"),
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
        "cache_control": tool.get("cache_control"),
    }
    return {key: value for key, value in found.items() if value is not None}


def _choice(fields: Fields) -> dict[str, Any] | None:
    choice = fields.get("tool_choice")
    single = fields.get("parallel_tool_calls") is False
    if choice is None:
        return {"type": "auto", "disable_parallel_tool_use": True} if single else None
    if isinstance(choice, str):
        if choice not in _CHOICES:
            raise fields.refuse("tool_choice", f"must be one of {', '.join(_CHOICES)}")
        found: dict[str, Any] = dict(_CHOICES[choice])
    else:
        found = _named(Fields(choice, "tool_choice"))
    return {**found, "disable_parallel_tool_use": True} if single else found


def _named(chosen: Fields) -> dict[str, Any]:
    if chosen.get("type") == "allowed_tools":
        inner = chosen.child("allowed_tools")
        mode = inner.choice("mode", ("auto", "required")) if inner else None
        return {"type": "any" if mode == "required" else "auto"}
    function = chosen.child("function")
    if chosen.get("type") != "function" or function is None:
        raise chosen.refuse("type", "must be function or allowed_tools")
    return {"type": "tool", "name": function.text("name")}


def _allowed(fields: Fields) -> tuple[str, ...]:
    """Names that the choice of a tool is limited to; empty for all."""
    choice = fields.get("tool_choice")
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return ()
    inner = Fields(choice, "tool_choice").child("allowed_tools")
    if inner is None:
        raise InvalidRequestError("tool_choice.allowed_tools", "is required")
    known = {
        function.get("name")
        for item in fields.get("tools") or ()
        if isinstance(item, dict) and isinstance(function := item.get("function"), dict)
    }
    names = []
    for path, item in inner.items("tools"):
        function = Fields(item, path).child("function")
        name = function.text("name") if function else None
        if name is None or name not in known:
            raise InvalidRequestError(path, "there is no tool of this name")
        names.append(name)
    if not names:
        raise inner.refuse("tools", "at least one tool is required")
    return tuple(names)


def _stops(fields: Fields) -> tuple[str, ...]:
    """Texts that end the answer; here they may be blank, such as a line break."""
    stop = fields.get("stop")
    stops = (stop,) if isinstance(stop, str) else fields.texts("stop")
    if not all(stops):
        raise fields.refuse("stop", "must not be empty")
    if len(stops) > MOST_STOPS:
        raise fields.refuse("stop", f"at most {MOST_STOPS} are allowed")
    return stops


def _format(fields: Fields) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    effort = fields.choice("reasoning_effort", _EFFORTS)
    if effort in ("low", "medium", "xhigh", "max"):
        found["effort"] = effort
    wanted = fields.child("response_format")
    if wanted is not None and wanted.get("type") == "json_object":
        found["format"] = {"type": "json_schema", "schema": {"type": "object"}}
    elif wanted is not None and wanted.get("type") == "json_schema":
        described = wanted.child("json_schema")
        if described is None or not isinstance(described.get("schema"), dict):
            raise InvalidRequestError("response_format.json_schema.schema", "is required")
        found["format"] = {"type": "json_schema", "schema": described.get("schema")}
    elif wanted is not None and wanted.get("type") != "text":
        raise wanted.refuse("type", "must be text, json_object or json_schema")
    return found or None

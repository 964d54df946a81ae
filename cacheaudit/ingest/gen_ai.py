"""What the attributes of a span say of the call: the request, the model, the session."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cacheaudit.ingest._fields import mapping, sequence, text
from cacheaudit.ingest.endpoints import served_model

MODEL: Final = (
    "gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "llm.request.model",
    "ai.model.id", "model", "gen_ai.model",
)  # fmt: skip
SESSION: Final = (
    "gen_ai.conversation.id", "session.id", "langfuse.session.id", "session_id",
    "traceloop.association.properties.session_id", "thread.id", "langsmith.trace.session_id",
    "ai.telemetry.metadata.sessionId", "logfire.session.id",
)  # fmt: skip
_SYSTEM: Final = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
_PROVIDERS: Final[dict[str, tuple[str | None, str | None]]] = {
    "anthropic": ("anthropic", "claude_api"),
    "openai": ("openai", "openai"),
    "azure.ai.openai": ("openai", "azure"),
    "az.ai.openai": ("openai", "azure"),
    "azure": ("openai", "azure"),
    "azure.ai.inference": (None, "foundry"),
    "aws.bedrock": (None, "bedrock"),
    "aws_bedrock": (None, "bedrock"),
    "bedrock": (None, "bedrock"),
    "gcp.vertex_ai": (None, "google_cloud"),
    "vertex_ai": (None, "google_cloud"),
    "gcp.gemini": ("gemini", "gemini_api"),
    "gcp.gen_ai": ("gemini", "gemini_api"),
    "gemini": ("gemini", "gemini_api"),
    "deepseek": ("deepseek", "deepseek"),
    "x_ai": ("xai", "other"),
    "xai": ("xai", "other"),
    "mistral_ai": ("mistral", "other"),
    "mistralai": ("mistral", "other"),
    "groq": ("groq", "other"),
    "moonshot": ("moonshot", "other"),
    "openrouter": (None, "openrouter"),
    "ollama": ("local", "local"),
    "vllm": ("local", "local"),
}
_INDEXED: Final = re.compile(r"^(\d+)\.(.+)$")


def model_of(attributes: Mapping[str, Any]) -> str | None:
    """Return the model: as asked for, or the one that answered where a router was asked."""
    answered = text(attributes.get("gen_ai.response.model"))
    return served_model(first_text(attributes, MODEL), answered)


def provider_of(attributes: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return provider and surface by the name that the convention gives the system."""
    for name in _SYSTEM:
        value = text(attributes.get(name))
        if value is not None and value.lower() in _PROVIDERS:
            return _PROVIDERS[value.lower()]
    return None, None


def first_text(attributes: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the first of several attributes that holds text."""
    for name in names:
        if found := text(attributes.get(name)):
            return found
    return None


def request_of(
    attributes: Mapping[str, Any],
    events: Sequence[tuple[str, Mapping[str, Any]]],
    provider: str | None,
) -> dict[str, Any] | None:
    """Rebuild the request from what was recorded of it; ``None`` where nothing was.

    Raw bodies go first. The structured attributes lose what the convention has no place for
    (markers, parameters), but keep order and content, which is what a prefix is made of.
    """
    raw = _raw_body(attributes)
    if raw is not None:
        return raw
    model = first_text(attributes, MODEL)
    messages, system, tools = _semantic(attributes, events)
    if not messages:
        messages, system = _indexed_messages(attributes, "llm.input_messages."), []
        tools = tools or _openinference_tools(attributes)
    if not messages:
        messages = _indexed_messages(attributes, "gen_ai.prompt.")
        tools = tools or _openllmetry_tools(attributes)
    if not messages:
        return None
    if provider == "anthropic":
        return _messages_body(model, messages, system, tools)
    return _chat_body(model, messages, system, tools)


def _raw_body(attributes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a body that was recorded whole."""
    for name in (
        "body", "input.value", "gen_ai.request.body", "request.body", "request_data",
        "llm.request.body",
    ):  # fmt: skip
        body = mapping(attributes.get(name))
        if any(isinstance(body.get(k), list) for k in ("messages", "contents", "input")):
            return dict(body)
    return None


def _semantic(
    attributes: Mapping[str, Any], events: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[list[Any], list[Any], list[Any]]:
    """Read the attributes of the convention itself, on the span or on its detail event."""
    found: dict[str, Any] = {}
    for source in (attributes, *(inner for _, inner in events)):
        for name in ("input.messages", "system_instructions", "tool.definitions"):
            if name not in found and (items := sequence(source.get(f"gen_ai.{name}"))):
                found[name] = items
    system = found.get("system_instructions", [])
    messages = [_one_message(m) for m in found.get("input.messages", []) if isinstance(m, dict)]
    return messages, [_part(p) for p in system], found.get("tool.definitions", [])


def _one_message(message: Mapping[str, Any]) -> dict[str, Any]:
    parts = message.get("parts")
    role = text(message.get("role")) or "user"
    if not isinstance(parts, list):
        return {"role": role, "content": message.get("content", "")}
    return {"role": role, "content": [_part(part) for part in parts]}


def _part(part: Any) -> dict[str, Any]:
    """Turn a part of the convention into a content block."""
    if not isinstance(part, Mapping):
        return {"type": "text", "text": str(part)}
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": str(part.get("content", part.get("text", "")))}
    if kind == "tool_call":
        arguments = part.get("arguments")
        return {
            "type": "tool_use",
            "id": part.get("id"),
            "name": part.get("name"),
            "input": mapping(arguments) or arguments or {},
        }
    if kind == "tool_call_response":
        result = part.get("response", part.get("result"))
        return {
            "type": "tool_result",
            "tool_use_id": part.get("id"),
            "content": result
            if isinstance(result, str | list)
            else [{"type": "json", "v": result}],
        }
    if kind in ("reasoning", "thinking"):
        return {"type": "thinking", "thinking": part.get("content", "")}
    return dict(part)


def _indexed(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Collect ``prefix.N.rest`` into a list of objects, in order of N."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(prefix) and (match := _INDEXED.match(name[len(prefix) :])):
            found.setdefault(int(match[1]), {})[match[2]] = value
    return [found[index] for index in sorted(found)]


def _indexed_messages(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    messages: list[Any] = []
    for raw in _indexed(attributes, prefix):
        fields = {name.removeprefix("message."): value for name, value in raw.items()}
        content: list[Any] = []
        plain = fields.get("content")
        parts = sequence(plain)
        if parts and all(isinstance(p, dict) for p in parts):
            content += parts
        elif isinstance(plain, str) and plain:
            content.append({"type": "text", "text": plain})
        for part in _indexed(fields, "contents."):
            value = part.get("message_content.text")
            if isinstance(value, str):
                content.append({"type": "text", "text": value})
        for call in _indexed(fields, "tool_calls."):
            content.append(_tool_call(call))
        role = text(fields.get("role")) or "user"
        if ident := text(fields.get("tool_call_id")):
            content = [{"type": "tool_result", "tool_use_id": ident, "content": content}]
            role = "tool"
        messages.append({"role": role, "content": content})
    return messages


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    fields = {
        name.removeprefix("tool_call.").removeprefix("function."): value
        for name, value in call.items()
    }
    arguments = fields.get("arguments")
    return {
        "type": "tool_use",
        "id": fields.get("id"),
        "name": fields.get("name"),
        "input": mapping(arguments) or arguments or {},
    }


def _openinference_tools(attributes: Mapping[str, Any]) -> list[Any]:
    tools = (mapping(t.get("tool.json_schema")) for t in _indexed(attributes, "llm.tools."))
    return [dict(tool) for tool in tools if tool]


def _openllmetry_tools(attributes: Mapping[str, Any]) -> list[Any]:
    return [
        {
            "name": tool.get("name"),
            "description": tool.get("description"),
            "parameters": mapping(tool.get("parameters")) or mapping(tool.get("input_schema")),
        }
        for tool in _indexed(attributes, "llm.request.functions.")
    ]


def _messages_body(
    model: str | None, messages: list[Any], system: list[Any], tools: list[Any]
) -> dict[str, Any]:
    """Make a Messages API body."""
    turns: list[Any] = []
    for message in messages:
        if message["role"] == "system" and not turns:
            content = message["content"]
            system = [*system, *([content] if isinstance(content, str) else content)]
            continue
        role = "user" if message["role"] == "tool" else message["role"]
        turns.append({"role": role, "content": message["content"]})
    body: dict[str, Any] = {"model": model, "system": system, "messages": turns}
    if tools:
        body["tools"] = [_anthropic_tool(mapping(tool)) for tool in tools]
    return body


def _anthropic_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    inner = mapping(tool.get("function")) or tool
    schema = inner.get("input_schema", inner.get("parameters"))
    named = {"name": inner.get("name"), "description": inner.get("description")}
    return {**named, "input_schema": schema}


def _chat_body(
    model: str | None, messages: list[Any], system: list[Any], tools: list[Any]
) -> dict[str, Any]:
    """Make a Chat Completions body."""
    turns: list[Any] = []
    if system:
        turns.append({"role": "system", "content": _texts(system)})
    for message in messages:
        turns += _chat_turns(message)
    body: dict[str, Any] = {"model": model, "messages": turns}
    if tools:
        body["tools"] = [
            tool if "function" in tool else {"type": "function", "function": dict(tool)}
            for tool in map(mapping, tools)
        ]
    return body


def _chat_turns(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    if not isinstance(content, list):
        return [{"role": message["role"], "content": content}]
    results = [b for b in content if isinstance(b, dict) and b.get("type") == "tool_result"]
    calls = [b for b in content if isinstance(b, dict) and b.get("type") == "tool_use"]
    rest = [b for b in content if b not in results and b not in calls]
    turns: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": r.get("tool_use_id"), "content": r.get("content")}
        for r in results
    ]
    if rest or calls:
        turn: dict[str, Any] = {"role": message["role"], "content": rest or None}
        if calls:
            turn["tool_calls"] = [
                {
                    "id": call.get("id"),
                    "type": "function",
                    "function": {"name": call.get("name"), "arguments": _json(call.get("input"))},
                }
                for call in calls
            ]
        turns.append(turn)
    return turns


def _json(value: Any) -> str:
    """Write a value as JSON text, keeping the order of its keys."""
    return msgspec.json.encode(value).decode()


def _texts(blocks: list[Any]) -> list[dict[str, Any]]:
    return [
        block if isinstance(block, dict) else {"type": "text", "text": block} for block in blocks
    ]

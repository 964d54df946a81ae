"""Tells which API a request body was written for, by its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

# Messages that are looked at: every one of them is written for the same API.
_LOOKED_AT: Final = 16
_MESSAGES_ONLY: Final = frozenset(
    {
        "system",
        "cache_control",
        "anthropic_version",
        "anthropic_beta",
        "thread",
        "output_config",
        "context_management",
        "stop_sequences",
        "mcp_servers",
        "diagnostics",
    }
)
_CHAT_ONLY: Final = frozenset(
    {
        "max_completion_tokens",
        "response_format",
        "stream_options",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "logprobs",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "verbosity",
        "functions",
        "seed",
        "n",
        "stop",
    }
)
_MESSAGES_KINDS: Final = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"}
)
_CHAT_KINDS: Final = frozenset({"image_url", "input_audio", "file", "video_url", "refusal"})
_CHAT_ROLES: Final = frozenset({"developer", "tool", "function"})


def is_messages(body: Mapping[str, Any]) -> bool:
    """Whether a body has the shape of the Messages API; where in doubt, the model's name tells."""
    kind = _kind(body)
    return kind == "messages" or (kind == "either" and not _other_model(body))


def is_chat(body: Mapping[str, Any]) -> bool:
    """Whether a body has the shape of Chat Completions; where in doubt, the model's name tells."""
    kind = _kind(body)
    return kind == "chat" or (kind == "either" and _other_model(body))


def may_be_messages(body: Mapping[str, Any]) -> bool:
    """Whether nothing speaks against the Messages API."""
    return _kind(body) in ("messages", "either")


def may_be_chat(body: Mapping[str, Any]) -> bool:
    """Whether nothing speaks against Chat Completions."""
    return _kind(body) in ("chat", "either")


def speak_messages(messages: list[Any], *, first: bool) -> bool:
    """Whether no message speaks for another API than the Messages API, whatever stands around.

    Args:
        messages: Some in a row of a conversation.
        first: Whether they are its beginning.
    """
    dicts = [message for message in messages if isinstance(message, dict)]
    if any(_role(m) in _CHAT_ROLES or "tool_calls" in m for m in dicts):
        return False
    if first and dicts and _role(dicts[0]) == "system":
        return False
    blocks = [block for message in dicts for block in _content([message])]
    return not any(
        block.get("type") in _CHAT_KINDS if "type" in block else len(block) == 1
        for block in blocks
        if isinstance(block.get("type", ""), str)
    )


def is_converse(body: Mapping[str, Any]) -> bool:
    """Whether a body has the shape of Bedrock Converse."""
    return _kind(body) == "converse"


def is_responses(body: Mapping[str, Any]) -> bool:
    """Whether a body has the shape of the Responses API."""
    return _kind(body) == "responses"


def is_gemini(body: Mapping[str, Any]) -> bool:
    """Whether a body has the shape of Gemini's generateContent."""
    return _kind(body) == "gemini"


def _kind(body: Mapping[str, Any]) -> str | None:
    if isinstance(body.get("contents"), str | list):
        return "gemini"
    messages = body.get("messages")
    if not isinstance(messages, list):
        return "responses" if _has_input(body) else None
    if _looks_converse(body, messages):
        return "converse"
    return _chat_or_messages(body, messages)


def _has_input(body: Mapping[str, Any]) -> bool:
    return isinstance(body.get("input"), str | list) or isinstance(body.get("instructions"), str)


def _looks_converse(body: Mapping[str, Any], messages: list[Any]) -> bool:
    if "toolConfig" in body or "inferenceConfig" in body or "modelId" in body:
        return True
    return any("type" not in block and len(block) == 1 for block in _content(messages))


def _chat_or_messages(body: Mapping[str, Any], messages: list[Any]) -> str:
    """Tell the two apart by what only one of them has; ``either`` where nothing does."""
    tools = body.get("tools")
    tool = tools[0] if isinstance(tools, list) and tools else None
    if isinstance(tool, dict):
        is_function = tool.get("type") == "function" or isinstance(tool.get("custom"), dict)
        return "chat" if is_function or "function" in tool else "messages"
    if body.keys() & _MESSAGES_ONLY:
        return "messages"
    dicts = [message for message in messages if isinstance(message, dict)]
    if any(_role(m) in _CHAT_ROLES or "tool_calls" in m for m in dicts):
        return "chat"
    if dicts and _role(dicts[0]) == "system":
        return "chat"
    kinds = {kind for block in _content(messages) if isinstance(kind := block.get("type"), str)}
    if kinds & _MESSAGES_KINDS:
        return "messages"
    if kinds & _CHAT_KINDS or body.keys() & _CHAT_ONLY:
        return "chat"
    return "either"


def _other_model(body: Mapping[str, Any]) -> bool:
    """Whether the model is named and is none of the Messages API's own."""
    model = body.get("model")
    return isinstance(model, str) and bool(model) and "claude" not in model


def _role(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    return role if isinstance(role, str) else ""


def _content(messages: list[Any]) -> Iterator[dict[str, Any]]:
    for message in messages[:_LOOKED_AT]:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            yield from (block for block in content if isinstance(block, dict))

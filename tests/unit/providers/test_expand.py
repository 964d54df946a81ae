"""Request bodies of every API to content blocks: order, paths, markers, what is normalised away."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.errors import PromptError
from cacheaudit.model.change import first_change
from cacheaudit.model.prompt import Marker, Prompt
from cacheaudit.providers.registry import all_providers, expand

PICTURE = base64.b64encode(b"\x89PNG" + bytes(3000)).decode()
MARK = {"cache_control": {"type": "ephemeral"}}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
}
CHAT: dict[str, Any] = {
    "model": "gpt-6",
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [{"type": "text", "text": "and kind"}]},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "developer", "content": "later"},
    ],
    "tools": [CHAT_TOOL],
}


def shown(prompt: Prompt) -> list[tuple[str, str, str]]:
    return [(block.level, block.path, block.kind) for block in prompt.blocks]


def identity(prompt: Prompt) -> bytes:
    return prompt.prefix_digests[-1]


def test_chat_completions() -> None:
    prompt = expand(CHAT)
    assert (prompt.provider, prompt.model) == ("openai", "gpt-6")
    assert shown(prompt) == [
        ("tools", "tools[0]", "tool"),
        ("system", "messages[0].content[0]", "text"),
        ("system", "messages[1].content[0]", "text"),
        ("messages", "messages[2].content[0]", "text"),
        ("messages", "messages[3].tool_calls[0]", "tool_use"),
        ("messages", "messages[4].content", "tool_result"),
        ("messages", "messages[5].content[0]", "text"),
    ]
    assert prompt.blocks[0].name == "f"
    assert [block.message for block in prompt.blocks] == [-1, 0, 1, 2, 3, 4, 5]


def test_deepseek_renders_system_before_tools() -> None:
    named = expand(CHAT, provider="deepseek")
    assert named.level_order == ("system", "tools", "messages")
    assert [block.path for block in named.blocks][:3] == [
        "messages[0].content[0]",
        "messages[1].content[0]",
        "tools[0]",
    ]
    by_model = expand({**CHAT, "model": "deepseek-chat"})
    assert (by_model.provider, by_model.level_order[0]) == ("deepseek", "system")
    other = copy.deepcopy(CHAT)
    other["tools"][0]["function"]["description"] = "changed"
    change = first_change(named, expand(other, provider="deepseek"))
    assert change is not None
    assert (change.path, change.blocks_before) == ("tools[0].function.description", 2)


RESPONSES: dict[str, Any] = {
    "model": "gpt-6.1-sol",
    "instructions": "be brief",
    "input": [
        {"role": "developer", "content": "and kind"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "encrypted_content": "xx",
            "status": "completed",
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "f",
            "arguments": "{}",
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "done", "annotations": []}],
        },
    ],
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "text": {"format": {"type": "json_schema", "name": "x"}, "verbosity": "low"},
    "reasoning": {"effort": "high"},
    "prompt_cache_key": "k",
    "service_tier": "priority",
    "parallel_tool_calls": False,
    "prompt_cache_options": {"ttl": "12h"},
}


def test_responses() -> None:
    prompt = expand(RESPONSES)
    assert shown(prompt) == [
        ("tools", "tools[0]", "tool"),
        ("system", "instructions", "text"),
        ("system", "input[0].content[0]", "text"),
        ("messages", "input[1].content[0]", "text"),
        ("messages", "input[2]", "thinking"),
        ("messages", "input[3]", "tool_use"),
        ("messages", "input[4]", "tool_result"),
        ("messages", "input[5].content[0]", "text"),
    ]
    assert {p.name: (p.level, json.loads(p.value)) for p in prompt.parameters} == {
        "model": ("tools", "gpt-6.1-sol"),
        "parallel_tool_calls": ("tools", False),
        "prompt_cache_key": ("tools", "k"),
        "service_tier": ("tools", "priority"),
        "text.format": ("tools", {"type": "json_schema", "name": "x"}),
        "text.verbosity": ("tools", "low"),
        "reasoning.effort": ("tools", "high"),
    }
    assert prompt.automatic_marker == Marker("12h")


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("model", "gpt-6-sol", "model"),
        ("parallel_tool_calls", True, "parallel_tool_calls"),
        ("prompt_cache_key", "other", "prompt_cache_key"),
        ("service_tier", "flex", "service_tier"),
        ("reasoning", {"effort": "low"}, "reasoning.effort"),
        ("text", {"format": {"type": "text"}, "verbosity": "low"}, "text.format"),
        (
            "text",
            {"format": {"type": "json_schema", "name": "x"}, "verbosity": "high"},
            "text.verbosity",
        ),
    ],
)
def test_responses_parameters_drop_everything(field: str, value: Any, path: str) -> None:
    change = first_change(expand(RESPONSES), expand({**RESPONSES, field: value}))
    assert change is not None
    assert (change.kind, change.path, change.level) == ("parameter", path, "tools")
    assert change.blocks_before == 0


def test_responses_keep_what_does_not_count() -> None:
    base = expand(RESPONSES)
    for extra in (
        {"tool_choice": "none"},
        {"max_output_tokens": 5},
        {"store": False},
        {"metadata": {"a": "b"}},
        {"stream": True},
    ):
        assert identity(expand({**RESPONSES, **extra})) == identity(base), extra
    echoed = copy.deepcopy(RESPONSES)
    for item in echoed["input"]:
        if item.get("type") != "reasoning":
            item.pop("id", None)
        item.pop("status", None)
    echoed["input"][1]["content"] = "hi"
    echoed["input"][5]["content"][0].pop("annotations")
    echoed["input"][4]["output"] = [{"type": "input_text", "text": "ok"}]
    assert identity(expand(echoed)) == identity(base)


def test_defaults_say_nothing() -> None:
    base = expand({"model": "gpt-6", "input": "hi"})
    said = {
        "parallel_tool_calls": True,
        "service_tier": "auto",
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
    }
    assert expand({"model": "gpt-6", "input": "hi", **said}).parameters == base.parameters
    claude = {"model": "claude-opus-5", "system": "s", "messages": []}
    said = {
        "speed": "standard",
        "thinking": {"type": "disabled"},
        "output_config": {"effort": "high"},
        "tool_choice": {"type": "auto"},
    }
    assert expand({**claude, **said}).parameters == expand(claude).parameters


def test_openai_breakpoints_are_markers_and_no_content() -> None:
    marked = copy.deepcopy(RESPONSES)
    marked["input"][1]["content"][0]["prompt_cache_breakpoint"] = {"mode": "explicit"}
    prompt = expand(marked)
    assert [block.path for block in prompt.blocks if block.marker] == ["input[1].content[0]"]
    assert prompt.blocks[3].marker == Marker("12h")
    assert prompt.prefix_digests == expand(RESPONSES).prefix_digests


def test_qwen_and_openrouter_take_cache_control() -> None:
    body = copy.deepcopy(CHAT)
    body["messages"][0]["content"] = [{"type": "text", "text": "be brief", **MARK}]
    body["messages"][4]["content"] = [{"type": "text", "text": "ok", **MARK}]
    for provider in ("qwen", "openrouter"):
        prompt = expand(body, provider=provider)
        assert prompt.provider == provider
        marked = [block.path for block in prompt.blocks if block.marker]
        assert marked == ["messages[0].content[0]", "messages[4].content"]
        assert prompt.prefix_digests == expand(CHAT, provider=provider).prefix_digests


CONVERSE: dict[str, Any] = {
    "modelId": "anthropic.claude-sonnet-4-6",
    "system": [{"text": "be brief"}, {"cachePoint": {"type": "default"}}],
    "toolConfig": {
        "tools": [
            {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}},
            {"cachePoint": {"type": "default", "ttl": "1h"}},
        ]
    },
    "messages": [
        {
            "role": "user",
            "content": [
                {"text": "hi"},
                {"image": {"format": "png", "source": {"bytes": PICTURE}}},
                {"cachePoint": {"type": "default", "ttl": "5m"}},
                {"text": "now"},
            ],
        },
        {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": "t1", "name": "f", "input": {"b": 1, "a": 2}}}],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "ok"}]}}],
        },
    ],
    "inferenceConfig": {"maxTokens": 5},
}


def test_converse_markers_stand_behind_their_block() -> None:
    prompt = expand(CONVERSE)
    assert (prompt.provider, prompt.model) == ("bedrock", "anthropic.claude-sonnet-4-6")
    assert [(b.path, b.kind, b.marker) for b in prompt.blocks] == [
        ("toolConfig.tools[0]", "tool", Marker("1h")),
        ("system[0]", "text", Marker(None)),
        ("messages[0].content[0]", "text", None),
        ("messages[0].content[1]", "image", Marker("5m")),
        ("messages[0].content[3]", "text", None),
        ("messages[1].content[0]", "tool_use", None),
        ("messages[2].content[0]", "tool_result", None),
    ]
    assert prompt.blocks[3].media_bytes == 3004
    assert len(prompt.blocks[3].canonical) < 200
    bare = copy.deepcopy(CONVERSE)
    bare["toolConfig"]["tools"].pop()
    bare["system"].pop()
    del bare["messages"][0]["content"][2]
    assert expand(bare).prefix_digests == prompt.prefix_digests


GEMINI: dict[str, Any] = {
    "model": "gemini-3.8-flash",
    "systemInstruction": {"parts": [{"text": "be brief"}]},
    "tools": [
        {"functionDeclarations": [{"name": "f"}, {"name": "g"}]},
        {"googleSearch": {}},
    ],
    "contents": [
        {
            "role": "user",
            "parts": [{"text": "hi"}, {"inlineData": {"mimeType": "image/png", "data": PICTURE}}],
        },
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"b": 1, "a": 2}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "f", "response": {"result": "ok"}}}],
        },
    ],
}


def test_gemini() -> None:
    prompt = expand(GEMINI)
    assert shown(prompt) == [
        ("tools", "tools[0].functionDeclarations[0]", "tool"),
        ("tools", "tools[0].functionDeclarations[1]", "tool"),
        ("tools", "tools[1]", "tool"),
        ("system", "systemInstruction.parts[0]", "text"),
        ("messages", "contents[0].parts[0]", "text"),
        ("messages", "contents[0].parts[1]", "image"),
        ("messages", "contents[1].parts[0]", "tool_use"),
        ("messages", "contents[2].parts[0]", "tool_result"),
    ]
    assert [b.name for b in prompt.blocks[:3]] == ["f", "g", "googleSearch"]
    text = expand({"model": "gemini-3.8-flash", "contents": "hi"})
    listed = {"model": "gemini-3.8-flash", "contents": [{"parts": [{"text": "hi"}]}]}
    assert identity(text) == identity(expand(listed))


@pytest.mark.parametrize(
    ("body", "provider"),
    [
        ({"model": "claude-opus-5", "messages": [{"role": "user", "content": "x"}]}, "anthropic"),
        ({"messages": [{"role": "user", "content": "x"}]}, "anthropic"),
        ({"model": "gpt-6", "messages": [{"role": "user", "content": "x"}]}, "openai"),
        ({"model": "x", "system": "s", "messages": []}, "anthropic"),
        ({"model": "qwen4-max", "messages": [{"role": "user", "content": "x"}]}, "qwen"),
        ({"model": "moonshotai/kimi-k3", "messages": []}, "kimi"),
        ({"model": "glm-5.2", "messages": [], "thinking": {"type": "enabled"}}, "glm"),
        ({"model": "MiniMax-M3", "messages": []}, "minimax"),
        ({"model": "grok-4.7", "input": "x"}, "xai"),
        ({"model": "mistral-large-latest", "messages": []}, "mistral"),
        ({"contents": "x"}, "gemini"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "bedrock"),
        ({"model": "m", "messages": [{"role": "tool", "content": "x"}]}, "openai"),
        (
            {
                "model": "deepseek-chat",
                "messages": [{"role": "user", "content": [{"type": "tool_result"}]}],
            },
            "anthropic",
        ),
        ({"tools": [{"name": "f", "input_schema": {}}], "messages": []}, "anthropic"),
    ],
)
def test_the_shape_picks_the_provider(body: dict[str, Any], provider: str) -> None:
    assert expand(body).provider == provider


def test_the_name_wins_where_the_shape_allows_it() -> None:
    body = {"model": "house-alias", "messages": [{"role": "user", "content": "x"}]}
    assert expand(body, provider="anthropic").level_order == ("tools", "system", "messages")
    assert expand(body, provider="anthropic").provider == "anthropic"
    invoke = {"anthropic_version": "bedrock-2023-05-31", "system": "s", "messages": []}
    prompt = expand(invoke, provider="bedrock")
    assert (prompt.provider, shown(prompt)) == ("bedrock", [("system", "system[0]", "text")])
    assert expand(CHAT, provider="local").provider == "local"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model": "x"},
        {"messages": "x"},
        {"messages": [1]},
        {"messages": [{"role": "user", "content": 3}]},
        {"messages": [{"role": "user", "content": [3]}]},
        {"system": 4, "messages": []},
        {"tools": {"a": 1}, "system": "s", "messages": []},
        {"tools": [1], "system": "s", "messages": []},
        {"model": "gpt-6", "input": [1]},
        {"contents": [1]},
        {"contents": [{"parts": 3}]},
        {"toolConfig": {}, "messages": [{"content": [1]}]},
        {"system": "\ud800", "messages": []},
    ],
)
def test_a_broken_body_is_a_clear_error(body: dict[str, Any]) -> None:
    with pytest.raises(PromptError) as caught:
        expand(body)
    assert str(caught.value)


BODIES = [CHAT, RESPONSES, CONVERSE, GEMINI]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_is_never_changed(body: dict[str, Any]) -> None:
    before = json.dumps(body)
    expand(body)
    assert json.dumps(body) == before


@pytest.mark.parametrize("body", BODIES)
def test_with_a_previous_prompt_the_result_is_the_same(body: dict[str, Any]) -> None:
    prompt = expand(body)
    again = expand(copy.deepcopy(body), previous=prompt)
    assert again == prompt
    for before, after in zip(prompt.blocks, again.blocks, strict=True):
        assert after.digest is before.digest


@pytest.mark.parametrize("body", BODIES)
def test_every_canonical_form_is_json(body: dict[str, Any]) -> None:
    for block in expand(body).blocks:
        assert isinstance(json.loads(block.canonical), dict)


def test_a_speaker_and_thoughts_in_chat() -> None:
    body = copy.deepcopy(CHAT)
    body["messages"][2]["name"] = "ann"
    body["messages"][3]["reasoning_content"] = "hm"
    prompt = expand(body)
    assert json.loads(prompt.blocks[3].canonical)["name"] == "ann"
    assert (prompt.blocks[4].kind, prompt.blocks[4].path) == (
        "thinking",
        "messages[3].reasoning_content",
    )
    change = first_change(expand(CHAT), prompt)
    assert change is not None
    assert (change.path, change.kind) == ("messages[2].content[0]", "edited")


def test_a_settings_message_is_rendered() -> None:
    body = {
        "model": "claude-opus-5",
        "system": "s",
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "system", "content": [], "output_config": {"effort": "low"}},
        ],
    }
    other = copy.deepcopy(body)
    other["messages"][1]["output_config"] = {"effort": "max"}  # type: ignore[index]
    change = first_change(expand(body), expand(other))
    assert change is not None
    assert (change.path, change.kind) == ("messages[1]", "edited")


def test_no_secret_of_a_tool_server_is_kept() -> None:
    server = {"name": "m", "url": "https://x", "authorization_token": "hush-hush"}
    body = {"model": "claude-opus-5", "system": "s", "messages": [], "mcp_servers": [server]}
    prompt = expand(body)
    assert b"hush" not in b"".join(p.value for p in prompt.parameters)
    other = {**body, "mcp_servers": [{**server, "name": "n"}]}
    change = first_change(prompt, expand(other))
    assert change is not None
    assert (change.kind, change.path) == ("parameter", "mcp_servers")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab\ud800", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
BLOCK = st.dictionaries(
    st.sampled_from(
        ["type", "text", "content", "source", "cache_control", "role", "parts", "id", "cachePoint"]
    ),
    JSON | st.sampled_from(["text", "tool_result", "image"]),
    max_size=4,
)
MESSAGE = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "parts", "type", "output", "name"]),
    JSON | st.lists(BLOCK, max_size=3) | st.sampled_from(["user", "tool", "system"]),
    max_size=4,
)
FIELDS = (
    "model messages input contents system tools instructions thinking tool_choice toolConfig "
    "systemInstruction prompt_cache_options"
)
BODY = st.dictionaries(
    st.sampled_from(FIELDS.split()),
    JSON | st.lists(MESSAGE, max_size=3) | st.lists(BLOCK, max_size=3),
    max_size=6,
)


@given(BODY)
def test_any_json_is_a_prompt_or_a_clear_error(body: dict[str, Any]) -> None:
    for provider in (None, *(p.name for p in all_providers())):
        try:
            prompt = expand(body, provider=provider)
        except PromptError:
            continue
        assert len(prompt.prefix_digests) == len(prompt.blocks)

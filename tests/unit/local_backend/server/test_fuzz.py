"""Whatever JSON comes, it is taken or refused with a place; nothing else happens."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from local_backend.rules import AnthropicRules, MarkerError
from local_backend.server.chat_request import parse_chat
from local_backend.server.errors import InvalidRequestError
from local_backend.server.frames import frame_of
from local_backend.server.render import Rendered, Renderer
from local_backend.server.request import MessagesRequest, parse_request
from local_backend.server.shaping import shape_of
from local_backend.tokenizer.byte_level import ByteTokenizer

PIXEL = "data:image/png;base64,QQ=="
MARK = {"type": "ephemeral", "ttl": "1h"}
TOKENIZER = ByteTokenizer()
RENDERER = Renderer(TOKENIZER, frame_of(TOKENIZER, None), media_tokens=3)
MESSAGES: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "s", "cache_control": MARK}],
    "tools": [
        {
            "name": "f",
            "description": "d",
            "input_schema": {
                "type": "object",
                "properties": {"a": {"enum": [1]}, "b": {"type": "array", "items": {}}},
                "required": ["a"],
            },
        }
    ],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}},
    "diagnostics": {"previous_message_id": "msg_1"},
    "stop_sequences": ["x"],
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "1",
                    "content": [{"type": "text", "text": "r"}],
                },
                {"type": "image", "source": {"type": "url", "url": "u"}},
                {
                    "type": "document",
                    "title": "t",
                    "citations": {"enabled": True},
                    "source": {"type": "text", "media_type": "text/plain", "data": "d"},
                },
                {"type": "search_result", "title": "t", "source": "s", "content": []},
            ],
        },
    ],
}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "max_completion_tokens": 5,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "stream_options": {"include_usage": True},
    "stop": ["x"],
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "t", "cache_control": MARK},
                                     {"type": "image_url", "image_url": {"url": PIXEL}}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
    ],
}  # fmt: skip

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text("a\n $#/", max_size=4)
    | st.sampled_from(["text", "user", "tool_use", "tool_result", "image", "document", "object"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "cache_control", "name", "$ref", "anyOf"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything inside a document."""
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    else:
        return [path]
    return [path, *(p for key, item in inner for p in places(item, (*path, key)))]


@st.composite
def bodies(draw: st.DrawFn, base: dict[str, Any]) -> Any:
    """A right request with one to three things replaced or left out."""
    body: Any = copy.deepcopy(base)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(body)))
        if not path:
            continue
        holder = body
        for key in path[:-1]:
            holder = holder[key]
        if draw(st.integers(0, 3)):
            holder[path[-1]] = draw(_json)
        else:
            del holder[path[-1]]
    return body


def test_both_are_right_as_they_are() -> None:
    parse_request(MESSAGES)
    parse_chat(CHAT)


def render(request: MessagesRequest) -> Rendered:
    rendered = RENDERER.render(request, "m")
    with contextlib.suppress(MarkerError):
        AnthropicRules().plan(rendered.prompt, 0.0)
    shape_of(request)
    return rendered


@given(bodies(MESSAGES))
@settings(max_examples=300)
def test_messages(body: Any) -> None:
    with contextlib.suppress(InvalidRequestError):
        rendered = render(parse_request(body))
        assert rendered.total == sum(rendered.content_tokens) + rendered.tail > 0
        assert all(0 <= s.start < s.start + s.length <= rendered.total for s in rendered.spans)


@given(bodies(CHAT))
@settings(max_examples=200)
def test_chat(body: Any) -> None:
    with contextlib.suppress(InvalidRequestError):
        assert render(parse_chat(body).request).total > 0

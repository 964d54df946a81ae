"""What is refused, and with which words; what is rendered, and to how many tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local_backend.server.errors import InvalidRequestError
from local_backend.server.frames import frame_of
from local_backend.server.render import Rendered, Renderer
from local_backend.server.request import parse_request
from local_backend.tokenizer.byte_level import ByteTokenizer

MARK = {"cache_control": {"type": "ephemeral"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
TOKENIZER = ByteTokenizer()


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **more}


def body(*turns: Any, **more: Any) -> dict[str, Any]:
    """A request whose messages alternate between user and assistant."""
    messages = [
        {"role": "assistant" if n % 2 else "user", "content": turn} for n, turn in enumerate(turns)
    ]
    return {
        "model": "tiny",
        "max_tokens": 5,
        "messages": messages or [{"role": "user", "content": "hi"}],
        **more,
    }


WRONG: list[tuple[Any, str]] = [
    ([], "must be an object"),
    ({"messages": []}, "max_tokens: is required"),
    (body(max_tokens=-1), "max_tokens: must be at least 0"),
    (body(max_tokens=1.5), "max_tokens: must be a whole number"),
    (body(max_tokens=True), "max_tokens: must be a whole number"),
    (body(model=None), "model: is required"),
    (body(messages=[]), "messages: at least one message is required"),
    (body(messages="hi"), "messages: must be a list"),
    (body(messages=[1]), "messages.0: must be an object"),
    (body(messages=[{"role": "x", "content": "a"}]), "messages.0.role: must be one of"),
    (body(messages=[{"role": "user"}]), "messages.0.content: is required"),
    (body(""), "messages.0.content: text content blocks must not be empty"),
    (body([]), "messages.0.content: must not be empty"),
    (body([text("")]), "messages.0.content.0.text: text content blocks must not be empty"),
    (body([{"type": "poem"}]), "messages.0.content.0.type: 'poem' is not a known type"),
    (body([{"type": "text"}]), "messages.0.content.0.text: is required"),
    (body([text("a", cache_control={"type": "x"})]), "messages.0.content.0.cache_control.type"),
    (body([text("a", cache_control={"type": "ephemeral", "ttl": "2h"})]), "cache_control.ttl"),
    (body([CALL]), "messages.0.content.0.type: tool_use is not allowed in a message of the user"),
    (body("a", [IMAGE]), "messages.1.content.0.type: image is not allowed"),
    (body("a", "b "), "messages.1.content: the text that the answer continues"),
    (body("a", [CALL], "b"), "messages.1.content.0: this tool_use has no tool_result"),
    (body([RESULT]), "messages.0.content.0.tool_use_id: no tool_use of the turn before"),
    (body("a", [CALL], [{**RESULT, "content": [text("x", **MARK), text("y")]}]),
     "messages.2.content.0.content.0.cache_control: is allowed on the last"),
    (body([{"type": "image", "source": {"type": "text", "data": "x"}}]), "source.type"),
    (body(system=[IMAGE]), "system.0.type: must be text"),
    (body(system=7), "system: must be a list"),
    (body(tools=[{"name": "f"}]), "tools.0.input_schema: is required"),
    (body(tools=[{**TOOL, "name": "a b"}]), "tools.0.name: must be 1 to 128"),
    (body(tools=[TOOL, TOOL]), "tools.1.name: tool names must be unique"),
    (body(tools=[{**TOOL, "defer_loading": True, **MARK}]), "tools.0.cache_control: cannot be set"),
    (body(tool_choice={"type": "tool", "name": "g"}, tools=[TOOL]), "name: there is no tool"),
    (body(tool_choice={"type": "any"}), "tool_choice: needs tools"),
    (body(tool_choice={"type": "all"}), "tool_choice.type: must be one of"),
    (body(temperature=1.5), "temperature: must be from 0.0 to 1.0"),
    (body(stop_sequences=[" "]), "stop_sequences.0: must contain more than whitespace"),
    (body(thinking={"type": "enabled"}), "thinking.budget_tokens: is required"),
    (body(thinking={"type": "enabled", "budget_tokens": 2000}), "must be less than max_tokens"),
    (body(output_config={"effort": "huge"}), "output_config.effort: must be one of"),
    (body(mcp_servers=[{"url": "x"}]), "mcp_servers: is not supported by this server"),
    (body(thread={"type": "create"}), "thread: is not supported by this server"),
    (body(compaction={"type": "summarize"}), "compaction: is not supported by this server"),
    (body(fallback_credit_token="t"), "fallback_credit_token: is not supported by this server"),
    (body(billing_policy={"bill_to": "user_profile"}), "billing_policy.bill_to: only self"),
    (body(fallbacks=[{}]), "fallbacks.0.model: is required"),
    (body(metadata={"user_id": 5}), "metadata.user_id: must be a string"),
    (body(metadata="u"), "metadata: must be an object"),
    (body(service_tier="gold"), "service_tier: must be one of auto, standard_only"),
    (body(inference_geo=1), "inference_geo: must be a string"),
    (body(betas="b"), "betas: must be a list"),
    (body([{**IMAGE, "source": {**IMAGE["source"], "data": "!!"}}]),
     "messages.0.content.0.source.data: is not valid base64"),
    (body([{**IMAGE, "source": {**IMAGE["source"], "media_type": "image/bmp"}}]),
     "source.media_type: must be one of image/jpeg"),
    (body([{**IMAGE, "type": "document"}]), "media_type: must be one of application/pdf"),
    (body(messages=[{"role": "user", "content": "a", "clear_at": "never"}]),
     "messages.0.clear_at: is allowed on messages of the system only"),
    (body([{"type": "tool_addition", "tool": {}}]), "tool_addition is not allowed in a message of"),
    (body("a", [{"type": "fallback", "from": {}}]), "messages.1.content.0.to: is required"),
    (body(tools=[{"type": "mcp_toolset"}]), "tools.0.mcp_server_name: is required"),
    (body(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000, tools=[TOOL],
          tool_choice={"type": "any"}), "thinking: may not be enabled where tool_choice forces"),
    (body(unheard_of=1), "unheard_of: is not a known field"),
    (body(max_tokens=0, stream=True), "stream: cannot be combined with max_tokens 0"),
    (body(max_tokens=0, tools=[TOOL], tool_choice={"type": "any"}), "tool_choice: cannot be"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=[words[:48] for _, words in WRONG])
def test_what_is_refused(wrong: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        parse_request(wrong)
    assert words in error.value.message
    assert error.value.status == 400


def test_what_is_accepted() -> None:
    fine = body(
        "a",
        [{"type": "thinking", "thinking": "hm", "signature": "s"}, text("b"), CALL],
        [{**RESULT, "content": [text("x"), {**text("y"), **MARK}]}, IMAGE],
        system="s",
        tools=[{**TOOL, **MARK}],
        metadata={"user_id": "u"},
        context_management={"edits": []},
        service_tier="auto",
    )
    found = parse_request(fine)
    assert [part.kind for part in found.parts()] == [
        "tool", "text", "text", "thinking", "text", "tool_use", "tool_result", "image",
    ]  # fmt: skip
    lifted = found.messages[2][1][0]
    assert lifted.ttl == "5m"


SETTINGS_THAT_CHANGE_NOTHING: list[dict[str, Any]] = [
    {"billing_policy": {"type": "billing_policy", "bill_to": "self"}},
    {"fallbacks": [{"model": "other"}]},
    {"fallbacks": "default"},
    {"metadata": {"user_id": None}},
    {"service_tier": "standard_only"},
    {"inference_geo": "us"},
    {"betas": ["x"]},
]


@pytest.mark.parametrize("more", SETTINGS_THAT_CHANGE_NOTHING, ids=json.dumps)
def test_what_changes_nothing(more: dict[str, Any]) -> None:
    assert parse_request(body(**more)) == parse_request(body())


def test_counting_takes_the_request_of_a_compaction() -> None:
    asked = body(compaction={"type": "summarize"})
    assert parse_request(asked, counting=True) == parse_request(body(), counting=True)


@pytest.mark.parametrize(
    ("shown", "later", "is_there"),
    [
        (None, True, True),
        ("never", True, True),
        ("next_user_message", False, True),
        ("next_user_message", True, False),
    ],
)
def test_a_message_of_the_system_that_is_cleared(
    shown: str | None, later: bool, is_there: bool
) -> None:
    note = {"role": "system", "content": "note", **({"clear_at": shown} if shown else {})}
    messages = [{"role": "user", "content": "a"}, note]
    messages += [{"role": "user", "content": "b"}] if later else []
    assert ("note" in names(render(body(messages=messages)))) is is_there


def test_blocks_of_hosted_services_are_shown_as_they_are() -> None:
    added = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}
    listing = {"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": []}
    advice = {"type": "advisor_tool_result", "tool_use_id": "x", "content": {"type": "y"}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "system", "content": [added]},
        {"role": "assistant", "content": [listing, advice, text("b")]},
        {"role": "user", "content": "c"},
    ]
    found = names(render(body(tools=[TOOL], messages=messages)))
    for block in (added, listing, advice):
        assert json.dumps(block, separators=(",", ":")) in found


def test_where_another_model_took_over_is_not_rendered() -> None:
    hop = {"type": "fallback", "from": {"model": "x"}, "to": {"model": "y"}}
    with_hop, without = (render(body("a", blocks, "c")) for blocks in ([hop, text("b")], "b"))
    assert with_hop.prompt.tokens == without.prompt.tokens


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ({"type": "computer_toolset_20260801"}, "computer_toolset_20260801"),
        ({"type": "mcp_toolset", "mcp_server_name": "files"}, "files"),
    ],
)
def test_sets_of_tools_have_no_name(tool: dict[str, Any], name: str) -> None:
    (found,) = parse_request(body(tools=[tool])).tools
    assert (found.ids, found.segments) == (name, (json.dumps(tool, separators=(",", ":")),))


def render(request: dict[str, Any], **more: Any) -> Rendered:
    renderer = Renderer(TOKENIZER, frame_of(TOKENIZER, None), media_tokens=10)
    return renderer.render(parse_request(request), "m", **more)


def names(rendered: Rendered) -> str:
    return "".join(TOKENIZER.name_of(t) if t > 255 else chr(t) for t in rendered.prompt.tokens)


def test_bytes_and_one_token_where_the_speaker_changes() -> None:
    found = render(body([text("ab"), text("c")], "d", "e", system="s", tools=[TOOL]))
    tool = json.dumps(TOOL, separators=(",", ":"))
    assert names(found) == f"<|system|>{tool}s<|user|>abc<|assistant|>d<|user|>e<|assistant|>"
    assert found.content_tokens == (1 + len(tool), 1, 3, 1, 2, 2)
    assert found.tail == 1


def test_how_calls_and_results_look() -> None:
    found = render(body("a", [CALL], [{**RESULT, "is_error": True}]))
    assert names(found) == (
        '<|user|>a<|assistant|>{"id":"t1","name":"f","input":{"x":1}}'
        "<|user|>t1 error\nok<|assistant|>"
    )


def test_names_of_control_tokens_in_a_text_are_text() -> None:
    assert render(body("<|system|>")).content_tokens == (1 + len("<|system|>"),)


def test_a_picture_is_a_span_by_its_digest() -> None:
    found = render(body([text("a"), IMAGE, text("b")]))
    (span,) = found.spans
    assert (span.start, span.length, span.kind) == (2, 10, "image")
    assert found.content_tokens == (2, 10, 1)
    other = render(body([text("a"), {**IMAGE, "source": {**IMAGE["source"], "data": "Qg=="}}]))
    assert other.spans[0].digest != span.digest


def test_tools_stand_behind_the_system_prompt_where_the_rules_say_so() -> None:
    found = render(body("a", system="s", tools=[TOOL]), tools_first=False)
    assert names(found).startswith("<|system|>s{")


@pytest.mark.parametrize(
    ("change", "equal"),
    [
        ({}, (True, True, True)),
        ({"tool_choice": {"type": "auto"}}, (True, True, True)),
        ({"tool_choice": {"type": "none"}}, (True, True, False)),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, (True, True, False)),
        ({"thinking": {"type": "disabled"}}, (True, True, True)),
        ({"thinking": {"type": "adaptive"}}, (True, True, False)),
        ({"thinking": {"type": "between_tools"}}, (True, True, False)),
        ({"output_config": {"effort": "high"}}, (True, True, True)),
        ({"output_config": {"effort": "low"}}, (True, True, False)),
        ({"speed": "standard"}, (True, True, True)),
        ({"speed": "fast"}, (True, False, True)),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            (True, False, True),
        ),
        ({"temperature": 0.5, "max_tokens": 9, "stop_sequences": ["x"]}, (True, True, True)),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_which_settings_belong_to_which_level(change: dict[str, Any], equal: Any) -> None:
    plain, changed = (render(body("a", tools=[TOOL], **c)).prompt.settings for c in ({}, change))
    assert tuple(a == b for a, b in zip(plain, changed, strict=True)) == equal


def test_the_order_of_keys_counts_and_markers_do_not() -> None:
    def digests(tool: dict[str, Any]) -> bytes:
        return render(body(tools=[tool])).prompt.blocks[0].digest

    turned = dict(reversed(TOOL.items()))
    assert digests(TOOL) == digests({**TOOL, **MARK})
    assert digests(TOOL) != digests(turned)

"""The earliest change: place, kind and size, by the public reports of prefix changes."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import msgspec
import pytest

from cacheaudit.model.change import Change, equal_bytes, first_change
from cacheaudit.model.tokens import with_recorded_tokens
from cacheaudit.providers.registry import expand


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def tool(name: str, description: str = "does") -> dict[str, Any]:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    return {"name": name, "description": description, "input_schema": schema}


BASE: dict[str, Any] = {
    "model": "claude-opus-5",
    "tools": [tool("a1"), tool("a2"), tool("b1")],
    "system": [text("You are helpful."), text("Today is fine.")],
    "messages": [
        user(text("A" * 533), text("S" * 1501), text("U")),
        assistant(text("ok"), {"type": "tool_use", "id": "t1", "name": "a1", "input": {"c": 1}}),
        user({"type": "tool_result", "tool_use_id": "t1", "content": "done"}),
        assistant(text("fine")),
        user(text("go on")),
    ],
}


def change(edit: Any, base: dict[str, Any] = BASE, **arguments: Any) -> Change:
    other = copy.deepcopy(base)
    edit(other)
    found = first_change(expand(base, **arguments), expand(other, **arguments))
    assert found is not None
    return found


def test_p01_an_injected_block_moved_to_the_newest_message() -> None:
    def resume(body: dict[str, Any]) -> None:
        moved = body["messages"][0]["content"].pop(1)
        body["messages"].append(assistant(text("x")))
        body["messages"].append(user(moved, text("next")))

    found = change(resume)
    assert (found.level, found.path, found.kind) == ("messages", "messages[0].content[1]", "moved")
    assert found.blocks_before == 3 + 2 + 1


def test_p06_tools_of_a_server_that_reconnected() -> None:
    def reconnect(body: dict[str, Any]) -> None:
        a1, a2, b1 = body["tools"]
        body["tools"] = [b1, a1, a2]

    found = change(reconnect)
    assert (found.level, found.path, found.kind) == ("tools", "tools[0]", "reordered")
    assert (found.blocks_before, found.prompt_byte_offset) == (0, 0)


def test_p08_only_the_keys_of_a_schema_flip() -> None:
    def flip(body: dict[str, Any]) -> None:
        schema = body["tools"][1]["input_schema"]
        body["tools"][1]["input_schema"] = dict(reversed(schema.items()))

    found = change(flip)
    assert (found.path, found.kind) == ("tools[1].input_schema", "key_order_only")


def test_p13_a_clock_in_the_system_prompt() -> None:
    first, second = copy.deepcopy(BASE), copy.deepcopy(BASE)
    first["system"][0]["text"] = "Now: 12:30:01. Be kind."
    second["system"][0]["text"] = "Now: 12:30:09. Be kind."
    found = first_change(expand(first), expand(second))
    assert found is not None
    assert (found.level, found.path, found.kind) == ("system", "system[0]", "edited")
    assert found.byte_offset == len("Now: 12:30:0")
    assert found.prompt_byte_offset == sum(len(b.canonical) for b in expand(first).blocks[:3])


def test_p15_the_last_system_block_alone() -> None:
    found = change(lambda body: body["system"].__setitem__(1, text("Today is grey.")))
    assert (found.level, found.path, found.kind) == ("system", "system[1]", "edited")
    assert found.blocks_before == 4


@pytest.mark.parametrize("path", ["messages[1].content[1]"])
def test_p17_arguments_with_their_keys_in_another_order(path: str) -> None:
    base = copy.deepcopy(BASE)
    base["messages"][1]["content"][1]["input"] = {"city": "x", "unit": "c"}

    def resend(body: dict[str, Any]) -> None:
        body["messages"][1]["content"][1]["input"] = {"unit": "c", "city": "x"}

    found = change(resend, base)
    assert (found.path, found.kind) == (path, "key_order_only")


def test_p17_in_the_text_of_a_chat_call() -> None:
    def body(arguments: str) -> dict[str, Any]:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return {
            "model": "gpt-6",
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
            ],
        }

    a = expand(body('{"city": "x", "unit": "c"}'))
    flipped = first_change(a, expand(body('{"unit": "c", "city": "x"}')))
    assert flipped is not None
    assert (flipped.path, flipped.kind) == ("messages[1].tool_calls[0]", "key_order_only")
    spaced = first_change(a, expand(body('{"city":"x","unit":"c"}')))
    assert spaced is not None
    assert spaced.kind == "representation_only"
    edited = first_change(a, expand(body('{"city": "y", "unit": "c"}')))
    assert edited is not None
    assert edited.kind == "edited"


def test_p20_a_parameter_is_not_an_edit() -> None:
    on = {**BASE, "thinking": {"type": "adaptive"}}
    found = change(lambda body: body.__setitem__("thinking", {"type": "disabled"}), on)
    assert (found.level, found.path, found.kind) == ("messages", "thinking", "parameter")
    assert found.blocks_before == 5
    forced = change(lambda body: body.__setitem__("tool_choice", {"type": "any"}))
    assert (forced.level, forced.path, forced.kind) == ("messages", "tool_choice", "parameter")
    switched = change(lambda body: body.__setitem__("model", "claude-opus-5-5"))
    assert (switched.level, switched.path, switched.blocks_before) == ("tools", "model", 0)


def test_p21_a_picture_becomes_a_pointer() -> None:
    source = {
        "type": "base64",
        "media_type": "image/png",
        "data": base64.b64encode(bytes(5000)).decode(),
    }
    base = copy.deepcopy(BASE)
    base["messages"][2]["content"].append({"type": "image", "source": source})

    def point(body: dict[str, Any]) -> None:
        body["messages"][2]["content"][1] = text("[image at /tmp/x.png]")

    found = change(point, base)
    assert (found.path, found.kind) == ("messages[2].content[1]", "edited")
    assert (found.before or "").startswith("image, 5000 bytes")
    assert (found.after or "").startswith("text")


def test_p27_a_warning_in_a_tool_description() -> None:
    def warn(body: dict[str, Any]) -> None:
        body["tools"][1]["description"] += " (failed last turn)"

    found = change(warn)
    assert (found.level, found.path, found.kind) == ("tools", "tools[1].description", "edited")
    assert found.byte_offset == len("does")


def test_added_and_removed() -> None:
    inserted = change(lambda body: body["tools"].insert(1, tool("new")))
    assert (inserted.path, inserted.kind) == ("tools[1]", "added")
    appended = change(lambda body: body["tools"].append(tool("new")))
    assert (appended.path, appended.kind, appended.blocks_before) == ("tools[3]", "added", 3)
    dropped = change(lambda body: body["tools"].pop(1))
    assert (dropped.path, dropped.kind) == ("tools[1]", "removed")
    spliced = change(lambda body: body["messages"].insert(1, assistant(text("new"))))
    assert (spliced.path, spliced.kind) == ("messages[1].content[0]", "added")
    cleared = change(lambda body: body["messages"].pop(1))
    assert (cleared.path, cleared.kind) == ("messages[1].content[0]", "removed")


def test_one_and_one_point_zero_are_one_value() -> None:
    def rewrite(body: dict[str, Any]) -> None:
        body["messages"][1]["content"][1]["input"] = {"c": 1.0}

    assert change(rewrite).kind == "representation_only"

    def truth(body: dict[str, Any]) -> None:
        body["messages"][1]["content"][1]["input"] = {"c": True}

    assert change(truth).kind == "edited"


def test_tokens_behind_the_change_are_the_recorded_ones() -> None:
    counts = [100, 200, 300, 40, 50, 6, 7, 8, 9, 10, 11, 12, 13]
    other = copy.deepcopy(BASE)
    other["messages"][2]["content"][0]["content"] = "undone"
    a = with_recorded_tokens(expand(BASE), counts)
    b = with_recorded_tokens(expand(other), counts)
    assert len(b.blocks) == len(counts)
    found = first_change(a, b)
    assert found is not None
    assert (found.path, found.tokens_after, found.tokens_origin) == (
        "messages[2].content[0]",
        sum(counts[10:]),
        "recorded",
    )


def test_different_render_orders_cannot_be_compared() -> None:
    body = {"model": "x", "messages": [{"role": "system", "content": "s"}]}
    with pytest.raises(ValueError, match="render orders"):
        first_change(expand(body, provider="openai"), expand(body, provider="deepseek"))


def test_no_text_of_the_prompt_is_in_the_result() -> None:
    secret = "sk-very-secret"
    found = change(lambda body: body["system"].__setitem__(0, text(secret)))
    assert secret not in json.dumps([found.before, found.after, found.path])


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [(b"", b"", 0), (b"abc", b"abd", 2), (b"abc", b"abcd", 3), (b"x", b"y", 0), (b"aa", b"a", 1)],
)
def test_equal_bytes(a: bytes, b: bytes, equal: int) -> None:
    assert equal_bytes(a, b) == equal


def test_a_setting_is_shown_without_text() -> None:
    schema = {"title": "Orders of the customer", "type": "object", "maxItems": 4}
    wanted = {"format": {"type": "json_schema", "schema": schema}}
    found = first_change(expand(BASE), expand({**BASE, "output_config": wanted}))
    assert found is not None
    assert found.kind == "parameter"
    assert found.after is not None
    assert "customer" not in found.after
    assert "json_schema" in found.after
    assert "4" in found.after


def test_the_byte_is_unknown_where_only_digests_were_kept() -> None:
    first, second = expand(BASE), expand({**BASE, "system": "It is 12:05."})
    bare = [
        msgspec.structs.replace(
            p, blocks=tuple(msgspec.structs.replace(b, canonical=b"") for b in p.blocks)
        )
        for p in (first, second)
    ]
    found = first_change(*bare)
    assert found is not None
    assert (found.level, found.kind, found.byte_offset) == ("system", "edited", None)

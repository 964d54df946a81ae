"""Key order: values that are equal as JSON and are written in another order make other prompts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from cacheaudit.agent.planner.memory import SessionMemory


encode: Final = msgspec.json.Encoder().encode
# Keys sorted: tells 1 from true, which Python does not.
_sorted: Final = msgspec.json.Encoder(order="deterministic").encode
_KEPT: Final = 4_096
_NOTE: Final = "key order kept as it was sent first"


def reordered(
    messages: Sequence[Any], said: Sequence[Any], count: int, inputs: bytes | None = None
) -> tuple[int, str] | None:
    """Find the first tool call whose arguments are written otherwise than they were.

    Args:
        messages: Messages of a request.
        said: Those of an earlier one.
        count: How many of them are equal, key order aside.
        inputs: What :func:`inputs_of` tells of the earlier ones, where that is known.

    Returns:
        Index of the message, and path of the arguments.
    """
    inputs = inputs_of(said[:count]) if inputs is None else inputs
    if inputs_of(messages[:count]) == inputs:
        return None
    for index, (message, before) in enumerate(zip(messages[:count], said, strict=False)):
        if (
            message.get("role") == "user"
            or (content := message.get("content")).__class__ is not list
        ):
            continue
        for inner, block in enumerate(content):
            given = block.get("input") if block.__class__ is dict else None
            if given and given.__class__ is dict:
                other = before["content"][inner]["input"]
                if list(given) != list(other) or (
                    _is_deep(given) and encode(given) != encode(other)
                ):
                    return index, f"messages[{index}].content[{inner}].input"
    return None


def inputs_of(messages: Sequence[Any]) -> bytes:
    """Write the arguments of all tool calls: that is quicker than to compare their keys."""
    found = [
        block["input"]
        for message in messages
        if message.__class__ is dict
        and message.get("role") != "user"
        and (content := message.get("content")).__class__ is list
        for block in content
        if block.__class__ is dict and "input" in block
    ]
    return encode(found)[1:-1]


def _is_deep(value: dict[str, Any]) -> bool:
    """Whether there are keys further in, whose order counts too."""
    return any(item.__class__ is dict or item.__class__ is list for item in value.values())


def restored(body: Mapping[str, Any], session: SessionMemory) -> Mapping[str, Any]:
    """Return a request with every tool call's arguments in the key order of its first time.

    Calls are told by their ids. Arguments that say something else stay as they are; the request
    itself is returned where nothing differs.
    """
    changed: dict[int, Any] = {}
    field = "messages" if isinstance(body.get("messages"), list) else "input"
    items = body.get(field)
    if not isinstance(items, list):
        return body
    for index, item in enumerate(items):
        made = _item(item, session.inputs)
        if made is not item:
            changed[index] = made
    while len(session.inputs) > _KEPT:
        session.inputs.popitem(last=False)
    if not changed:
        return body
    session.notes.hints[_NOTE] += 1
    return {**body, field: [changed.get(index, item) for index, item in enumerate(items)]}


def _item(item: Any, known: OrderedDict[str, Any]) -> Any:
    """Return a message, or an item of the Responses API, as it is to be sent."""
    if not isinstance(item, dict):
        return item
    if item.get("type") == "function_call":
        return _with(item, "arguments", item.get("call_id"), known)
    for name in ("content", "tool_calls"):
        parts = item.get(name)
        if isinstance(parts, list) and parts:
            made = [_part(part, known) for part in parts]
            if any(new is not old for new, old in zip(made, parts, strict=True)):
                item = {**item, name: made}
    return item


def _part(part: Any, known: OrderedDict[str, Any]) -> Any:
    if not isinstance(part, dict):
        return part
    if isinstance(part.get("input"), dict):
        return _with(part, "input", part.get("id"), known)
    function = part.get("function")
    if isinstance(function, dict):
        made = _with(function, "arguments", part.get("id"), known)
        return part if made is function else {**part, "function": made}
    return part


def _with(holder: dict[str, Any], name: str, key: Any, known: OrderedDict[str, Any]) -> Any:
    value = holder.get(name)
    if not isinstance(key, str) or not isinstance(value, dict | str) or not value:
        return holder
    first = known.setdefault(key, value)
    if first == value:
        return (
            holder
            if encode(first) == encode(value) or not is_same(first, value)
            else {**holder, name: first}
        )
    if isinstance(first, str) and isinstance(value, str) and _is_same_text(first, value):
        return {**holder, name: first}
    return holder


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON, key order aside."""
    return bool(_sorted(one) == _sorted(other))


def _is_same_text(one: str, other: str) -> bool:
    try:
        return is_same(msgspec.json.decode(one), msgspec.json.decode(other))
    except msgspec.DecodeError:
        return False

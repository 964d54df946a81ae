"""The earliest change between two prompts: where it is, of what kind, and what lies behind it."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from cacheaudit.model.prompt import ContentBlock, Level, Parameter, Prompt
from cacheaudit.model.redact import without_text
from cacheaudit.model.tokens import tokens_of

_LONGEST_SETTING = 200

ChangeKind = Literal[
    "added",
    "removed",
    "reordered",
    "edited",
    "key_order_only",
    "representation_only",
    "moved",
    "parameter",
]


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first place where the second prompt leaves the first.

    Attributes:
        level: Level in which it lies.
        path: ``tools[3].input_schema``, ``messages[4].content[1]`` or a parameter's name; a path in
            the second body, except for ``removed``, which names the first.
        kind: What happened there. ``key_order_only``: the same JSON with its keys in another order;
            ``representation_only``: the same JSON value written another way, such as ``1`` and
            ``1.0`` or blanks inside a JSON text; ``moved``: the content block stands further
            back in the second prompt.
        byte_offset: Bytes that still agree inside the changed field (text content counts in
            UTF-8 bytes of the text itself, everything else in bytes of its canonical JSON);
            ``None`` where only digests were kept.
        prompt_byte_offset: Canonical bytes before the changed content block.
        tokens_after: Tokens of the second prompt from the changed content block to its end.
        tokens_origin: ``recorded``, ``counted`` or ``estimated``.
        before: Kind and size of what stood there, without its text.
        after: Kind and size of what stands there now.
        blocks_before: Equal leading content blocks.
    """

    level: Level
    path: str
    kind: ChangeKind
    byte_offset: int | None
    prompt_byte_offset: int
    tokens_after: int | None
    tokens_origin: str | None
    before: str | None = None
    after: str | None = None
    blocks_before: int = 0


class Common(msgspec.Struct, frozen=True, gc=False):
    """How much two prompts share, counted from the front of each level.

    ``tools`` and ``system`` count content blocks, ``messages`` whole messages of the first prompt;
    ``blocks`` counts content blocks from the front of the whole prompt.
    """

    tools: int
    system: int
    messages: int
    blocks: int


def common_prefix(a: Prompt, b: Prompt) -> int:
    """Count the leading content blocks that both prompts share, parameters included.

    Cost: O(log n), since the digests are cumulative.
    """
    low, high = 0, min(len(a.blocks), len(b.blocks))
    while low < high:
        middle = (low + high + 1) // 2
        if a.prefix_digests[middle - 1] == b.prefix_digests[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


def is_extension(a: Prompt, b: Prompt) -> bool:
    """Whether ``b`` begins with all of ``a`` under the same parameters."""
    return (
        set(a.parameters) == set(b.parameters)
        and len(b.blocks) >= len(a.blocks)
        and common_prefix(a, b) == len(a.blocks)
    )


def common(a: Prompt, b: Prompt) -> Common:
    """Count what two prompts share, each level for itself (parameters are not looked at)."""
    return Common(
        tools=_equal_blocks(a.at_level("tools"), b.at_level("tools")),
        system=_equal_blocks(a.at_level("system"), b.at_level("system")),
        messages=_equal_messages(a.at_level("messages"), b.at_level("messages")),
        blocks=common_prefix(a, b),
    )


def first_change(a: Prompt, b: Prompt) -> Change | None:
    """Find the earliest change from ``a`` to ``b`` in render order.

    Returns:
        ``None`` where ``b`` equals ``a`` or only appends to its messages: nothing that a cache
        holds is lost then.
    """
    if a.level_order != b.level_order:
        raise ValueError(
            f"Prompts of {a.provider!r} and {b.provider!r} have different render orders."
        )
    position = 0
    for level in b.level_order:
        changed = _changed_parameter(a, b, level)
        if changed is not None:
            return _parameter_change(b, changed[0], changed[1], level, position)
        mine, theirs = a.at_level(level), b.at_level(level)
        equal = _equal_blocks(mine, theirs)
        position += equal
        is_last = level == b.level_order[-1]
        if equal == len(mine) and (is_last or equal == len(theirs)):
            continue
        return _block_change(b, level, mine, theirs, equal, position)
    return None


def _changed_parameter(a: Prompt, b: Prompt, level: Level) -> tuple[Parameter | None, str] | None:
    before = {p.name: p for p in a.parameters if p.level == level}
    after = {p.name: p for p in b.parameters if p.level == level}
    for name in sorted(before.keys() | after.keys(), key=lambda n: (n != "model", n)):
        if before.get(name) != after.get(name):
            return after.get(name), name
    return None


def _parameter_change(
    b: Prompt, after: Parameter | None, name: str, level: Level, position: int
) -> Change:
    tokens, origin = tokens_of(b.blocks[position:])
    return Change(
        level=level,
        path=name,
        kind="parameter",
        byte_offset=0,
        prompt_byte_offset=_bytes_before(b, position),
        tokens_after=tokens,
        tokens_origin=origin,
        after=None if after is None else _setting(after.value),
        blocks_before=position,
    )


def _setting(value: bytes) -> str:
    """Write a setting without what may be text of a user's, such as a schema's descriptions."""
    try:
        value = msgspec.json.encode(without_text(msgspec.json.decode(value)))
    except msgspec.DecodeError:
        value = b""
    return value.decode(errors="replace")[:_LONGEST_SETTING]


def _block_change(
    b: Prompt,
    level: Level,
    mine: tuple[ContentBlock, ...],
    theirs: tuple[ContentBlock, ...],
    equal: int,
    position: int,
) -> Change:
    kind = _kind(mine, theirs, equal, level)
    old = mine[equal] if equal < len(mine) else None
    new = theirs[equal] if equal < len(theirs) else None
    subject = old if kind == "removed" or new is None else new
    path = subject.path if subject else level
    offset: int | None = 0
    if old is not None and new is not None and kind not in ("added", "removed"):
        if kind in ("edited", "key_order_only", "representation_only"):
            field, offset = _field_offset(old, new)
            path = f"{path}.{field}" if level == "tools" and field else path
        if kind == "moved":
            path = old.path
    tokens, origin = tokens_of(b.blocks[position:])
    return Change(
        level=level,
        path=path,
        kind=kind,
        byte_offset=offset,
        prompt_byte_offset=_bytes_before(b, position),
        tokens_after=tokens,
        tokens_origin=origin,
        before=_describe(old),
        after=_describe(new),
        blocks_before=position,
    )


def _kind(
    mine: tuple[ContentBlock, ...], theirs: tuple[ContentBlock, ...], at: int, level: Level
) -> ChangeKind:
    if at == len(mine):
        return "added"
    if at == len(theirs):
        return "removed"
    old, new = mine[at], theirs[at]
    if _same_subject(old, new, level):
        return _edit_kind(old, new)
    old_keys = [_identity(block, level) for block in mine[at:]]
    new_keys = [_identity(block, level) for block in theirs[at:]]
    # Counted, since equal content blocks may stand in several places.
    old_stays = new_keys.count(old_keys[0]) >= old_keys.count(old_keys[0])
    new_was_there = old_keys.count(new_keys[0]) >= new_keys.count(new_keys[0])
    if old_stays and new_was_there:
        place = theirs[at + new_keys.index(old_keys[0])]
        closed_up = len(old_keys) > 1 and new_keys[0] == old_keys[1]
        elsewhere = level != "tools" and place.message != old.message
        return "moved" if closed_up and elsewhere else "reordered"
    if new_was_there:
        return "removed"
    if old_stays:
        # An insertion shifts everything behind it; a block that jumps alone has moved.
        return "added" if _rest_follows(old_keys, new_keys) else "moved"
    if level == "messages" and old.message != new.message:
        # The message before it lost its last content blocks, or got further ones.
        return "removed" if old.message < new.message else "added"
    return _edit_kind(old, new)


def _rest_follows(old_keys: list[Any], new_keys: list[Any]) -> bool:
    """Whether the old blocks continue in their old order right where the first one reappears."""
    start = new_keys.index(old_keys[0])
    behind = new_keys[start:]
    return behind[: len(old_keys)] == old_keys[: len(behind)] and len(behind) >= min(
        2, len(old_keys)
    )


def _same_subject(old: ContentBlock, new: ContentBlock, level: Level) -> bool:
    if level == "tools":
        return old.name is not None and old.name == new.name
    return False


def _identity(block: ContentBlock, level: Level) -> str | bytes:
    if level == "tools" and block.name is not None:
        return block.name
    return block.digest


def _edit_kind(old: ContentBlock, new: ContentBlock) -> ChangeKind:
    if not old.canonical or not new.canonical:
        return "edited"  # only digests were kept
    before, after = _decoded(old), _decoded(new)
    if _same_but_for_key_order(before, after):
        return "key_order_only"
    if _same_value(before, after):
        return "representation_only"
    return "edited"


def _decoded(block: ContentBlock) -> Any:
    return _open_json_texts(msgspec.json.decode(block.canonical))


def _open_json_texts(value: Any) -> Any:
    """Read the JSON text of a function call's arguments, so that key order is seen inside it."""
    if isinstance(value, dict):
        opened = {key: _open_json_texts(item) for key, item in value.items()}
        text = opened.get("arguments")
        if isinstance(text, str):
            try:
                opened["arguments"] = {"json": msgspec.json.decode(text)}
            except msgspec.DecodeError:
                return opened
        return opened
    if isinstance(value, list):
        return [_open_json_texts(item) for item in value]
    return value


def _same_but_for_key_order(before: Any, after: Any) -> bool:
    encode = msgspec.json.encode
    return encode(before) != encode(after) and encode(before, order="sorted") == encode(
        after, order="sorted"
    )


def _same_value(before: Any, after: Any) -> bool:
    """Compare JSON values by value: ``1`` equals ``1.0``, but ``true`` does not equal ``1``."""
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    if isinstance(before, int | float) and isinstance(after, int | float):
        return before == after or (
            isinstance(before, float)
            and isinstance(after, float)
            and math.isnan(before)
            and math.isnan(after)
        )
    if type(before) is not type(after):
        return False
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(
            _same_value(before[key], after[key]) for key in before
        )
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_same_value, before, after))
    return bool(before == after)


def _field_offset(old: ContentBlock, new: ContentBlock) -> tuple[str, int | None]:
    """Name the first differing field and count the bytes of it that still agree."""
    if not old.canonical or not new.canonical:
        return "", None
    before, after = msgspec.json.decode(old.canonical), msgspec.json.decode(new.canonical)
    found = _differing_field(before, after)
    return found if found is not None else ("", equal_bytes(old.canonical, new.canonical))


def _differing_field(before: Any, after: Any) -> tuple[str, int] | None:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return None
    for key in sorted(before.keys() | after.keys(), key=lambda k: (k not in before, k)):
        mine, theirs = before.get(key), after.get(key)
        if msgspec.json.encode(mine) == msgspec.json.encode(theirs):
            continue
        # Chat Completions wraps a tool's definition; what changed lies inside the wrapping.
        inner = _differing_field(mine, theirs) if key == "function" else None
        if inner is not None:
            return f"{key}.{inner[0]}", inner[1]
        return key, equal_bytes(_plain_bytes(mine), _plain_bytes(theirs))
    return None


def _plain_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def equal_bytes(a: bytes, b: bytes) -> int:
    """Count the leading bytes that two byte strings share; O(n) with a small constant."""
    limit = min(len(a), len(b))
    if a[:limit] == b[:limit]:
        return limit
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _equal_blocks(mine: tuple[ContentBlock, ...], theirs: tuple[ContentBlock, ...]) -> int:
    count = 0
    for a, b in zip(mine, theirs, strict=False):
        if a.digest != b.digest:
            break
        count += 1
    return count


def _equal_messages(mine: tuple[ContentBlock, ...], theirs: tuple[ContentBlock, ...]) -> int:
    """Count whole equal leading messages."""
    ours, others = _by_message(mine), _by_message(theirs)
    count = 0
    for a, b in zip(ours, others, strict=False):
        if a != b:
            break
        count += 1
    return count


def _by_message(blocks: tuple[ContentBlock, ...]) -> list[tuple[int, list[bytes]]]:
    grouped: list[tuple[int, list[bytes]]] = []
    for block in blocks:
        if not grouped or grouped[-1][0] != block.message:
            grouped.append((block.message, []))
        grouped[-1][1].append(block.digest)
    return grouped


def _bytes_before(prompt: Prompt, position: int) -> int:
    return sum(block.size for block in prompt.blocks[:position])


def _describe(block: ContentBlock | None) -> str | None:
    if block is None:
        return None
    name = f" {block.name}" if block.name and block.kind == "tool" else ""
    size = block.media_bytes or block.size
    return f"{block.kind}{name}, {size} bytes"

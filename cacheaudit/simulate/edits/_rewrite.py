"""What edits share: prompts rebuilt from changed content blocks, lanes, common prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Level, Marker, Parameter, Prompt, chain, digest
from cacheaudit.simulate.edit import EditRefused, NothingToEdit
from cacheaudit.simulate.request import is_sketch

MOST_MARKERS: Final = 4
DEFAULT_TTL: Final = "5m"
TTL_SECONDS: Final[Mapping[str, float]] = {"5m": 300.0, "1h": 3600.0, "30m": 1800.0, "12h": 43200.0}
_NOT_MARKABLE: Final = frozenset({"thinking", "redacted_thinking", "settings"})
replace = msgspec.structs.replace


def need_prompts(calls: Sequence[Call], name: str, *, sizes: bool = False) -> None:
    """Check that requests were recorded.

    Args:
        calls: The calls.
        name: Name of the edit.
        sizes: Sketches from sizes will do.

    Raises:
        EditRefused: None was.
    """
    prompts = (call.prompt for call in calls if call.prompt is not None)
    if not any(sizes or not is_sketch(prompt) for prompt in prompts):
        raise EditRefused(
            f"{name}: the record holds no requests, only usage.",
            "Record with bodies; ttl, keep-alive, keep-prefix, fan-out, wait, model, one-route and "
            "compact need sizes only, and so does the backtest of lifetimes.",
        )


def need_change(before: Sequence[Call], after: Sequence[Call], why: str) -> Sequence[Call]:
    """Return ``after`` where it differs.

    Raises:
        NothingToEdit: Nothing changed.
    """
    if len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True)):
        raise NothingToEdit(why)
    return after


def with_prompt(call: Call, prompt: Prompt) -> Call:
    """Put another prompt into a call; its recorded usage then says only what it still can."""
    if prompt is call.prompt:
        return call
    usage = call.usage
    tokens = prompt.tokens
    if usage is not None and tokens is not None and tokens != usage.total_input:
        usage = replace(usage, total_input=tokens, context_input=None, parts=())
    return replace(call, prompt=prompt, usage=usage)


def rebuilt(
    prompt: Prompt,
    blocks: Iterable[ContentBlock],
    parameters: tuple[Parameter, ...] | None = None,
) -> Prompt:
    """Make a prompt of other content blocks or settings; what stays in front keeps its identity."""
    numbered = renumbered(blocks)
    settings = prompt.parameters if parameters is None else parameters
    digests = chain(prompt.level_order, settings, numbered, prompt)
    return replace(prompt, blocks=numbered, parameters=settings, prefix_digests=digests)


def renumbered(blocks: Iterable[ContentBlock]) -> tuple[ContentBlock, ...]:
    """Give every content block the path of the place where it now stands."""
    counts: dict[tuple[Level, int], int] = {}
    found: list[ContentBlock] = []
    for block in blocks:
        if block.kind == "settings":
            found.append(block)
            continue
        key = (block.level, block.message)
        index = counts.get(key, 0)
        counts[key] = index + 1
        inside = block.level == "messages" and block.message >= 0
        path = (
            f"messages[{block.message}].content[{index}]" if inside else f"{block.level}[{index}]"
        )
        found.append(block if block.path == path else replace(block, path=path))
    return tuple(found)


def remade(block: ContentBlock, canonical: bytes, **changes: object) -> ContentBlock:
    """Make a content block with other content."""
    return replace(
        block, canonical=canonical, digest=digest(canonical), canonical_bytes=0, **changes
    )


def remarked(prompt: Prompt, markers: Mapping[int, Marker | None]) -> Prompt:
    """Set or remove markers; no identity changes."""
    blocks = list(prompt.blocks)
    changed = False
    for index, marker in markers.items():
        if blocks[index].marker != marker:
            blocks[index] = replace(blocks[index], marker=marker)
            changed = True
    return replace(prompt, blocks=tuple(blocks)) if changed else prompt


def marked_at(prompt: Prompt) -> list[int]:
    """List the content blocks that carry a marker."""
    return [index for index, block in enumerate(prompt.blocks) if block.marker is not None]


def room(prompt: Prompt) -> int:
    """Count the markers that may still be set."""
    used = len(marked_at(prompt)) + (prompt.automatic_marker is not None)
    return MOST_MARKERS - used


def markable(prompt: Prompt, index: int) -> int:
    """Return the content block at or before ``index`` that may carry a marker, -1 for none."""
    while index >= 0 and prompt.blocks[index].kind in _NOT_MARKABLE:
        index -= 1
    return index


def tail_marker(prompt: Prompt) -> Marker:
    """Return the marker that the end of the prompt carries, or the provider's default."""
    if prompt.automatic_marker is not None:
        return prompt.automatic_marker
    indices = marked_at(prompt)
    found = prompt.blocks[indices[-1]].marker if indices else None
    return Marker() if found is None else found


def last_marked(prompt: Prompt) -> int:
    """Return the last content block whose end is written, -1 for none."""
    indices = marked_at(prompt)
    explicit = indices[-1] if indices else -1
    if prompt.automatic_marker is None:
        return explicit
    return max(explicit, markable(prompt, len(prompt.blocks) - 1))


def common_blocks(mine: Prompt, theirs: Prompt) -> int:
    """Count leading content blocks that two prompts share, by bisection."""
    low, high = 0, min(len(mine.blocks), len(theirs.blocks))
    while low < high:
        middle = (low + high + 1) // 2
        if mine.prefix_digests[middle - 1] == theirs.prefix_digests[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


def with_previous(calls: Sequence[Call]) -> Iterator[tuple[int, Call, Call | None]]:
    """Yield each call with the one whose context it extends: its parent, else its lane's last."""
    by_id: dict[str, Call] = {}
    last: dict[str, Call] = {}
    for index, call in enumerate(calls):
        before = by_id.get(call.parent) if call.parent else None
        yield index, call, before or last.get(call.lane)
        by_id[call.id] = call
        if call.purpose not in ("keep_alive", "compaction", "probe", "retry"):
            last[call.lane] = call


def in_order(calls: Iterable[Call]) -> list[Call]:
    """Sort calls by start; calls without a time keep their place behind the one before them."""
    keyed: list[tuple[float, int, Call]] = []
    latest = float("-inf")
    for number, call in enumerate(calls):
        at = call.at
        latest = latest if at is None else at
        keyed.append((latest, number, call))
    keyed.sort(key=lambda item: item[:2])
    return [call for _, _, call in keyed]


def shifted(call: Call, seconds: float) -> Call:
    """Move a call in time."""
    if not seconds:
        return call

    def move(at: float | None) -> float | None:
        return None if at is None else at + seconds

    span = call.start_span
    return replace(
        call,
        started_at=move(call.started_at),
        first_token_at=move(call.first_token_at),
        ended_at=move(call.ended_at),
        start_span=None if span is None else type(span)(span.low + seconds, span.high + seconds),
    )


def readable_from(call: Call) -> float | None:
    """Moment from which what a call writes can be read, ``None`` where it is not known."""
    return call.first_token_at if call.first_token_at is not None else call.ended_at

"""Sizes for edits to move about: each content block gets the size that the simulator gives it.

Edits take content blocks apart and put them together; what a block weighs must not depend on where
it then stands. The sizes are therefore settled once, on the calls as recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Prompt
from cacheaudit.simulate.build import Builder, Built
from cacheaudit.simulate.switches import Switches


def sized(calls: Sequence[Call], switches: Switches) -> list[Call]:
    """Fix the size of every content block; calls must be in order of start.

    Prompts whose sizes were all recorded, and those that cannot be simulated, stay as they are.
    """
    builder = Builder(switches)
    known: dict[tuple[str, bytes], ContentBlock] = {}
    found: list[Call] = []
    for call in calls:
        prompt = call.prompt
        built = builder.build(call) if prompt is not None else None
        if prompt is None or not isinstance(built, Built) or _is_settled(prompt):
            found.append(call)
            continue
        if len(built.request.digests) != len(prompt.blocks):
            found.append(call)  # content left out by the provider: sizes belong to another list
            continue
        found.append(msgspec.structs.replace(call, prompt=_with(prompt, built, known)))
    return found


def _is_settled(prompt: Prompt) -> bool:
    return all(
        block.tokens is not None and block.tokens_origin != "estimated" for block in prompt.blocks
    )


def _with(prompt: Prompt, built: Built, known: dict[tuple[str, bytes], ContentBlock]) -> Prompt:
    sums = built.request.sizes
    blocks: list[ContentBlock] = []
    before = 0
    for index, block in enumerate(prompt.blocks):
        upto = sums[index]
        key = (block.path, prompt.prefix_digests[index])
        size = upto - before
        before = upto
        same = known.get(key)
        if same is None or same.marker != block.marker or same.tokens != size:
            same = msgspec.structs.replace(block, tokens=size, tokens_origin="counted")
            known[key] = same
        blocks.append(same)
    return msgspec.structs.replace(prompt, blocks=tuple(blocks))

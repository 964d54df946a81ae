"""Sizes of content blocks, as :func:`cacheaudit.model.tokens.calibrated` gives them.

The estimate of a block that stood there before is not made again; a test holds the two equal.
"""

from __future__ import annotations

from itertools import accumulate

import msgspec

from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import estimate

Weights = tuple[int, ...]


def weigh(prompt: Prompt, before: Prompt | None = None, weights: Weights = ()) -> Weights:
    """Estimate the size of every content block.

    Args:
        prompt: The prompt.
        before: A prompt whose blocks may be the same objects.
        weights: The estimates of its blocks.
    """
    if before is None:
        return tuple(map(estimate, prompt.blocks))
    old = before.blocks
    count = 0
    for mine, theirs in zip(prompt.blocks, old, strict=False):
        if mine is not theirs:
            break
        count += 1
    return (*weights[:count], *map(estimate, prompt.blocks[count:]))


def sized(prompt: Prompt, weights: Weights, total_input: int | None) -> Prompt:
    """Give the blocks sizes that add up to a recorded total, in proportion to their estimates.

    Args:
        prompt: A prompt of which no size is known.
        weights: Estimates of its blocks.
        total_input: What they add up to; ``None``: not known, sizes neither.
    """
    if total_input is None or total_input < 0:
        return prompt
    sums = list(accumulate(weights))
    whole = sums[-1] if sums else 0
    if not whole:
        return prompt
    upto = [total_input * size // whole for size in sums]
    replace = msgspec.structs.replace
    blocks = tuple(
        [
            replace(block, tokens=end - start, tokens_origin="estimated")
            for block, start, end in zip(prompt.blocks, [0, *upto], upto, strict=False)
        ]
    )
    return replace(prompt, blocks=blocks)

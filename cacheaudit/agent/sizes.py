"""Sizes of content blocks, as :func:`cacheaudit.model.tokens.calibrated` gives them.

The estimate of a block that stood there before is not made again; a test holds the two equal. A
call carries its sizes beside its prompt, so that the content blocks of a conversation stay the same
objects from call to call: whoever sees that two are need not compare them.
"""

from __future__ import annotations

from itertools import accumulate
from operator import is_

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import estimate

Weights = tuple[int, ...]


class Made(msgspec.Struct, frozen=True):
    """A recorded call.

    Attributes:
        call: The call; where ``tokens`` are there, the content blocks of its prompt have no size.
        tokens: Their sizes, estimated; empty where none is known or the prompt holds them.
    """

    call: Call
    tokens: Weights = ()

    def whole(self) -> Call:
        """Return the call with the sizes in place."""
        prompt = self.call.prompt
        if not self.tokens or prompt is None:
            return self.call
        return msgspec.structs.replace(self.call, prompt=_with(prompt, self.tokens))


def weigh(prompt: Prompt, before: Prompt | None = None, weights: Weights = ()) -> Weights:
    """Estimate the size of every content block.

    Args:
        prompt: The prompt.
        before: A prompt whose blocks may be the same objects.
        weights: The estimates of its blocks.
    """
    if before is None:
        return tuple(map(estimate, prompt.blocks))
    count = same_blocks(prompt, before)
    return (*weights[:count], *map(estimate, prompt.blocks[count:]))


def same_blocks(one: Prompt, other: Prompt) -> int:
    """Count the leading content blocks that are the very same objects."""
    mine, theirs = one.blocks, other.blocks
    if all(map(is_, mine, theirs)):
        return min(len(mine), len(theirs))
    return next(
        i for i, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] is not pair[1]
    )


def spread(weights: Weights, total_input: int | None) -> Weights:
    """Spread a recorded total over content blocks, in proportion to their estimates.

    Args:
        weights: The estimates.
        total_input: What the sizes add up to; ``None``: not known.

    Returns:
        Empty where nothing is known.
    """
    if total_input is None or total_input < 0:
        return ()
    sums = list(accumulate(weights))
    whole = sums[-1] if sums else 0
    if not whole:
        return ()
    upto = [total_input * size // whole for size in sums]
    return tuple(map(int.__sub__, upto, [0, *upto]))


def sized(prompt: Prompt, weights: Weights, total_input: int | None) -> Prompt:
    """Give the blocks sizes that add up to a recorded total, in proportion to their estimates.

    Args:
        prompt: A prompt of which no size is known.
        weights: Estimates of its blocks.
        total_input: What they add up to; ``None``: not known, sizes neither.
    """
    tokens = spread(weights, total_input)
    return _with(prompt, tokens) if tokens else prompt


def _with(prompt: Prompt, tokens: Weights) -> Prompt:
    replace = msgspec.structs.replace
    blocks = tuple(
        [
            replace(block, tokens=count, tokens_origin="estimated")
            for block, count in zip(prompt.blocks, tokens, strict=True)
        ]
    )
    return replace(prompt, blocks=blocks)

"""Sizes of content blocks in tokens: recorded, counted, or estimated and then calibrated."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cacheaudit.errors import PromptError
from cacheaudit.model.prompt import ContentBlock, Prompt

# Mean over English prose, code and JSON for present tokenizers; calibration replaces it wherever
# a recorded total is known.
BYTES_PER_TOKEN = 3.6
# A picture of ordinary size: (width x height) / 750, capped at about 1,600 tokens.
IMAGE_TOKENS = 1_600
# A page of a document is some 80 KB and costs about 2,000 tokens, as text and as picture.
DOCUMENT_BYTES_PER_TOKEN = 40
# What stands for the data of a picture in canonical bytes.
_MEDIA_MARK = b'"blake2b:'
_WEAKEST = {"estimated": 0, "counted": 1, "recorded": 2}


def estimate(block: ContentBlock) -> int:
    """Estimate the size of a content block in tokens from its bytes, pictures apart; at least 1."""
    if block.kind == "image":
        return IMAGE_TOKENS
    tokens = round(block.size / BYTES_PER_TOKEN)
    if block.media_bytes and block.kind == "document":
        tokens += round(block.media_bytes / DOCUMENT_BYTES_PER_TOKEN)
    elif block.media_bytes:
        tokens += IMAGE_TOKENS * max(1, block.canonical.count(_MEDIA_MARK))
    return max(1, tokens)


def tokens_of(blocks: Sequence[ContentBlock]) -> tuple[int, str]:
    """Sum sizes; unknown ones are estimated.

    Returns:
        Tokens, and the weakest origin among them (``estimated`` < ``counted`` < ``recorded``).
    """
    total, weakest = 0, "recorded"
    for block in blocks:
        if block.tokens is None:
            total += estimate(block)
            weakest = "estimated"
            continue
        total += block.tokens
        origin = block.tokens_origin or "estimated"
        if _WEAKEST[origin] < _WEAKEST[weakest]:
            weakest = origin
    return total, weakest


def with_recorded_tokens(prompt: Prompt, counts: Sequence[int]) -> Prompt:
    """Attach recorded sizes.

    Args:
        prompt: The prompt.
        counts: One count a content block, in render order.

    Raises:
        PromptError: The number of counts differs from the number of content blocks.
    """
    if len(counts) != len(prompt.blocks):
        raise PromptError(
            f"content_tokens has {len(counts)} entries, the request {len(prompt.blocks)} blocks.",
            "Give one count for each content block in render order: tools, system, messages.",
        )
    blocks = tuple(
        msgspec.structs.replace(block, tokens=count, tokens_origin="recorded")
        for block, count in zip(prompt.blocks, counts, strict=True)
    )
    return msgspec.structs.replace(prompt, blocks=blocks)


def calibrated(prompt: Prompt, total_input: int) -> Prompt:
    """Estimate every unknown size so that all sizes add up to a recorded total.

    Remainders are spread by cumulative rounding, so the sum is exact and each block is off by at
    most one token from its proportional share. Known sizes are left alone.
    """
    known = sum(block.tokens for block in prompt.blocks if block.tokens is not None)
    unknown = [block for block in prompt.blocks if block.tokens is None]
    rest = total_input - known
    weights = [estimate(block) for block in unknown]
    whole = sum(weights)
    if rest < 0 or not whole:
        return prompt
    counts: list[int] = []
    running = given = 0
    for weight in weights:
        running += weight
        upto = rest * running // whole
        counts.append(upto - given)
        given = upto
    share = iter(counts)
    blocks = tuple(
        block
        if block.tokens is not None
        else msgspec.structs.replace(block, tokens=next(share), tokens_origin="estimated")
        for block in prompt.blocks
    )
    return msgspec.structs.replace(prompt, blocks=blocks)

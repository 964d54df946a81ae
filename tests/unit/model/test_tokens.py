"""Sizes of content blocks: estimates, recorded counts, calibration to a known total."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.errors import PromptError
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import (
    IMAGE_TOKENS,
    calibrated,
    estimate,
    tokens_of,
    with_recorded_tokens,
)
from cacheaudit.providers.registry import expand


def prompt(*texts: str) -> Prompt:
    return expand({"system": [{"type": "text", "text": text} for text in texts], "messages": []})


def media(kind: str, size: int, *, in_result: bool = False) -> Any:
    data = base64.b64encode(bytes(size)).decode()
    source = {"type": "base64", "media_type": "x/y", "data": data}
    block: dict[str, Any] = {"type": kind, "source": source}
    if in_result:
        block = {"type": "tool_result", "tool_use_id": "t", "content": [block, block]}
    body = {"model": "claude", "messages": [{"role": "user", "content": [block]}]}
    return expand(body).blocks[0]


def test_estimates_follow_the_size() -> None:
    short, long = prompt("a", "a" * 36_000).blocks
    assert estimate(short) >= 1
    assert 9_900 < estimate(long) < 10_100


def test_a_picture_is_not_counted_by_its_bytes() -> None:
    assert estimate(media("image", 400_000)) == IMAGE_TOKENS
    screenshots = media("image", 400_000, in_result=True)
    assert screenshots.media_bytes == 800_000
    assert 2 * IMAGE_TOKENS <= estimate(screenshots) < 2 * IMAGE_TOKENS + 200


def test_a_document_is_smaller_than_its_bytes_as_text() -> None:
    assert 2_000 < estimate(media("document", 400_000)) < 50_000


@given(
    st.lists(st.text("ab", max_size=50), min_size=1, max_size=12),
    st.integers(min_value=0, max_value=100_000),
)
def test_calibrated_sizes_add_up_exactly(texts: list[str], total: int) -> None:
    found = calibrated(prompt(*texts), total)
    assert found.tokens == total
    assert all((block.tokens or 0) >= 0 for block in found.blocks)
    weights = [estimate(block) for block in prompt(*texts).blocks]
    for block, weight in zip(found.blocks, weights, strict=True):
        assert abs((block.tokens or 0) - total * weight / sum(weights)) <= 1
    assert tokens_of(found.blocks) == (total, "estimated")


def test_recorded_sizes_are_left_alone_and_known() -> None:
    recorded = with_recorded_tokens(prompt("a", "b"), [3, 4])
    assert (recorded.tokens, tokens_of(recorded.blocks)) == (7, (7, "recorded"))
    assert calibrated(recorded, 100) == recorded
    with pytest.raises(PromptError, match="3 entries, the request 2 blocks"):
        with_recorded_tokens(prompt("a", "b"), [1, 2, 3])


def test_unknown_sizes_are_unknown() -> None:
    assert prompt("a").tokens is None
    assert tokens_of(prompt("a").blocks)[1] == "estimated"

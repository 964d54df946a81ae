"""The server's own minimum at a scale: divided to the nearest, as sizes are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.jobs.replaying.body import scaled
from local_backend.rules.anthropic import AnthropicRules, AnthropicSettings
from local_backend.server.options import parse_options
from local_backend.server.settings import Settings


@pytest.mark.parametrize(
    ("scale", "model", "wanted"),
    [
        (1, "claude-opus-5", 512),
        (10, "claude-opus-5", 51),
        (50, "claude-opus-5", 10),
        (10, "claude-haiku-4-5", 410),
        (10, "tiny", 102),
        (10_000, "tiny", 1),
    ],
)
def test_minimums(scale: int, model: str, wanted: int) -> None:
    assert AnthropicRules(AnthropicSettings(scale=scale)).minimum(model) == wanted


@given(st.integers(1, 5_000), st.integers(2, 500))
def test_a_prefix_of_one_block_passes_the_minimum_where_it_did(tokens: int, scale: int) -> None:
    """Unless both are rounded to the same size."""
    least = AnthropicRules(AnthropicSettings(scale=scale)).minimum("claude-opus-5")
    if tokens >= 512:
        assert scaled(tokens, scale) >= least
    elif scaled(tokens, scale) != scaled(512, scale):
        assert scaled(tokens, scale) < least


def test_the_option() -> None:
    assert parse_options(["--token-scale", "20"], {}).token_scale == 20
    assert parse_options([], {}).token_scale == Settings().token_scale == 1

"""The request that refreshes an entry: the same, but for its output."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.agent.keep_alive.economy import Ineligible
from cacheaudit.agent.keep_alive.replay import Replay, replay, replay_url
from cacheaudit.providers.registry import expand

BODY: dict[str, Any] = {
    "model": "claude-opus-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "hi"}],
}


@pytest.mark.parametrize(
    ("surface", "limit"),
    [
        ("claude_api", 0),
        ("claude_aws", 0),
        ("foundry", 0),
        ("local", 0),
        ("bedrock", 1),
        ("google_cloud", 1),
        ("other", 1),
        (None, 1),
    ],
)
def test_the_limit_follows_the_platform(surface: str | None, limit: int) -> None:
    made = replay(BODY, surface)
    assert isinstance(made, Replay)
    assert (made.body["max_tokens"], made.output_tokens) == (limit, limit)


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://h/v1/messages?beta=true", "https://h/v1/messages?beta=true"),
        ("https://h/model/a%3A0/invoke-with-response-stream", "https://h/model/a%3A0/invoke"),
        ("https://h/models/c@1:streamRawPredict", "https://h/models/c@1:rawPredict"),
        ("https://h/model/a/invoke", "https://h/model/a/invoke"),
    ],
)
def test_streaming_addresses_have_a_plain_one(url: str, plain: str) -> None:
    assert replay_url(url) == plain


@pytest.mark.parametrize(
    "body",
    [
        {"model": "gpt-6.1", "input": "hi", "max_tokens": 3},
        {"model": "m", "messages": [], "max_completion_tokens": 3},
        {"model": "m", "max_tokens": 3},
    ],
)
def test_other_apis_are_left_alone(body: dict[str, Any]) -> None:
    assert replay(body) == Ineligible("other_api")


extras = st.fixed_dictionaries(
    {},
    optional={
        "stream": st.booleans(),
        "temperature": st.floats(0, 1),
        "tool_choice": st.sampled_from([{"type": "auto"}, {"type": "any"}]),
        "tools": st.just([{"name": "f", "input_schema": {"b": 1, "a": 2}}]),
        "system": st.sampled_from(["rules", [{"type": "text", "text": "rules"}]]),
        "diagnostics": st.just({"previous_message_id": None}),
        "output_config": st.sampled_from([{"effort": "low"}, {"format": {"type": "json_schema"}}]),
        "thinking": st.sampled_from([{"type": "adaptive"}, {"type": "disabled"}]),
        "speed": st.just("fast"),
        "cache_control": st.just({"type": "ephemeral"}),
    },
)


@given(extras)
def test_the_prompt_stays_the_same(more: dict[str, Any]) -> None:
    body = {**BODY, **more}
    before = copy.deepcopy(body)
    made = replay(body)
    assert body == before
    assert isinstance(made, Replay)
    old, new = expand(body), expand(made.body)
    assert old.prefix_digests == new.prefix_digests
    assert old.parameters == new.parameters
    assert old.marked == new.marked
    changed = {n for n in body if body.get(n) != made.body.get(n)}
    assert changed <= {"max_tokens", "stream", "diagnostics"}

"""The provider's own word on a miss, in every state that the two APIs have."""

from __future__ import annotations

from typing import Any

import pytest

from cacheaudit.dialects.diagnostics import miss_reason
from cacheaudit.model.call import MissReason

ASKED = {"diagnostics": {"previous_message_id": "msg_0"}}


@pytest.mark.parametrize(
    "kind", ["model_changed", "system_changed", "tools_changed", "messages_changed"]
)
def test_the_changed_kinds_carry_an_estimate(kind: str) -> None:
    reason = {"type": kind, "cache_missed_input_tokens": 4321}
    found = miss_reason({"diagnostics": {"cache_miss_reason": reason}})
    assert found == MissReason(kind, 4321)


@pytest.mark.parametrize("kind", ["previous_message_not_found", "unavailable"])
def test_the_others_do_not(kind: str) -> None:
    found = miss_reason({"diagnostics": {"cache_miss_reason": {"type": kind}}})
    assert found == MissReason(kind, None)


def test_states_of_the_messages_api() -> None:
    assert miss_reason({}) is None
    assert miss_reason({}, ASKED) is None
    assert miss_reason({"diagnostics": {"cache_miss_reason": None}}) == MissReason("pending")
    assert miss_reason({"diagnostics": None}, ASKED) == MissReason("none")
    assert miss_reason({"diagnostics": None}) is None
    first = {"diagnostics": {"previous_message_id": None}}
    assert miss_reason({"diagnostics": None}, first) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"type": "cache_hit"}, MissReason("none")),
        (
            {"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": 7},
            MissReason("input_changed", 7),
        ),
        (
            {"type": "cache_miss", "reason": {"type": "model_changed"}, "cache_missed_tokens": 0},
            MissReason("model_changed", 0),
        ),
        ({"type": "cache_miss"}, MissReason("cache_miss")),
        ({"type": "comparison_response_not_found"}, MissReason("comparison_response_not_found")),
        ({"type": "unavailable"}, MissReason("unavailable")),
        (None, None),
        ("x", None),
        ({}, None),
    ],
)
def test_states_of_the_responses_api(value: Any, expected: MissReason | None) -> None:
    assert miss_reason({"prompt_cache_diagnostics": value}) == expected


@pytest.mark.parametrize(
    "value", ["x", [], {}, {"cache_miss_reason": 4}, {"cache_miss_reason": {}}]
)
def test_damage_is_unknown(value: Any) -> None:
    assert miss_reason({"diagnostics": value}, ASKED) is None

"""Recorded session files of the project's own format."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.ingest.detect import head_of
from cacheaudit.ingest.sources.native import SOURCE
from cacheaudit.model.call import Boundary, CallError, MissReason, Span
from tests.unit.ingest.wire_samples import (
    SESSIONS,
    deep,
    examples,
    lines,
    parts,
    read,
    request,
    response,
)


def call(**more: Any) -> dict[str, Any]:
    return {
        "schema": "cacheaudit.call/1",
        "id": "c1",
        "session": "s",
        "lane": "main",
        "started_at": "2026-09-01T10:00:00.250Z",
        **more,
    }


def test_every_field_is_read(tmp_path: Path) -> None:
    record = call(
        parent="c0",
        task="t",
        purpose="subagent",
        provider="anthropic",
        surface="bedrock",
        model="claude-opus-5",
        first_token_at=1788256801.5,
        ended_at="2026-09-01T10:00:02Z",
        attempt=2,
        request=request("One?", diagnostics={"previous_message_id": "m0"}),
        content_tokens=[7, 5],
        response={
            **response(
                "m1", cache_creation_input_tokens=9, cache_creation={"ephemeral_1h_input_tokens": 9}
            ),
            "stop_reason": "end_turn",
            "diagnostics": {
                "cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 40}
            },
        },
        error={"type": "overloaded_error", "status": 529, "message": "busy"},
        tool_seconds=3.5,
        outcome="accepted",
        reported_cost="0.0125",
        client="agent/1",
        boundaries=[{"kind": "compaction", "at": "2026-09-01T09:59:00Z", "tokens_before": 5}],
        something_new={"a": 1},
    )
    calls, problems = read(SOURCE, lines(tmp_path / "x.session.jsonl", [record]))
    (found,) = calls
    assert problems == {}
    assert (found.id, found.session, found.lane, found.parent) == ("c1", "s", "main", "c0")
    assert (found.task, found.purpose, found.attempt, found.outcome) == (
        "t",
        "subagent",
        2,
        "accepted",
    )
    assert (found.provider, found.surface, found.model) == ("anthropic", "bedrock", "claude-opus-5")
    assert found.started_at == 1_788_256_800.25
    assert (found.first_token_at, found.ended_at) == (1_788_256_801.5, 1_788_256_802.0)
    assert parts(found) == (3, 0, None, 9, None, 9)
    assert found.stop_reason == "end_turn"
    assert found.diagnostics == MissReason("tools_changed", 40)
    assert found.error == CallError("overloaded_error", 529, "busy")
    assert found.tool_seconds == 3.5
    assert found.reported_cost == Decimal("0.0125")
    assert found.client == "agent/1"
    assert found.boundaries == (Boundary("compaction", 1_788_256_740.0, None, 5),)
    assert found.extra == {"something_new": {"a": 1}}
    assert found.prompt is not None
    assert [(b.path, b.tokens, b.tokens_origin) for b in found.prompt.blocks] == [
        ("system[0]", 7, "recorded"),
        ("messages[0].content[0]", 5, "recorded"),
    ]
    assert not found.relative_time


def test_sizes_add_up_to_the_recorded_total(tmp_path: Path) -> None:
    record = call(request=request("One?", "Yes.", "Two?"), response=response("m", input_tokens=101))
    calls, _ = read(SOURCE, lines(tmp_path / "x.session.jsonl", [record]))
    prompt = calls[0].prompt
    assert prompt is not None
    assert prompt.tokens == 101
    assert {block.tokens_origin for block in prompt.blocks} == {"estimated"}


def test_an_unchanged_prefix_is_shared_within_a_lane_only(tmp_path: Path) -> None:
    records = [
        call(id="a", request=request("One?")),
        call(id="b", lane="sub", request=request("Other?")),
        call(id="c", request=request("One?", "Yes.", "Two?")),
    ]
    calls, _ = read(SOURCE, lines(tmp_path / "x.session.jsonl", records))
    one, other, two = (found.prompt for found in calls)
    assert one is not None
    assert other is not None
    assert two is not None
    assert two.prefix_digests[: len(one.blocks)] == one.prefix_digests
    assert two.blocks[1].canonical is one.blocks[1].canonical
    assert other.blocks[1].digest != one.blocks[1].digest


def test_threads_are_rebuilt(tmp_path: Path) -> None:
    first = request("One?", thread={"type": "create"})
    follow = {
        "model": "claude-opus-5",
        "thread": {"type": "continue", "previous_message_id": "m1"},
        "messages": [{"role": "user", "content": "Two?"}],
    }
    lost = {**follow, "thread": {"type": "continue", "previous_message_id": "elsewhere"}}
    path = lines(
        tmp_path / "x.session.jsonl",
        [
            call(id="a", request=first, response=response("m1")),
            call(id="b", request=follow, response=response("m2")),
            call(id="c", request=lost, response=response("m3")),
        ],
    )
    calls, problems = read(SOURCE, path)
    whole = calls[1].prompt
    assert whole is not None
    assert [b.path for b in whole.blocks] == [
        "system[0]",
        "messages[0].content[0]",
        "messages[1].content[0]",
        "messages[2].content[0]",
    ]
    assert calls[2].prompt is None
    assert calls[2].usage is not None
    assert problems == {"thread_incomplete": 1}


@pytest.mark.parametrize(("value", "relative"), [(12.5, True), (1_788_256_800, False)])
def test_times_as_seconds(tmp_path: Path, value: float, relative: bool) -> None:
    calls, _ = read(SOURCE, lines(tmp_path / "x.session.jsonl", [call(started_at=value)]))
    assert calls[0].started_at == value
    assert calls[0].relative_time is relative


def test_unknown_start_with_an_interval(tmp_path: Path) -> None:
    record = call(started_at=None, start_span={"low": 1_788_256_800, "high": 1_788_256_860})
    calls, problems = read(SOURCE, lines(tmp_path / "x.session.jsonl", [record]))
    assert calls[0].started_at is None
    assert calls[0].start_span == Span(1_788_256_800.0, 1_788_256_860.0)
    assert problems == {}


def test_absent_is_not_zero(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5}
    record = call(provider="openai", response={"id": "r", "usage": usage})
    calls, problems = read(SOURCE, lines(tmp_path / "x.session.jsonl", [record]))
    found = calls[0].usage
    assert found is not None
    assert (found.total_input, found.cache_read, found.uncached_input) == (100, None, None)
    assert problems == {"cache_split_unknown": 1}


def test_damage_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "x.session.jsonl",
        [
            call(id="good", response=response("m1")),
            '{"schema": "cacheaudit.call/1", "id": "cut", "resp',
            "[]",
            deep(),
            call(
                id="types",
                started_at={},
                attempt="x",
                purpose="nap",
                response=response("m2", input_tokens="5"),
            ),
            call(id="negative", response=response("m3", cache_read_input_tokens=-4)),
            call(id="body", request={"messages": "no list"}, response=response("m4")),
            call(
                id="sizes",
                request=request("One?"),
                content_tokens=[1, 2, 3],
                response=response("m5"),
            ),
            call(id="bare", response={"id": "m6"}),
            call(id="last", response=response("m7")),
        ],
    )
    calls, problems = read(SOURCE, path)
    assert [c.id for c in calls] == ["good", "types", "negative", "body", "sizes", "bare", "last"]
    assert parts(calls[-1]) == (3, 0, None, None, 0, 9)
    assert calls[1].purpose == "other"
    assert calls[2].usage is not None
    assert calls[2].usage.cache_read is None
    assert problems.pop("too_deep", 0) + problems.pop("invalid_json", 0) == 1
    assert problems == {
        "truncated_line": 1,
        "wrong_type": 5,  # the array, the time, the attempt, the purpose, the count
        "negative_part": 1,
        "cache_split_unknown": 1,
        "bad_body": 1,
        "bad_content_tokens": 1,
        "missing_usage": 1,
    }
    assert examples(SOURCE, path, "bad_body")[0].startswith(f"{path}:7: ")


def test_no_text_of_a_prompt_reaches_the_problems(tmp_path: Path) -> None:
    secret = "the launch code"
    records = [
        call(
            id="a",
            request={"messages": [secret]},
            started_at=secret,
            response={"usage": {"input_tokens": secret}},
        ),
        call(id="b", request=secret, error=[secret], attempt=secret),
    ]
    path = lines(tmp_path / "x.session.jsonl", records)
    _, problems = read(SOURCE, path)
    assert problems
    for kind in problems:
        assert all(secret not in example for example in examples(SOURCE, path, kind))


def test_the_demo_session_reads_without_a_problem() -> None:
    calls, problems = read(SOURCE, SESSIONS / "demo.session.jsonl")
    assert problems == {}
    assert calls
    for found in calls:
        assert found.prompt is not None
        assert found.usage is not None
        assert found.prompt.tokens == found.usage.total_input


def test_detection_needs_no_decodable_line(tmp_path: Path) -> None:
    long = call(request=request("x" * 100_000))
    plain_name = lines(tmp_path / "recorded.jsonl", [long])
    assert SOURCE.detect(head_of(plain_name)) == 100
    other = lines(tmp_path / "other.jsonl", [{"id": 1, "request": {}, "response": {}}])
    assert SOURCE.detect(head_of(other)) == 0

"""Raw captures of requests and responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.ingest.detect import head_of
from cacheaudit.ingest.sources.http_capture import SOURCE
from cacheaudit.model.call import Span
from cacheaudit.model.prompt import Prompt
from tests.unit.ingest.wire_samples import (
    SECRET,
    WIRE,
    deep,
    lines,
    parts,
    read,
    request,
    response,
)


def prompt_of(call: Any) -> Prompt:
    assert call.prompt is not None
    found: Prompt = call.prompt
    return found


def common_messages(one: Prompt, other: Prompt) -> int:
    """Count equal leading messages, block by block of each."""

    def messages(prompt: Prompt) -> list[list[bytes]]:
        found: dict[int, list[bytes]] = {}
        for block in prompt.at_level("messages"):
            found.setdefault(block.message, []).append(block.digest)
        return list(found.values())

    pairs = list(zip(messages(one), messages(other), strict=False))
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))


def test_exchanges_with_headers_bodies_and_a_stream() -> None:
    calls, problems = read(SOURCE, WIRE / "capture.jsonl")
    assert [(c.id, c.session, c.lane) for c in calls] == [
        ("msg_cap_1", "s-1", "main"),
        ("msg_cap_2", "s-1", "main"),
        ("capture#3", "s-1", "side-1"),
    ]
    assert parts(calls[0]) == (4, 0, None, None, 7351, 4)
    assert parts(calls[1]) == (10, 7351, None, None, 0, 33)
    assert calls[2].usage is None
    assert (calls[0].started_at, calls[0].ended_at) == (1_790_848_800.0, 1_790_848_802.5)
    assert problems == {"write_ttl_assumed": 1}
    one, two = prompt_of(calls[0]), prompt_of(calls[1])
    assert two.prefix_digests[: len(one.blocks)] == one.prefix_digests


def test_no_credential_leaves_the_reader() -> None:
    assert SECRET in (WIRE / "capture.jsonl").read_text()
    calls, _ = read(SOURCE, WIRE / "capture.jsonl")
    assert all(SECRET not in repr(call) for call in calls)


def test_a_document_of_records() -> None:
    calls, problems = read(SOURCE, WIRE / "capture-records.json")
    assert [(c.session, c.started_at) for c in calls] == [
        ("s-2", 1_790_848_801.0),
        ("s-2", 1_790_848_802.0),
    ]
    assert problems == {}


def test_a_file_of_streams_holds_several_responses() -> None:
    calls, problems = read(SOURCE, WIRE / "answers.sse")
    assert [(c.id, parts(c)) for c in calls] == [
        ("msg_sse_1", (4, 0, None, None, 7351, 33)),
        ("msg_sse_2", (10, 7351, None, None, 0, 44)),
    ]
    assert problems == {"write_ttl_assumed": 1}


def test_a_stream_that_breaks_off_gives_a_lower_bound(tmp_path: Path) -> None:
    text = (WIRE / "answers.sse").read_text()
    path = tmp_path / "cut.sse"
    path.write_text(text[: text.index("message_delta")])
    calls, problems = read(SOURCE, path)
    assert parts(calls[0])[:5] == (4, 0, None, None, 7351)
    assert problems["output_is_lower_bound"] == 1


@pytest.mark.parametrize(
    "record",
    [
        {"request": request("One?"), "response": response("m1")},
        {"request_body": json.dumps(request("One?")), "response_body": json.dumps(response("m1"))},
        {"body": request("One?"), "usage": response("m1")["usage"]},
        {
            "request": {"method": "POST", "json": request("One?")},
            "response": {"status_code": 200, "body": response("m1")},
        },
        {
            "req": request("One?"),
            "res": {
                "events": [
                    {"type": "message_start", "message": response("m1")},
                    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
                ]
            },
        },
    ],
)
def test_shapes_of_a_record(tmp_path: Path, record: dict[str, Any]) -> None:
    path = lines(tmp_path / "c.jsonl", [record, record])
    assert SOURCE.detect(head_of(path)) >= 65
    calls, problems = read(SOURCE, path)
    assert [parts(c) for c in calls] == [(3, 0, None, None, 0, 9)] * 2
    assert all(c.prompt is not None for c in calls)
    assert problems == {}


def test_bare_bodies_and_bare_responses(tmp_path: Path) -> None:
    bodies = lines(tmp_path / "bodies.jsonl", [request("One?"), request("One?", "Yes.", "Two?")])
    calls, problems = read(SOURCE, bodies)
    assert [len(prompt_of(c).blocks) for c in calls] == [2, 4]
    answers = lines(tmp_path / "answers.jsonl", [response("m1"), response("m2")])
    calls, _ = read(SOURCE, answers)
    assert [c.id for c in calls] == ["m1", "m2"]
    assert problems == {}
    assert min(SOURCE.detect(head_of(p)) for p in (bodies, answers)) >= 40


def test_a_time_stamp_beside_a_response_only_bounds_the_start(tmp_path: Path) -> None:
    exchange = {"request": request("One?"), "response": response("m1")}
    path = lines(
        tmp_path / "c.jsonl",
        [
            {**exchange, "timestamp": "2026-09-01T10:00:00Z"},
            {**exchange, "timestamp": "2026-09-01T10:00:00Z", "duration_ms": 4000},
            {**exchange, "end_time": "2026-09-01T10:00:00Z", "duration_ms": 4000},
            {"request": request("One?"), "timestamp": "2026-09-01T10:00:00Z"},
        ],
    )
    calls, _ = read(SOURCE, path)
    at = 1_788_256_800.0
    assert [(c.started_at, c.start_span) for c in calls] == [
        (None, Span(at - 600, at)),
        (None, Span(at - 4, at)),
        (at - 4, None),
        (at, None),
    ]


def test_responses_with_a_previous_id_are_rebuilt(tmp_path: Path) -> None:
    url = "https://api.openai.com/v1/responses"
    first = {"model": "gpt-5.2", "input": "One?", "instructions": "Be brief."}
    said = [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes."}],
        }
    ]
    answer = {
        "id": "resp_1",
        "output": said,
        "usage": {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10},
    }
    follow = {**first, "input": "Two?", "previous_response_id": "resp_1"}
    path = lines(
        tmp_path / "c.jsonl",
        [{"url": url, "request": first, "response": answer}, {"url": url, "request": follow}],
    )
    calls, problems = read(SOURCE, path)
    one, two = prompt_of(calls[0]), prompt_of(calls[1])
    assert len(two.blocks) == len(one.blocks) + 2
    assert two.prefix_digests[: len(one.blocks)] == one.prefix_digests
    assert problems == {"cache_split_unknown": 1}


def test_damage_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    good = {"request": request("One?"), "response": response("m1")}
    path = lines(
        tmp_path / "c.jsonl",
        [
            good,
            json.dumps(good)[:50],
            "7",
            deep(),
            {"nothing": "here"},
            {"request": {"messages": 5, "model": "x"}, "response": response("m2")},
            {"request": "not json {", "response": response("m3")},
            {"request": request("One?"), "response": "no base64 \u20ac"},
            {"request": request("One?"), "response": response("m4", cache_read_input_tokens=-1)},
            {"type": "note", "text": "recorder started"},
            good,
        ],
    )
    calls, problems = read(SOURCE, path)
    assert [c.id for c in calls if c.id.startswith("m")] == ["m1", "m3", "m4", "m1"]
    assert parts(calls[-1]) == (3, 0, None, None, 0, 9)
    assert problems.pop("too_deep", 0) + problems.pop("invalid_json", 0) in (2, 3)
    assert problems["truncated_line"] == 1
    assert problems["wrong_type"] == 1
    assert problems["no_exchange"] == 1
    assert problems["negative_part"] == 1


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "common", "length"),
    [
        ("harvested-append-after-change-s-628f31b605ed-323.jsonl", 503, (529, 532)),
        # Byte by byte these two share 4 and 1 messages: the next one differs in its marker and in
        # the form of its text alone, neither of which is part of a prompt.
        ("harvested-replace-edit-s-157bd37224d7-20.jsonl", 5, (5, 7)),
        ("harvested-splice-insert-mid-s-157bd37224d7-19.jsonl", 2, (2, 5)),
        ("corpus-compaction.jsonl", 1, (12, 2)),
        ("corpus-edit.jsonl", 2, (4, 4)),
        ("corpus-prune.jsonl", 1, (10, 9)),
        ("corpus-splice.jsonl", 2, (4, 5)),
    ],
)
def test_recorded_pairs_share_the_known_prefix(
    shared: Path, name: str, common: int, length: tuple[int, int]
) -> None:
    path = shared / "data" / "captures" / name
    assert SOURCE.detect(head_of(path)) > 0
    calls, problems = read(SOURCE, path)
    one, two = prompt_of(calls[0]), prompt_of(calls[1])
    assert common_messages(one, two) == common
    assert (one.blocks[-1].message + 1, two.blocks[-1].message + 1) == length
    assert [c.lane for c in calls] == ["main", "main"]
    assert problems == {}


@pytest.mark.shared
def test_a_side_call_is_kept_apart(shared: Path) -> None:
    calls, _ = read(SOURCE, shared / "data" / "captures" / "corpus-sidecar.jsonl")
    assert [c.lane for c in calls] == ["main", "side-1", "main"]


@pytest.mark.shared
def test_files_that_are_no_captures_are_not_claimed(shared: Path) -> None:
    for path in (shared / "data" / "captures").glob("growth-*.json"):
        assert SOURCE.detect(head_of(path)) == 0

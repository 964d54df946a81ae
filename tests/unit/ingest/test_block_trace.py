"""Traces of block hashes: prompts cut where they part, lanes of subagents, and damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.ingest.block_pieces import Piece, Pieces
from cacheaudit.ingest.detect import recognise
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.sources.block_trace import SOURCE
from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt

MODEL = "claude-sonnet-4-5"
IDS = st.lists(st.integers(1, 3), max_size=8)


def entry(t: float, tokens: int, *ids: int, **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "s", "model": MODEL, "in": tokens, "out": 7, "hash_ids": [*ids], **more}


def trace(*requests: Any, **more: Any) -> dict[str, Any]:
    head = {"id": "t1", "block_size": 64, "hash_id_scope": "local", "tool_tokens": 70}
    return {**head, "system_tokens": 60, "requests": [*requests], **more}


def read(folder: Path, document: Any) -> tuple[list[Call], dict[str, int]]:
    path = folder / "trace.json"
    path.write_text(json.dumps(document))
    problems = Problems()
    calls = list(SOURCE.read(path, problems))
    return calls, {kind: count for kind, count, _ in problems.items()}


def prompt(call: Call) -> Prompt:
    assert call.prompt is not None
    return call.prompt


def sizes(call: Call) -> list[int | None]:
    return [block.tokens for block in prompt(call).blocks]


def test_a_conversation(tmp_path: Path) -> None:
    first = entry(0, 64 * 4 + 13, 1, 2, 3, 4, ttft=2.5, api_time=8.0, stop="tool_use")
    calls, problems = read(tmp_path, trace(first, entry(20, 64 * 6 + 5, 1, 2, 3, 4, 5, 6)))
    assert problems == {"markers_assumed": 1}
    one, two = calls
    assert (one.id, one.session, one.lane, one.provider) == ("t1#1", "t1", "main", "anthropic")
    assert (one.started_at, one.first_token_at, one.ended_at) == (0, 2.5, 8)
    assert one.relative_time
    assert one.usage is not None
    assert (one.usage.total_input, one.usage.output, one.usage.cache_read) == (269, 7, None)
    assert (one.stop_reason, two.stop_reason) == ("tool_use", None)
    # Cut at the ends of tools and system, where the first one ends, and inside what follows.
    assert sizes(one) == [64, 64, 128, 13]
    assert sizes(two) == [64, 64, 128, 13, 51 + 64, 5]
    assert prompt(two).prefix_digests[:4] == prompt(one).prefix_digests
    assert [b.level for b in prompt(one).blocks] == ["tools", "system", "messages", "messages"]
    assert prompt(one).marked == (1, 3)


def test_prompts_that_part_are_cut_there(tmp_path: Path) -> None:
    calls, _ = read(
        tmp_path,
        trace(
            entry(0, 64 * 5, 1, 2, 3, 4, 5), entry(1, 64 * 5, 1, 2, 3, 9, 5),
            tool_tokens=0, system_tokens=0,
        ),
    )  # fmt: skip
    assert [sizes(call) for call in calls] == [[192, 128], [192, 128]]
    one, two = (prompt(call) for call in calls)
    assert one.prefix_digests[0] == two.prefix_digests[0]
    assert one.blocks[1].digest != two.blocks[1].digest


def test_subagents_are_lanes(tmp_path: Path) -> None:
    inner = entry(11, 128, 7, 8)
    deeper = {"t": 12, "type": "subagent", "agent_id": "b", "requests": [entry(12, 64, 9)]}
    agent = {"t": 10, "type": "subagent", "agent_id": "a", "requests": [inner, deeper]}
    calls, _ = read(tmp_path, trace(entry(0, 64, 1), agent, entry(30, 128, 1, 2)))
    assert [(c.id, c.lane, c.purpose, c.started_at, c.parent) for c in calls] == [
        ("t1#1", "main", "main", 0, None),
        ("t1#2", "a", "subagent", 11, "t1#1"),
        ("t1#3", "a/b", "subagent", 12, "t1#2"),
        ("t1#4", "main", "main", 30, None),
    ]


def test_times_of_a_subagent_may_count_from_its_own_start(tmp_path: Path) -> None:
    agent = {"t": 10, "type": "subagent", "agent_id": "a", "requests": [entry(0, 64, 7)]}
    calls, _ = read(tmp_path, trace(entry(0, 64, 1), agent))
    assert [call.started_at for call in calls] == [0, 10]


def test_numbers_mean_something_inside_their_scope_only(tmp_path: Path) -> None:
    def digest(name: str, scope: str) -> bytes:
        calls, _ = read(tmp_path, trace(entry(0, 64, 1), id=name, hash_id_scope=scope))
        return prompt(calls[0]).prefix_digests[0]

    assert digest("x", "local") != digest("y", "local")
    assert digest("x", "global") == digest("y", "global") != digest("x", "local")


def test_another_maker_s_model_gets_no_markers(tmp_path: Path) -> None:
    calls, _ = read(tmp_path, trace({**entry(0, 64, 1), "model": "qwen3-coder"}))
    assert calls[0].provider is None
    assert prompt(calls[0]).marked == ()


def test_other_names_of_the_sizes(tmp_path: Path) -> None:
    fields = {"t": 0, "model": MODEL, "input_length": 70, "output_length": 2, "hash_ids": [1]}
    calls, _ = read(tmp_path, trace(fields))
    assert calls[0].usage is not None
    assert (calls[0].usage.total_input, calls[0].usage.output) == (70, 2)


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ("x", "wrong_type"),
        ({"t": 0}, "wrong_type"),
        ({**entry(0, 64, 1), "t": None}, "wrong_type"),
        ({**entry(0, 64, 1), "hash_ids": [1, {}]}, "wrong_type"),
        ({**entry(0, 0), "hash_ids": []}, "missing_usage"),
    ],
    ids=["text", "bare", "timeless", "ids", "empty"],
)
def test_a_bad_request_is_counted_and_the_rest_read(tmp_path: Path, broken: Any, kind: str) -> None:
    calls, problems = read(tmp_path, trace(broken, entry(1, 64, 1)))
    assert [call.started_at for call in calls] == [1]
    assert problems == {kind: 1, "markers_assumed": 1}


def test_sizes_that_contradict_the_runs_are_counted(tmp_path: Path) -> None:
    calls, problems = read(tmp_path, trace(entry(0, 10, 1, 2, 3)))
    assert problems == {"wrong_type": 1, "markers_assumed": 1}
    assert sum(size or 0 for size in sizes(calls[0])) == 192


def test_a_last_run_that_is_not_full(tmp_path: Path) -> None:
    calls, problems = read(tmp_path, trace(entry(0, 150, 1, 2, 3)))
    assert sum(size or 0 for size in sizes(calls[0])) == 150
    assert problems == {"markers_assumed": 1}


def test_a_file_that_breaks_off_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace(entry(0, 64, 1)))[:-5])
    problems = Problems()
    assert list(SOURCE.read(path, problems)) == []
    assert [kind for kind, _, _ in problems.items()] == ["truncated_line"]


def test_recognised_by_content(tmp_path: Path) -> None:
    path = tmp_path / "anything"
    path.write_text(json.dumps(trace(entry(0, 64, 1))))
    assert recognise(path) is SOURCE
    path.write_text(json.dumps({"requests": [], "block_size": 64}))
    assert recognise(path) is None


# ── pieces, against counting token by token ──────────────────────────────────────────────────────


def pieces(prompts: list[tuple[list[int], int]], size: int = 4) -> list[list[Piece]]:
    found = Pieces(size, b"")
    for ids, tail in prompts:
        found.add(ids, len(ids) * size + tail)
    return list(found.all())


def common_runs(one: list[int], other: list[int]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


@given(st.lists(st.tuples(IDS, st.integers(0, 3)), min_size=1, max_size=6))
def test_pieces_cover_every_prompt_and_share_what_the_runs_share(
    prompts: list[tuple[list[int], int]],
) -> None:
    cut = pieces(prompts)
    for (ids, tail), mine in zip(prompts, cut, strict=True):
        at = 0
        for piece in mine:
            assert piece.start == at < piece.end
            at = piece.end
        assert at == len(ids) * 4 + tail
    for (one, _), mine in zip(prompts, cut, strict=True):
        for (other, _), theirs in zip(prompts, cut, strict=True):
            shared = 0
            for a, b in zip(mine, theirs, strict=False):
                if a != b:
                    break
                shared = a.end
            runs = common_runs(one, other)
            # All common runs are shared; beyond them only a tail that the other one continues.
            assert runs * 4 <= shared < (runs + 1) * 4


@given(IDS, st.integers(1, 3), st.integers(1, 3))
def test_a_conversation_that_grows_is_a_prefix_of_what_follows(
    ids: list[int], tail: int, more: int
) -> None:
    one, two = pieces([(ids, tail), ([*ids, 9], more)])
    assert two[: len(one)] == one


@pytest.mark.shared
def test_recorded_traces(shared: Path) -> None:
    """Requests, input tokens and hits at the level of runs, counted apart from the source."""
    folder = shared / "data" / "traces" / "agentic"
    files = sorted(folder.glob("*.json"))
    assert len(files) == 19
    for path in files[::6]:
        document = json.loads(path.read_bytes())
        problems = Problems()
        calls = list(SOURCE.read(path, problems))
        assert [kind for kind, _, _ in problems.items()] == ["markers_assumed"]
        assert len(calls) == len(document["requests"])
        total = sum(request["in"] for request in document["requests"])
        assert total == document["totals"]["combined_tokens"]["input"]
        assert sum(sum(size or 0 for size in sizes(call)) for call in calls) == total

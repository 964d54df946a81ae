"""Real request pairs of one client: the first common message prefixes that are known of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.model.change import common, first_change
from cacheaudit.model.prompt import Prompt
from cacheaudit.providers.registry import expand

pytestmark = pytest.mark.shared


def prompts(shared: Path, name: str) -> tuple[list[dict[str, Any]], list[Prompt]]:
    [path] = (shared / "data" / "captures").glob(f"{name}*.jsonl")
    bodies = [json.loads(line)["body"] for line in path.read_text().splitlines()]
    found: list[Prompt] = []
    for body in bodies:
        found.append(expand(body, previous=found[-1] if found else None))
    return bodies, found


PAIRS = [
    ("harvested-append-after-change", 503, 503, 529, 532),
    # The last message before each of these two differs in its form alone: text with a marker in a
    # list became plain text when the marker moved on. That is no change of the prompt.
    ("harvested-replace-edit", 4, 5, 5, 7),
    ("harvested-splice-insert", 1, 2, 2, 5),
    ("corpus-compaction", 1, 1, 12, 2),
    ("corpus-edit", 2, 2, 4, 4),
    ("corpus-prune", 1, 1, 10, 9),
]


def without_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_markers(v) for k, v in value.items() if k != "cache_control"}
    return [without_markers(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "as_written", "as_rendered", "before", "after"), PAIRS)
def test_common_messages(
    shared: Path, name: str, as_written: int, as_rendered: int, before: int, after: int
) -> None:
    bodies, (a, b, *_) = prompts(shared, name)
    assert [len(body["messages"]) for body in bodies[:2]] == [before, after]
    messages = [without_markers(body["messages"]) for body in bodies[:2]]
    raw = 0
    while raw < min(before, after) and messages[0][raw] == messages[1][raw]:
        raw += 1
    assert raw == as_written
    found = common(a, b)
    assert found.messages == as_rendered
    assert found.tools == len(a.at_level("tools")) == len(b.at_level("tools"))
    assert found.system == len(a.at_level("system")) == len(b.at_level("system"))
    change = first_change(a, b)
    if as_rendered == before:
        assert change is None
    else:
        assert change is not None
        assert change.level == "messages"
        assert change.path.startswith(f"messages[{as_rendered}]")


def test_a_side_call_has_another_system_prompt(shared: Path) -> None:
    _, (a, b, *_) = prompts(shared, "corpus-sidecar")
    assert common(a, b).messages == 0
    assert common(a, b).system < len(a.at_level("system"))
    change = first_change(a, b)
    assert change is not None
    assert change.level == "system"


def test_a_splice_leaves_two_messages(shared: Path) -> None:
    _, (a, b, *_) = prompts(shared, "corpus-splice")
    assert common(a, b).messages == 2


def test_a_tool_added_in_mid_conversation(shared: Path) -> None:
    _, found = prompts(shared, "corpus-tooladd")
    assert first_change(found[0], found[1]) is None
    change = first_change(found[1], found[2])
    assert change is not None
    assert change.level == "tools"
    assert common(found[1], found[2]).messages == common(found[1], found[1]).messages == 3


def test_markers_that_move_in_real_traffic_are_no_change(shared: Path) -> None:
    bodies, (a, b, *_) = prompts(shared, "harvested-append-after-change")
    marks = [{blk.path for blk in p.blocks if blk.marker is not None} for p in (a, b)]
    assert marks[0] != marks[1]
    assert a.prefix_digests[: common(a, b).blocks] == b.prefix_digests[: common(a, b).blocks]
    assert common(a, b).blocks >= 503
    assert bodies[0]["tools"] == bodies[1]["tools"]

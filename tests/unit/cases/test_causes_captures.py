"""Captured request pairs of a real client: first change and kind, through `diff`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cases.recording import command

pytestmark = pytest.mark.shared

# name, first line, second line, path, kind, equal leading messages
CHANGED = [
    ("harvested-append-after-change", 1, 2, "messages[503].content[1]", "removed", 503),
    ("corpus-compaction", 1, 2, "messages[1].content[0]", "edited", 1),
    ("corpus-edit", 1, 2, "messages[2].content[0]", "edited", 2),
    ("corpus-prune", 1, 2, "messages[1].content[0]", "removed", 1),
    ("corpus-splice", 1, 2, "messages[2].content[0]", "added", 2),
    ("corpus-sidecar", 1, 2, "system[0]", "edited", 0),
    ("corpus-tooladd", 2, 3, "tools[2]", "added", 3),
    ("pinned", 2, 4, "messages[30].content[4]", "removed", 30),
]
# A marker that moves on, a text that is written as a list or plainly, appended messages.
UNCHANGED = [
    ("harvested-replace-edit", 1, 2, 5),
    ("harvested-splice-insert", 1, 2, 2),
    ("corpus-tooladd", 1, 2, 1),
    ("corpus-tooladd", 3, 4, 4),
    ("corpus-sidecar", 1, 3, 2),
]


def compared(shared: Path, home: Path, name: str, first: int, second: int) -> dict[str, Any]:
    [path] = (shared / "data" / "captures").glob(f"{name}*.json*")
    return command(home, "diff", f"{path}#{first}", f"{path}#{second}")


@pytest.mark.parametrize(("name", "first", "second", "path", "kind", "messages"), CHANGED)
def test_first_change(
    shared: Path,
    tmp_path: Path,
    name: str,
    first: int,
    second: int,
    path: str,
    kind: str,
    messages: int,
) -> None:
    found = compared(shared, tmp_path, name, first, second)
    assert (found["equal"], found["relation"]) == (False, "changed")
    change = found["first_change"]
    assert (change["path"], change["kind"]) == (path, kind)
    assert change["level"] == path.partition("[")[0]
    assert found["common"]["messages"] == messages
    # Their texts are hashes already; still nothing is shown but masked.
    assert change["masked"]


@pytest.mark.parametrize(("name", "first", "second", "messages"), UNCHANGED)
def test_no_change(
    shared: Path, tmp_path: Path, name: str, first: int, second: int, messages: int
) -> None:
    found = compared(shared, tmp_path, name, first, second)
    assert found["relation"] == "extends"
    assert found["first_change"] is None
    assert found["common"]["messages"] == messages


@pytest.mark.parametrize("name", sorted({row[0] for row in CHANGED} - {"pinned"}))
def test_tools_and_system_are_equal_unless_stated(shared: Path, tmp_path: Path, name: str) -> None:
    [path] = (shared / "data" / "captures").glob(f"{name}*.jsonl")
    first, second = [json.loads(line)["body"] for line in path.read_text().splitlines()[:2]]
    found = compared(shared, tmp_path, name, 1, 2)["common"]
    assert found["tools"] == len(first.get("tools", ())) == len(second.get("tools", ()))
    equal = 0 if name == "corpus-sidecar" else len(first["system"])
    assert found["system"] == equal

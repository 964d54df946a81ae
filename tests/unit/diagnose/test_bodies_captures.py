"""Real request pairs of one client: first change, kind and cause of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.diagnose.scenes import Scene
from cacheaudit.model.call import Session

pytestmark = pytest.mark.shared


def bodies(shared: Path, name: str) -> list[dict[str, Any]]:
    [path] = (shared / "data" / "captures").glob(f"{name}*.jsonl")
    return [json.loads(line)["body"] for line in path.read_text().splitlines()]


def played(sent: list[dict[str, Any]]) -> Session:
    """Send the bodies with sizes by kind and the usage that their markers give.

    The shortened pairs mark the first message only, so that nothing behind it was ever stored; they
    get the automatic marker too, as the client's own requests have one at the end.
    """
    scene = Scene(model=sent[0]["model"])
    for body in sent:
        marked = "cache_control" in json.dumps(body["messages"][-1])
        scene.send(body if marked else {**body, "cache_control": {"type": "ephemeral"}}, after=60)
    return scene.session()


CHANGED = [
    (
        "harvested-append-after-change",
        "removed",
        "messages[503].content[1]",
        "block-dropped-from-message",
    ),
    ("corpus-compaction", "edited", "messages[1].content[0]", "history-summarised"),
    ("corpus-edit", "edited", "messages[2].content[0]", "history-message-edited"),
    ("corpus-prune", "removed", "messages[1].content[0]", "history-trimmed-in-front"),
    ("corpus-splice", "added", "messages[2].content[0]", "message-inserted-midway"),
]


@pytest.mark.parametrize(("name", "kind", "path", "rule"), CHANGED)
def test_first_change_kind_and_cause(
    shared: Path, name: str, kind: str, path: str, rule: str
) -> None:
    session = played(bodies(shared, name)[:2])
    ctx = Context(session)
    assert (ctx.changes[1].kind, ctx.changes[1].path) == (kind, path)
    losses = [f for f in diagnose(session).findings if f.kind == "loss"]
    assert losses[0].name == rule
    assert (losses[0].verdict, losses[0].evidence) == ("proved", "body_diff")
    assert losses[0].first_change is not None
    assert losses[0].first_change.path == path


@pytest.mark.parametrize("name", ["harvested-replace-edit", "harvested-splice-insert"])
def test_form_and_markers_of_system_messages_are_no_change(shared: Path, name: str) -> None:
    session = played(bodies(shared, name)[:2])
    ctx = Context(session)
    assert ctx.changes == {}
    assert ctx.unmoved == {1}
    assert [f for f in diagnose(session).findings if f.kind == "loss"] == []


def test_a_side_call_is_told_from_an_edit(shared: Path) -> None:
    found = diagnose(played(bodies(shared, "corpus-sidecar")[:2])).findings
    # It is another prompt: nothing of it can have been read, and nothing was lost.
    assert [f for f in found if f.kind == "loss"] == []
    (note,) = [f for f in found if f.name == "side-call-with-own-prompt"]
    assert (note.calls, note.evidence) == (("call-2",), "body_diff")
    assert note.first_change is not None
    assert note.first_change.path == "system[0]"


def test_a_tool_added_with_the_third_request(shared: Path) -> None:
    session = played(bodies(shared, "corpus-tooladd")[:3])
    losses = [f for f in diagnose(session).findings if f.kind == "loss"]
    (added,) = losses
    assert (added.name, added.calls) == ("tool-inserted-midway", ("call-3",))
    assert added.verdict == "proved"
    assert added.first_change is not None
    assert added.first_change.path == "tools[2]"

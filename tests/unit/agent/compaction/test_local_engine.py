"""The three stages of a compaction, measured on the local engine: reads and writes of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.compaction.compactor import Compactor
from cacheaudit.agent.compaction.settings import Compaction, Mode
from cacheaudit.agent.outputs.store import OutputStore
from cacheaudit.jobs.demo.scripted import scripted_client
from cacheaudit.model.clock import FixedClock
from tests.unit.agent.compaction.histories import MODEL, rounds
from tests.unit.local_backend.server.running import Running, running

MARK = {"type": "ephemeral"}
START = 1_795_996_800.0
SYSTEM = "Work carefully. " * 60
COLUMNS = [("prefix", True), ("prefix", False), ("standalone", True)]
SUMMARY = "## Goal\nThe parser works.\n## Next steps\nRun the tests."


@pytest.fixture(scope="module")
def engine() -> Iterator[Running]:
    with running(any_model=True) as found:
        yield found


def request(messages: list[dict[str, Any]], run: str, *, planner: bool) -> dict[str, Any]:
    """Markers behind the system prompt and behind the last content block, or none."""
    if planner:
        return {
            "model": MODEL,
            "max_tokens": 4,
            "system": f"{SYSTEM} {run}",
            "messages": messages,
        }
    last = messages[-1]
    content = last["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    marked = {**last, "content": [*content[:-1], {**content[-1], "cache_control": MARK}]}
    return {
        "model": MODEL,
        "max_tokens": 4,
        "system": [{"type": "text", "text": f"{SYSTEM} {run}", "cache_control": MARK}],
        "messages": [*messages[:-1], marked],
    }


def parts(call: Any) -> tuple[int, int, int]:
    """Tokens read, written, neither."""
    usage = call.usage
    return usage.cache_read, usage.cache_write, usage.uncached_input


@pytest.mark.parametrize(
    ("mode", "is_warm", "planner"),
    [
        ("prefix", True, False),
        ("prefix", False, False),
        ("standalone", True, False),
        ("prefix", True, True),
        ("prefix", False, True),
    ],
)
def test_three_stages(
    engine: Running, tmp_path: Path, root: Path, mode: Mode, is_warm: bool, planner: bool
) -> None:
    """With the markers of the loop itself, as the guide tells it, and with the planner's."""
    clock = FixedClock(START)
    engine.call("/admin/clock", {"advance_s": 4_000})
    run = f"{mode}-{is_warm}-{planner}"
    with (
        CacheAudit(tmp_path / "u.db", "auto" if planner else "observe", clock=clock) as audit,
        scripted_client(engine.url, lambda _: [{"type": "text", "text": SUMMARY}]) as bare,
    ):
        client = audit.wrap(bare)
        plan = Compaction(mode=mode, keep_recent=60, expected_summary=60, summary_tokens=400)
        compactor = Compactor(client, OutputStore(tmp_path / "o"), plan, audit=audit, clock=clock)
        history = rounds(4, 700)
        with audit.session(run):
            for end in (7, 9):
                asked = request(history[:end], run, planner=planner)
                compactor.took(asked, client.messages.create(**asked))
            if not is_warm:
                clock.advance(301)
                engine.call("/admin/clock", {"advance_s": 301})
            history = [*history, *rounds(5, 700)[9:]]
            made = compactor.compact(request(history, run, planner=planner))
            assert compactor.outcome is not None
            assert compactor.outcome.compacted
            messages = made["messages"]
            for _ in range(2):
                asked = request(messages, run, planner=planner)
                reply = client.messages.create(**asked)
                compactor.took(asked, reply)
                again = {"role": "user", "content": "and now the next file, please"}
                messages = [*messages, {"role": "assistant", "content": SUMMARY}, again]
        calls = audit.sessions([run])[0].calls
    assert [call.purpose for call in calls] == ["main", "main", "compaction", "main", "main"]
    first, before, summary, after, later = map(parts, calls)
    front = after[0]
    stored = sum(before[:2])
    assert before[0] == sum(first[:2])
    if mode == "standalone":
        assert summary[:2] == (0, 0)
    elif is_warm:
        # Everything that the last request stored is read, nothing is written.
        assert summary[:2] == (stored, 0)
        assert summary[2] < stored / 2
    else:
        # Tools and system are written again, since they are needed again; the rest is not.
        assert summary[:2] == (0, front)
        assert summary[2] > stored - front
    # A little more than the system prompt, and the marker behind it.
    assert len(SYSTEM) < front < len(SYSTEM) + 200
    assert after[1] > 0
    assert sum(after) < stored / 2
    assert later[0] == sum(after[:2])
    assert later[1] < after[1]
    # Predicted for the first request after it, from estimates: right within a fifth.
    shape = compactor.outcome.decision.best
    assert shape is not None
    assert shape.size == pytest.approx(sum(after), rel=0.2)
    if not planner:
        told = _told(root, COLUMNS.index((mode, is_warm)))
        measured = (before, summary, after, later)
        assert told == [" / ".join(f"{part:,}" for part in call) for call in measured]


def _told(root: Path, column: int) -> list[str]:
    """Read one column of the guide's table."""
    guide = (root / "docs/guide/compaction.md").read_text(encoding="utf-8")
    _, _, table = guide.partition("| request | `prefix`, warm")
    rows = table.split("\n\n")[0].splitlines()[2:]
    return [row.split("|")[column + 2].strip() for row in rows]

"""What was recorded, exported and audited, has the tokens that the server counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cacheaudit import CacheAudit, Inputs
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.sources.native import SOURCE
from cacheaudit.jobs.audit import audit as run_audit
from cacheaudit.jobs.inputs import silent
from cacheaudit.store import open_store
from tests.unit.agent.servers import MODEL, Reply, Script, client, events, message, usage

COUNTED = [usage(0, 5000, 40, 10), usage(5000, 300, 40, 20), usage(0, 5400, 60, 30)]


def recorded(audit: CacheAudit) -> None:
    replies = [
        Reply(message(1, usage=COUNTED[0])),
        Reply(frames=events(2, usage=COUNTED[1])),
        Reply(message(3, usage=COUNTED[2])),
    ]
    wrapped = audit.wrap(client(Script(*replies)))
    system: list[Any] = [
        {"type": "text", "text": "the rules " * 2000, "cache_control": {"type": "ephemeral"}}
    ]
    said: list[Any] = [{"role": "user", "content": "one"}]
    with audit.session("issue-42", task="fix"):
        for turn in range(3):
            if turn == 2:
                system[0]["text"] = "other rules " * 2000
            answer = wrapped.messages.create(
                model=MODEL, max_tokens=16, system=system, messages=said, stream=turn == 1
            )
            if turn == 1:
                list(answer)
            said = [
                *said,
                {"role": "assistant", "content": "hello there"},
                {"role": "user", "content": f"more {turn}"},
            ]


def test_the_exported_file_reads_back_as_it_was(audit: CacheAudit, tmp_path: Path) -> None:
    recorded(audit)
    file = tmp_path / "issue-42.session.jsonl"
    assert audit.export(file, "issue-42") == 3
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["schema"] for row in rows] == ["cacheaudit.call/1"] * 3
    for row, counted in zip(rows, COUNTED, strict=True):
        found = row["response"]["usage"]
        assert {name: found[name] for name in counted} == counted
        assert (row["session"], row["lane"], row["task"]) == ("issue-42", "main", "fix")
        assert (row["provider"], row["surface"], row["model"]) == ("anthropic", "claude_api", MODEL)
        assert row["request"] is None
    assert [row["first_token_at"] is not None for row in rows] == [False, True, False]
    assert "rules" not in file.read_text()
    problems = Problems()
    back = list(SOURCE.read(file, problems))
    assert not problems
    (session,) = audit.sessions()
    assert [call.usage for call in back] == [call.usage for call in session.calls]
    assert [call.prompt for call in back] == [call.prompt for call in session.calls]
    assert [call.dedupe_key for call in back] == [call.dedupe_key for call in session.calls]


def test_the_store_is_one_that_every_command_reads(
    make: Callable[..., CacheAudit], tmp_path: Path
) -> None:
    db = tmp_path / "usage.db"
    audit = make(db=db)
    recorded(audit)
    assert audit.close()
    inputs = Inputs(paths=(), environment={}, home=tmp_path, db=f"sqlite:///{db}")
    result = run_audit(inputs, silent)
    assert result.scope.calls == 3
    totals = result.totals
    assert totals.cache_read == sum(u["cache_read_input_tokens"] for u in COUNTED)
    assert totals.uncached_input == sum(u["input_tokens"] for u in COUNTED)
    assert totals.cache_write["5m"] == sum(u["cache_creation_input_tokens"] for u in COUNTED)
    assert totals.output == sum(u["output_tokens"] for u in COUNTED)
    names = {finding.name for finding in result.findings if finding.kind == "loss"}
    assert names
    assert all(
        finding.first_change is not None for finding in result.findings if finding.tokens_lost
    )


def test_exporting_into_the_store_again_changes_nothing(
    make: Callable[..., CacheAudit], tmp_path: Path
) -> None:
    audit = make()
    recorded(audit)
    file = tmp_path / "x.session.jsonl"
    audit.export(file)
    calls = list(SOURCE.read(file, Problems()))
    assert audit.close()
    with open_store(str(tmp_path / "usage.db")) as store:
        count = store.write(calls, source="native")
    assert (count.new, count.unchanged + count.updated) == (0, 3)


def test_text_is_exported_where_it_is_stored(
    make: Callable[..., CacheAudit], tmp_path: Path
) -> None:
    audit = make(store_text=True)
    recorded(audit)
    file = tmp_path / "x.session.jsonl"
    audit.export(file)
    assert "the rules the rules" in file.read_text()

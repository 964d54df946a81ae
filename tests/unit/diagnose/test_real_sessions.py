"""Recorded sessions, classified as their notes say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cacheaudit.diagnose.runner import Diagnosis, diagnose
from cacheaudit.ingest.detect import detect, head_of
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Session

pytestmark = pytest.mark.shared


def read(shared: Path, name: str) -> Session:
    path = shared / "data" / "sessions" / name
    source = detect(head_of(path))
    assert source is not None
    return Session(id=path.stem, source=source.name, calls=tuple(source.read(path, Problems())))


def losses(diagnosis: Diagnosis) -> Counter[str]:
    found: Counter[str] = Counter()
    for finding in diagnosis.findings:
        if finding.kind == "loss":
            found[finding.name] += len(finding.calls)
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude_code/a.jsonl", {"compacted": 1}),
        ("claude_code/b.jsonl", {"ttl-expired": 11, "compacted": 3}),
        ("claude_code/c.jsonl", {"ttl-expired": 1, "compacted": 1}),
        ("claude_code/d.jsonl", {"ttl-expired": 1}),
    ],
)
def test_claude_code_transcripts(shared: Path, name: str, expected: dict[str, int]) -> None:
    diagnosis = diagnose(read(shared, name))
    assert losses(diagnosis) == expected
    assert diagnosis.tokens_unexplained == 0


def test_eleven_expiries_wrote_1_207_360_tokens_and_read_none(shared: Path) -> None:
    session = read(shared, "claude_code/b.jsonl")
    finding = next(f for f in diagnose(session).findings if f.name == "ttl-expired")
    usages = [call.usage for call in session.calls if call.id in finding.calls]
    assert sum(u.cache_write or 0 for u in usages if u) == 1_207_360
    assert sum(u.cache_read or 0 for u in usages if u) == 0
    assert "1,207,360" in finding.established[0]
    assert finding.verdict == "consistent"
    assert len(finding.established) == 12


def test_compactions_read_what_the_notes_say(shared: Path) -> None:
    read_by = {}
    for name in ("a", "b"):
        session = read(shared, f"claude_code/{name}.jsonl")
        finding = next(f for f in diagnose(session).findings if f.name == "compacted")
        assert (finding.verdict, finding.evidence) == ("proved", "reported")
        read_by[name] = [
            c.usage.cache_read for c in session.calls if c.usage and c.id in finding.calls
        ]
    assert read_by == {"a": [34_883], "b": [34_260] * 3}


def test_pi_session_with_two_compactions(shared: Path) -> None:
    found = losses(diagnose(read(shared, "pi/b.jsonl")))
    assert found["compacted"] == 2


def test_automatic_caches_are_never_said_to_have_expired(shared: Path) -> None:
    for name in ("codex/a.jsonl", "codex/b.jsonl"):
        found = losses(diagnose(read(shared, name)))
        assert not {"ttl-expired", "prefix-lost-inside-ttl", "read-floor"} & set(found)


def test_nothing_is_proved_without_a_record_of_the_cause(shared: Path) -> None:
    root = shared / "data" / "sessions"
    for path in sorted(root.rglob("*.jsonl")):
        for finding in diagnose(read(shared, str(path.relative_to(root)))).findings:
            if finding.kind == "loss" and finding.verdict == "proved":
                assert finding.name in ("compacted", "model-switched")

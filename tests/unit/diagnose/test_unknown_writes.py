"""Findings on records that do not tell what was written say so, and never *0 written*."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.diagnose.wording import sum_of
from cacheaudit.diagnose.worth import Stage, stage_line
from cacheaudit.model.call import Session
from tests.unit.diagnose.test_real_sessions import read

_ZERO_WRITES = re.compile(
    r"\b(wrote|write) 0\b|\b0 (tokens )?(were )?written\b|\b0 tokens were wri"
)


def codex(write: int | None = None) -> Script:
    """A lane of an automatic cache that does not tell its writes."""
    return Script(provider="openai", model="gpt-5.4", ttl=None).call(0, 0, write, uncached=90_000)


def compacting(write: int | None = None) -> Session:
    script = codex(write)
    for number in range(4):
        at = 100.0 * (number + 1)
        script.call(at, 10_000, None, uncached=8_000, boundary="compaction")
        script.call(at + 20, 17_920, None, uncached=70_000)
    return script.session()


def shrinking() -> Session:
    script = codex()
    for number in range(3):
        at = 30.0 * (number * 2 + 1)
        script.call(at, 4_096, None, uncached=60_000)
        script.call(at + 30, 64_000, None, uncached=26_000)
    return script.session()


def together() -> Session:
    script = codex()
    for _ in range(2):
        script.call(30, 4_096, None, uncached=88_000, duration=40)
    return script.session()


@pytest.mark.parametrize("make", [compacting, shrinking, together], ids=lambda f: f.__name__)
def test_no_finding_makes_a_zero_of_unknown_writes(make: Callable[[], Session]) -> None:
    session = make()
    lines = [line for found in diagnose(session).findings for line in found.established]

    assert lines
    assert not [line for line in lines if _ZERO_WRITES.search(line)]


def test_several_calls_together_tell_what_they_read() -> None:
    found = {f.name: f.established[0] for f in diagnose(compacting()).findings}

    assert found["compacted"].endswith("; together they read 40,000.")


def test_a_sum_over_some_is_at_least_that() -> None:
    assert sum_of([None, 1_200, 0]) == "at least 1,200"
    assert sum_of([1_200, 0]) == "1,200"
    assert sum_of([None]) is None


def test_stages_leave_out_what_no_call_tells() -> None:
    stage = Stage("Later", (0, 2, 4))

    assert stage_line(compacting(), stage, None) == (
        "Later: 3 calls, 35,840 tokens read, 230,000 uncached, 300 of output."
    )
    assert "at least 7 tokens written" in stage_line(compacting(7), stage, None)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl"])
def test_real_sessions_without_writes(shared: Path, name: str) -> None:
    lines = [
        line
        for found in diagnose(read(shared, f"codex/{name}")).findings
        for line in found.established
    ]

    assert lines
    assert not [line for line in lines if _ZERO_WRITES.search(line)]

"""What the service says changed since the request that the client names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from local_backend.rules import Block, Level, Prompt
from local_backend.rules.diagnosis import Diagnosis, Journal
from tests.unit.local_backend.rules.build import block, prompt

TOOL = block("t", level=Level.TOOLS, kind="tool")
SYSTEM = block("s", level=Level.SYSTEM)
MESSAGES = (block("m1"), block("m2"))
FIRST = prompt(TOOL, SYSTEM, *MESSAGES, id="first")


def compare(later: Prompt, read: int = 0) -> Diagnosis | None:
    journal = Journal()
    journal.record(FIRST, 400)
    return journal.compare(later, "first", read)


def later(*blocks: Block, **more: object) -> Prompt:
    return prompt(*(blocks or FIRST.blocks), **{"id": "later", **more})


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (later(), None),
        (later(*FIRST.blocks, block("m3")), None),
        (later(model="other"), "model_changed"),
        (later(speed="fast"), "model_changed"),
        (later(block("new", level=Level.TOOLS, kind="tool"), SYSTEM, *MESSAGES), "tools_changed"),
        (later(SYSTEM, *MESSAGES), "tools_changed"),
        (later(TOOL, block("new", level=Level.SYSTEM), *MESSAGES), "system_changed"),
        (later(TOOL, SYSTEM, block("new"), MESSAGES[1]), "messages_changed"),
        (later(TOOL, SYSTEM, MESSAGES[0]), "messages_changed"),
        (later(settings=(b"", b"", b"choice")), "unavailable"),
        (later(workspace="other"), "previous_message_not_found"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_difference_from_the_top(asked: Prompt, kind: str | None) -> None:
    found = compare(asked)
    assert (found.type if found else None) == kind


def test_how_many_tokens_were_missed() -> None:
    changed = later(TOOL, SYSTEM, block("new"))
    assert compare(changed, read=200) == Diagnosis("messages_changed", 200)
    assert compare(changed, read=500) == Diagnosis("messages_changed", 0)
    assert compare(later(settings=(b"", b"x", b""))) == Diagnosis("unavailable")


def test_markers_do_not_matter() -> None:
    assert compare(later(*(replace(b, ttl="1h") for b in FIRST.blocks))) is None


def test_the_oldest_are_forgotten() -> None:
    journal = Journal(capacity=2)
    for name in "abc":
        journal.record(later(id=name), 10)
    assert journal.compare(later(), "a", 0) == Diagnosis("previous_message_not_found")
    assert journal.compare(later(), "b", 0) is None

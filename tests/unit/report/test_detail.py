"""What pages show of prompts, against a naive reading of the same bodies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.model.call import Boundary, Call
from cacheaudit.model.change import first_change
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import with_recorded_tokens
from cacheaudit.model.usage import Usage
from cacheaudit.providers.registry import expand
from cacheaudit.report.detail import (
    Lives,
    Strips,
    ToolDirectory,
    events,
    first_token_seconds,
    writes,
)

MARK = {"cache_control": {"type": "ephemeral"}}


def tool(name: str, text: str = "does something") -> dict[str, Any]:
    return {"name": name, "description": text, "input_schema": {"type": "object"}}


def used(name: str, number: int) -> dict[str, Any]:
    block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
    return {"role": "assistant", "content": [block]}


def said(text: str, *, marked: bool = False) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "text", "text": text, **(MARK if marked else {})}],
    }


def prompt(tools: list[Any], messages: list[Any], sizes: list[int] | None = None) -> Prompt:
    body = {
        "model": "claude-sonnet-4-6",
        "max_tokens": 100,
        "tools": tools,
        "system": [{"type": "text", "text": "You help.", **MARK}],
        "messages": messages,
    }
    made = expand(body, provider="anthropic")
    return made if sizes is None else with_recorded_tokens(made, sizes)


def call(number: int, made: Prompt | None, **more: Any) -> Call:
    return Call(id=f"c{number}", session="s", started_at=float(number), prompt=made, **more)


@given(st.lists(st.lists(st.integers(1, 500), min_size=1, max_size=6), min_size=1, max_size=6))
def test_strips_are_sums_of_the_recorded_sizes(turns: list[list[int]]) -> None:
    strips = Strips()
    before: Prompt | None = None
    for number, sizes in enumerate(turns):
        # Prompts differ from turn to turn, so that shared beginnings are of any length.
        messages = [said(f"{n} {size}", marked=n == len(sizes) - 1) for n, size in enumerate(sizes)]
        made = prompt([tool("Bash"), tool("Read")], messages, [40, 60, 10, *sizes])
        change = None if before is None else first_change(before, made)
        strip = strips.of(call(number, made), change)
        assert strip is not None
        assert strip.parts == [("tools", 100), ("system", 10), ("messages", sum(sizes))]
        assert strip.marks == [110, 110 + sum(sizes)]
        assert not strip.scaled
        if change is not None:
            assert strip.change == sum([40, 60, 10, *sizes][: change.blocks_before])
        before = made


def test_unknown_sizes_are_scaled_to_what_was_billed() -> None:
    made = prompt([tool("Bash")], [said("x" * 400)])
    usage = Usage(total_input=10_000, cache_read=0, uncached_input=10_000)
    strip = Strips().of(call(0, made, usage=usage))
    assert strip is not None
    assert strip.scaled
    assert sum(tokens for _, tokens in strip.parts) == 10_000


def test_a_call_without_a_body_has_no_strip() -> None:
    assert Strips().of(call(0, None)) is None


def test_tools_are_counted_once_however_often_they_are_sent_again() -> None:
    bash, read, issue = tool("Bash"), tool("Read"), tool("Issue", "files an issue")
    opening = [said("go"), used("Bash", 1), said("ok")]
    more = [*opening, used("Bash", 2), said("ok"), used("Read", 3), said("ok")]
    calls = [
        call(0, prompt([bash, read], [said("go")])),
        call(1, prompt([bash, read], opening)),
        call(2, prompt([bash, issue, read], opening)),
        call(3, prompt([bash, issue, read], more)),
        call(4, prompt([read, issue, tool("Bash", "other words")], more)),
        # Another lane begins with a copy of the conversation.
        msgspec.structs.replace(call(5, prompt([bash, issue, read], more)), lane="fork"),
    ]
    directory = ToolDirectory()
    directory.add(calls)
    rows = {row.name: row for row in directory.rows()}
    assert {name: row.used for name, row in rows.items()} == {"Bash": 2, "Read": 1, "Issue": 0}
    assert {name: row.calls for name, row in rows.items()} == {"Bash": 6, "Read": 6, "Issue": 4}
    assert rows["Bash"].versions == 2
    # Issue came once; then Bash and Read changed places.
    assert {name: row.churn for name, row in rows.items()} == {"Bash": 1, "Read": 1, "Issue": 1}


def test_writes_are_split_by_lifetime_and_unknown_is_not_zero() -> None:
    assert writes(None) is None
    assert writes(Usage(total_input=5)) is None
    assert writes(Usage(write_5m=0)) == {}
    assert writes(Usage(write_5m=3, write_1h=4)) == {"5m": 3, "1h": 4}
    assert writes(Usage(write_5m=3, write_other=4, write_other_ttl="5m")) == {"5m": 7}
    assert writes(Usage(write_other=4)) == {"other": 4}


def test_a_read_prolongs_the_lifetime_that_was_written() -> None:
    lives = Lives()
    steps = [
        (Usage(cache_read=0, write_1h=500), 3_600),
        (Usage(cache_read=500, write_1h=0), 3_600),
        (Usage(cache_read=500, write_5m=10, write_1h=10), 300),
        (Usage(cache_read=0, uncached_input=7), None),
    ]
    for number, (usage, seconds) in enumerate(steps):
        assert lives.of(call(number, None, usage=usage)) == seconds
    assert lives.of(call(9, None, lane="other", usage=Usage(cache_read=5))) is None


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [({"first_token_at": 4.25}, 1.25), ({"first_token_at": 2.0}, None), ({}, None)],
)
def test_first_token(fields: dict[str, float], seconds: float | None) -> None:
    assert first_token_seconds(call(3, None, **fields)) == seconds


def test_events() -> None:
    made = call(0, None, attempt=1, boundaries=(Boundary("compaction"), Boundary("resume")))
    assert events(made) == ["compaction", "resume", "retry"]


def test_a_tool_declared_twice_that_goes_once_ends_nothing() -> None:
    bash, read = tool("Bash"), tool("Read")
    directory = ToolDirectory()
    directory.add(
        [
            call(0, prompt([bash, read, bash], [said("go")])),
            call(1, prompt([bash, read], [said("go")])),
        ]
    )
    rows = {row.name: row for row in directory.rows()}
    assert {name: row.churn for name, row in rows.items()} == {"Bash": 1, "Read": 0}


def test_uses_are_unknown_where_the_text_was_not_kept() -> None:
    opening = [said("go"), used("Bash", 1), said("ok")]
    whole = prompt([tool("Bash")], opening)
    bare = msgspec.structs.replace(
        whole,
        blocks=tuple(msgspec.structs.replace(block, canonical=b"") for block in whole.blocks),
    )
    directory = ToolDirectory()
    directory.add([call(0, bare)])
    assert [(row.calls, row.used) for row in directory.rows()] == [(1, None)]

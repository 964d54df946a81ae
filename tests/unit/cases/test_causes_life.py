"""Sessions as they happen to people: subagents, workspaces, long turns, clients that give up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.cases.recording import (
    MARK,
    Json,
    Recording,
    anthropic_usage,
    assistant,
    audit,
    body,
    money,
    result,
    text,
    tool,
    use,
    user,
)

TOOLS = (tool("read", 700), tool("run", 4_900, **MARK))
SYSTEM = (text("You help with code.", 5_000, **MARK),)
FRONT, ROUND = 10_600, 1_040


def talk(rounds: int, first: Json | None = None) -> list[Json]:
    """A task and rounds of a text, a tool call and its result."""
    messages = [user(first or text("task", 1_500))]
    for number in range(1, rounds + 1):
        messages += [
            assistant(text(f"look {number}", 60), use(number, 80)),
            user(result(number, 900)),
        ]
    return messages


def sent(messages: list[Json], **more: Any) -> Json:
    return body(messages, tools=TOOLS, system=SYSTEM, **more)


def grows(case: Recording, calls: int, *, bodies: bool = True) -> Recording:
    """A lane that reads all it can."""
    size = FRONT + 1_500
    case.call(0, anthropic_usage(0, size), sent(talk(0)) if bodies else None)
    for number in range(1, calls):
        request = sent(talk(number)) if bodies else None
        case.call(30 * number, anthropic_usage(size, ROUND), request)
        size += ROUND
    return case


# ── two workspaces ───────────────────────────────────────────────────────────────────────────────


def in_turn(bodies: bool, **where: str) -> Recording:
    """Calls that alternate between the caches of two workspaces."""
    case, left = Recording(), dict[str, int]()
    for number in range(5):
        size, name = FRONT + 1_500 + ROUND * number, "AB"[number % 2]
        read = left.get(name, 0)
        fields: Json = {field: value + name for field, value in where.items()}
        request = sent(talk(number)) if bodies else None
        case.call(30 * number, anthropic_usage(read, size - read), request, **fields)
        left[name] = size
    return case


def test_recorded_workspaces_prove_why_nothing_was_found(tmp_path: Path) -> None:
    found = audit(tmp_path, in_turn(True, workspace="wrk-")).only()
    assert (found.name, found.verdict) == ("service-changed", "proved")
    assert found.calls == ["call-2", "call-3", "call-4", "call-5"]
    # The second workspace lacked the whole prompt; after that each round lacks one more.
    assert found.tokens == FRONT + 1_500 + 3 * ROUND
    assert "workspace" in found.said
    assert not found.rivals
    saved = money(found.fix["saves_alone"]["input_equivalents"])
    assert saved == found.tokens * 115 // 100


@pytest.mark.parametrize("field", ["workspace", "api_key_id", "organization"])
def test_recorded_owners_without_bodies_are_likely(tmp_path: Path, field: str) -> None:
    found = audit(tmp_path, in_turn(False, **{field: "x-"})).only()
    assert (found.name, found.verdict) == ("service-changed", "consistent")
    assert "system-changed" in found.rivals
    assert field in found.said
    assert "x-A" not in found.said


def test_workspaces_of_an_organisation_share_one_cache_where_the_platform_says_so(
    tmp_path: Path,
) -> None:
    """On Bedrock the organisation is what is kept apart: a miss has another cause."""
    case = in_turn(False, workspace="wrk-")
    for line in case.lines:
        line["surface"] = "bedrock"
    assert "service-changed" not in audit(tmp_path, case).names


# ── many new content blocks ──────────────────────────────────────────────────────────────────────


def files_at_once(*, bodies: bool) -> Recording:
    """All four markers in use, one on the task for good; then 30 files, one content block each."""
    task = text("task", 1_500, **MARK)
    case = Recording().call(
        0, anthropic_usage(0, FRONT + 1_500), sent(talk(0, task)) if bodies else None
    )
    size = FRONT + 1_500
    for number in (1, 2):
        request = sent(talk(number, task)) if bodies else None
        case.call(30 * number, anthropic_usage(size, ROUND), request)
        size += ROUND
    files = [text(f"file {number}", 400) for number in range(30)]
    messages = [*talk(2, task), assistant(text("which files?", 200)), user(*files)]
    read, total = FRONT + 1_500, size + 12_200
    case.call(90, anthropic_usage(read, total - read), sent(messages) if bodies else None)
    messages = [*messages, assistant(use(9, 80)), user(result(9, 900))]
    return case.call(120, anthropic_usage(total, 980), sent(messages) if bodies else None)


def test_beyond_the_lookback_with_all_four_markers_in_use(tmp_path: Path) -> None:
    found = audit(tmp_path, files_at_once(bodies=True)).only()
    assert (found.name, found.verdict, found.calls) == (
        "marker-beyond-lookback", "proved", ["call-4"],
    )  # fmt: skip
    assert found.tokens == 2 * ROUND
    # The task's marker moves to the previous end: those tokens are read instead of written.
    assert money(found.fix["saves_alone"]["input_equivalents"]) == 2 * ROUND * 115 // 100


def test_an_older_prompt_read_behind_a_large_addition_may_be_the_lookback(tmp_path: Path) -> None:
    found = audit(tmp_path, files_at_once(bodies=False)).only()
    assert found.verdict != "proved"
    assert "lookback-or-message-change" in found.rivals
    assert "added" in found.to_check


# ── requests side by side ────────────────────────────────────────────────────────────────────────


def subagents(rounds: int) -> Recording:
    """Three subagents that begin together with one map, and go on in step."""
    case = grows(Recording(), 3)
    lanes = ("a", "b", "c")
    for number in range(rounds):
        for place, lane in enumerate(lanes):
            first = [text("map", 25_000), text(f"part {lane}", 200)]
            messages = [user(*first), *talk(number)[1:]]
            size = FRONT + 25_200 + ROUND * number
            read = FRONT if number == 0 else size - ROUND
            case.call(
                100 + 25 * number + 0.2 * place,
                anthropic_usage(read, size - read),
                sent(messages),
                lane=f"sub-{lane}",
                purpose="subagent",
            )
    return case


@pytest.mark.parametrize("rounds", [1, 3])
def test_one_subagent_first_saves_the_same_however_long_they_go_on(
    tmp_path: Path, rounds: int
) -> None:
    found = audit(tmp_path, subagents(rounds)).only()
    assert (found.name, found.verdict) == ("concurrent-identical-writes", "proved")
    assert found.tokens == 2 * 25_000
    assert money(found.fix["saves_alone"]["input_equivalents"]) == 2 * 25_000 * 115 // 100


def test_a_client_that_gives_up_and_asks_again(tmp_path: Path) -> None:
    """Four tries of one request, three seconds apart; the first answer begins after ten."""
    case, size = Recording(), FRONT + 41_500
    request = sent([user(text("task", 1_500), text("repository", 40_000))])
    for number in range(4):
        case.call(3 * number, anthropic_usage(0, size), request, attempt=number, seconds=30)
        case.lines[-1]["first_token_at"] += 9
        case.lines[-1]["purpose"] = "retry" if number else "main"
    found = audit(tmp_path, case).only()
    assert (found.name, found.verdict, found.evidence) == (
        "concurrent-identical-writes", "proved", "body_diff",
    )  # fmt: skip
    assert found.tokens == 3 * size
    assert money(found.fix["saves_alone"]["input_equivalents"]) == 3 * size * 115 // 100


def test_what_subagents_read_is_not_a_write_in_vain(tmp_path: Path) -> None:
    """The main lane's last write is where its subagent goes on; without it, it was in vain."""
    case = Recording().call(0, anthropic_usage(0, 60_000))
    notes = [found.name for found in audit(tmp_path, case).notes]
    assert "writes-not-read" in notes
    case.call(30, anthropic_usage(60_000, 5_000), lane="sub", purpose="subagent")
    notes = [found.name for found in audit(tmp_path, case).notes]
    assert "writes-not-read" not in notes


# ── what is no loss ──────────────────────────────────────────────────────────────────────────────


def test_a_cleared_conversation_loses_nothing(tmp_path: Path) -> None:
    case = grows(Recording(), 4)
    messages = [user(text("another job", 900))]
    case.call(180, anthropic_usage(FRONT, 900), sent(messages))
    assert audit(tmp_path, case).losses == []


def test_going_back_and_on_from_there_loses_nothing_where_all_of_it_is_read(tmp_path: Path) -> None:
    case = grows(Recording(), 5)
    messages = [*talk(2), assistant(text("another way", 50)), user(text("try that", 200))]
    read = FRONT + 1_500 + 2 * ROUND
    case.call(180, anthropic_usage(read, 250), sent(messages))
    assert audit(tmp_path, case).losses == []


def side_calls(*, bodies: bool) -> Recording:
    """A second, short conversation in the same lane, in turn with the first."""
    case = Recording()
    named: list[Json] = []
    for number in range(4):
        size = FRONT + 1_500 + ROUND * number
        read = size - ROUND if number else 0
        request = sent(talk(number)) if bodies else None
        case.call(30 * number, anthropic_usage(read, size - read), request)
        named += [user(text(f"name this {number}", 2_000))]
        written = 3_500 if number == 0 else 2_000
        left = 0 if number == 0 else 1_500 + 2_000 * number
        request = body(named, system=(text("You name things.", 1_500),)) if bodies else None
        case.call(30 * number + 4, anthropic_usage(left, written), request)
    return case


def test_two_conversations_in_one_lane_that_both_read_all_lose_nothing(tmp_path: Path) -> None:
    assert audit(tmp_path, side_calls(bodies=True)).losses == []


def test_from_usage_alone_a_prompt_of_another_conversation_is_a_rival(tmp_path: Path) -> None:
    case = side_calls(bodies=False)
    case.lines = [*case.lines[:1], *case.lines[2:4], case.lines[4]]
    # The next call reads exactly what the first conversation had left, not what this one did.
    found = audit(tmp_path, case).only()
    assert found.verdict != "proved"
    assert "unrelated-prompts" in found.rivals

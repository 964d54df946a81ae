"""Public cases of fan-out and routing (F), compaction (C), deferred tools (M), diagnosis (D)."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cases.recording import (
    MARK,
    Recording,
    anthropic_usage,
    assistant,
    audit,
    body,
    command,
    diff,
    money,
    openai_usage,
    result,
    simulated,
    text,
    tool,
    use,
    user,
)
from tests.unit.cli.helpers import run

FRONT = 7_000
TOOLS = (tool("read", 1_500), tool("run", 1_500, **MARK))
SYSTEM = (text("You help with code.", 4_000, **MARK),)


# --- F: fan-out, concurrency, routing ---------------------------------------------------------


def twice(gap: float, second: int, *, bodies: bool = True) -> Recording:
    """The same request twice; the first one answers within two seconds."""
    request = body([user(text("task", 5_000))], tools=TOOLS, system=SYSTEM) if bodies else None
    case = Recording().call(0, anthropic_usage(0, 12_000), request, seconds=2)
    return case.call(gap, anthropic_usage(second, 12_000 - second), request, seconds=2)


@pytest.mark.parametrize("bodies", [True, False], ids=["bodies", "usage"])
def test_f01_a_write_that_cannot_be_read_yet_is_no_fault_of_the_prefix(
    tmp_path: Path, bodies: bool
) -> None:
    case = twice(2.05, 0, bodies=bodies)
    loss = audit(tmp_path, case).only()
    assert loss.name == "read-before-visible"
    assert loss.verdict != "proved"
    assert loss.rivals
    # Two seconds later it hits, and nothing is found.
    assert audit(tmp_path, twice(4.1, 12_000, bodies=bodies)).losses == []


def test_f01_the_delay_is_a_parameter_of_the_simulator(tmp_path: Path) -> None:
    case = twice(2.05, 0)
    now = simulated(tmp_path, case)
    late = simulated(tmp_path, case, "--switch", "visible_after=2")
    assert [c["predicted"]["cache_read"] for c in now["calls"]] == [0, 12_000]
    assert [c["predicted"]["cache_read"] for c in late["calls"]] == [0, 0]
    assert late["switches"] == {"visible_after": "2"}


def parts(total: int, pieces: int) -> list[int]:
    return [total * (n + 1) // pieces - total * n // pieces for n in range(pieces)]


def test_f04_a_ratio_of_one_to_thirteen(tmp_path: Path) -> None:
    case = Recording(model="claude-opus-4-8")
    writes, reads = parts(5_586_784, 1_030), parts(72_733_002, 1_030)
    for number, (written, read) in enumerate(zip(writes, reads, strict=True)):
        lane = f"agent-{number % 23}"
        case.call(2 * number, anthropic_usage(read, written), lane=lane, purpose="subagent")
    totals = audit(tmp_path, case).document["totals"]
    assert totals["cache_write"]["5m"] == 5_586_784
    assert totals["cache_read"] == 72_733_002
    assert round(72_733_002 / 5_586_784, 1) == 13.0
    write, read = Decimal("1.25") * 5_586_784, Decimal("0.1") * 72_733_002
    assert (round(write / 10**6, 2), round(read / 10**6, 2)) == (Decimal("6.98"), Decimal("7.27"))
    assert money(totals["input_equivalents"]) == write + read
    shown = run(tmp_path, "audit", str(case.save(tmp_path)), "--no-color").stdout
    assert "14,256,780" in shown


def test_f05_accounts_in_turn(tmp_path: Path) -> None:
    case = Recording().call(0, anthropic_usage(0, 10_000)).call(10, anthropic_usage(0, 12_000))
    case.call(20, anthropic_usage(0, 14_000)).call(30, anthropic_usage(10_000, 6_000))
    found = audit(tmp_path, case)
    assert all(loss.verdict != "proved" for loss in found.losses)
    fourth = next(loss for loss in found.losses if "call-4" in loss.calls)
    told = fourth.said + fourth.to_check + json.dumps(fourth.row["rivals"])
    assert "10,000" in fourth.said
    assert "account" in told
    # A second round leaves no doubt that reads follow one another in turn.
    case.call(40, anthropic_usage(12_000, 6_000)).call(50, anthropic_usage(14_000, 6_000))
    names = audit(tmp_path, case).names
    assert "alternating-accounts" in names


def test_f05_the_simulator_keeps_accounts_apart(tmp_path: Path) -> None:
    case, talk, size = Recording(), [user(text("task", 3_000))], 10_000
    for number, account in enumerate("ABCA"):
        read = 10_000 if number == 3 else 0
        case.call(
            10 * number,
            anthropic_usage(read, size - read),
            body(talk, tools=TOOLS, system=SYSTEM),
            account=account,
        )
        talk += [assistant(text(f"a{number}", 1_000)), user(text(f"b{number}", 1_000))]
        size += 2_000
    found = audit(tmp_path, case)
    assert found.reads == [0, 0, 0, 10_000]


def test_f07_a_cache_that_was_never_hit_and_then_pinned(tmp_path: Path) -> None:
    case = Recording(provider="openai", surface="openai", model="gpt-5.4")
    size = 10_000
    for number in range(12):
        case.call(20 * number, openai_usage(size, 0))
        size += 500
    case.call(20 * 12, openai_usage(16_854, 16_384))
    found = audit(tmp_path, case)
    loss = found.only()
    assert loss.name == "routing-lost"
    assert loss.verdict != "proved"
    assert loss.rivals
    assert "key" in loss.fix["title"]
    assert round(Decimal(16_384) / 16_854 * 100, 1) == Decimal("97.2")
    last = found.document["calls"][-1]
    assert (last["cache_read"], last["total_input"]) == (16_384, 16_854)


# --- C: compaction ----------------------------------------------------------------------------


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {}}, "_t": 2_000}


def side_call(*, front: bool, total: int, cached: int) -> Recording:
    """A conversation, then its summary request under the same cache key."""
    head = [{"role": "system", "content": "You help.", "_t": 3_000}]
    talk = [
        {"role": "user", "content": "task", "_t": 100_000},
        {"role": "assistant", "content": "answer", "_t": 100_000},
        {"role": "user", "content": "go on", "_t": 26_000},
    ]
    tools = [function("read"), function("run"), function("find")]
    case = Recording(provider="openai", surface="openai", model="gpt-5.4")
    first = {"tools": tools, "messages": [*head, *talk], "prompt_cache_key": "k"}
    case.call(0, openai_usage(235_000, 225_000), first)
    order = {"role": "user", "content": "Summarise.", "_t": 1_000}
    if front:
        request = {"tools": tools, "messages": [*head, *talk, order], "prompt_cache_key": "k"}
    else:
        request = {"messages": [*talk, order], "prompt_cache_key": "k"}
    return case.call(30, openai_usage(total, cached), request, purpose="compaction")


def test_c01_a_summary_request_without_tools_and_system(tmp_path: Path) -> None:
    case = side_call(front=False, total=227_000, cached=0)
    change = diff(tmp_path, case)["first_change"]
    assert (change["level"], change["path"]) == ("tools", "tools[0]")
    found = audit(tmp_path, case)
    loss = found.only()
    assert loss.name == "tools-dropped-on-side-call"
    assert (loss.verdict, loss.path) == ("proved", "tools[0]")
    assert loss.tokens == 227_000
    assert found.reads[1] == 0
    assert "append" in loss.fix["title"]


def test_c02_the_same_prefix_would_be_read(tmp_path: Path) -> None:
    without = audit(tmp_path, side_call(front=False, total=227_000, cached=0))
    kept = audit(tmp_path, side_call(front=True, total=236_000, cached=234_880))
    assert kept.losses == []
    (bad,) = [c for c in without.document["calls"] if c["purpose"] == "compaction"]
    (good,) = [c for c in kept.document["calls"] if c["purpose"] == "compaction"]
    # 227,000 at the full rate against 1,120 at the full rate and the rest at a tenth of it.
    rate = Decimal("2.5") / 10**6
    output = Decimal(15) / 10**6 * 100
    assert money(bad["cost"]) == 227_000 * rate + output
    assert money(good["cost"]) == (1_120 + Decimal("0.1") * 234_880) * rate + output
    saved = without.only().fix["saves_alone"]
    assert money(saved["input_equivalents"]) > Decimal("0.85") * 227_000


def test_c05_the_write_share_of_weighted_input(tmp_path: Path) -> None:
    case = Recording(model="claude-opus-4-8")
    reads = parts(45_733_687, 202)
    writes = [116_000 + 200 * number for number in range(202)]
    writes[-1] += 27_513_828 - sum(writes)
    for number, (written, read) in enumerate(zip(writes, reads, strict=True)):
        case.call(60 * number, anthropic_usage(read, written))
    found = audit(tmp_path, case)
    totals = found.document["totals"]
    write, read = Decimal("1.25") * 27_513_828, Decimal("0.1") * 45_733_687
    assert money(totals["input_equivalents"]) == write + read
    assert round(write / (write + read) * 100, 1) == Decimal("88.3")
    note = found.note("long-content-written-again")
    assert "27,513,828 in all, 88 % of what writes and reads cost" in note.said


def compacting(pause: float, turns: int) -> Recording:
    """Two turns of 90,000 tokens, a pause, and further turns of 1,000 tokens each."""
    case, at, size = Recording(model="claude-opus-4-8"), 0.0, 90_000
    talk = [user(text("task", 45_000)), assistant(text("a", 44_000)), user(text("b", 1_000))]
    case.call(at, anthropic_usage(0, size), body(talk))
    for number in range(turns):
        at += pause if number == 0 else 30
        talk += [assistant(text(f"c{number}", 500)), user(text(f"d{number}", 500))]
        read = 0 if number == 0 and pause > 300 else size
        size += 1_000
        case.call(at, anthropic_usage(read, size - read), body(talk))
    return case


def saves(folder: Path, case: Recording, edit: str) -> Decimal:
    found = simulated(folder, case, "--edit", edit)["what_if"]
    return money(found["all_fixes"]["saves"]["input_equivalents"])


COMPACT = "compact:at=80000,least=20000,summary=2000"


def test_c06_while_warm_it_harms_now(tmp_path: Path) -> None:
    # The summary request reads 90,000 and adds 1,060; 2,000 of summary are written. Not spent:
    # reading 90,000 once.
    spent = Decimal("0.1") * 90_000 + Decimal("1.25") * 1_000 + 60 + Decimal("1.25") * 2_000
    saved = saves(tmp_path, compacting(60, 1), COMPACT)
    assert saved == Decimal("0.1") * 90_000 + Decimal("1.25") * 1_000 - spent
    assert saved == -2_560


def test_c06_once_expired_it_is_strictly_cheaper(tmp_path: Path) -> None:
    # 91,000 tokens would be written anew; instead 91,060 are sent plainly and 2,000 written.
    saved = saves(tmp_path, compacting(600, 1), COMPACT + ",after-expiry=yes")
    assert saved == Decimal("1.25") * 91_000 - 91_060 - Decimal("1.25") * 2_000
    assert saved == 20_190


def test_c06_a_warm_compaction_breaks_even_with_enough_turns(tmp_path: Path) -> None:
    # Every further turn is 89,000 tokens shorter, read at a tenth.
    found = [saves(tmp_path, compacting(60, turns), COMPACT) for turns in (1, 2, 3)]
    assert found == [-2_560, -2_560 + 8_900, -2_560 + 2 * 8_900]


def test_c06_a_recorded_warm_compaction_is_a_note_until_it_pays(tmp_path: Path) -> None:
    def recorded(turns: int) -> Recording:
        case = Recording(model="claude-opus-4-8").call(0, anthropic_usage(0, 90_000))
        made = [{"kind": "compaction"}]
        case.call(60, anthropic_usage(15_000, 20_000), boundaries=made)
        for number in range(turns):
            size = 35_000 + 900 * number
            case.call(90 + 30 * number, anthropic_usage(size, 900))
        return case

    assert "compacted-while-warm" in {n.name for n in audit(tmp_path, recorded(1)).notes}
    assert "compacted-while-warm" not in {n.name for n in audit(tmp_path, recorded(40)).notes}


# --- M: deferred tools ------------------------------------------------------------------------


def test_m01_a_list_of_deferred_tools_in_the_system_prompt(tmp_path: Path) -> None:
    head = "You help.\nTools that can be loaded by search:\n"
    talk = [user(text("task", 9_000))]
    more = [*talk, assistant(use(1, 100, "tool_search")), user(result(1, 200))]
    before = (text(head + "- mail_read\n- mail_send", 4_000, **MARK),)
    after = (text(head + "- mail_send", 3_990, **MARK),)
    case = Recording().call(0, anthropic_usage(0, 16_000), body(talk, tools=TOOLS, system=before))
    case.call(20, anthropic_usage(3_000, 13_290), body(more, tools=TOOLS, system=after))
    change = diff(tmp_path, case)["first_change"]
    assert (change["level"], change["path"]) == ("system", "system[0]")
    found = audit(tmp_path, case)
    loss = found.only()
    assert (loss.name, loss.verdict) == ("deferred-list-in-system", "proved")
    assert loss.tokens == 13_000
    assert found.reads[1] == 3_000
    assert "message" in loss.fix["title"]


def test_m03_a_fixed_bridge_tool_keeps_reads_growing(tmp_path: Path) -> None:
    # An automatic cache that reports 39,321 and then 39,594 read.
    tools = [function("tool_search"), function("tool_call")]
    talk = [
        {"role": "system", "content": "You help.", "_t": 5_000},
        {"role": "user", "content": "task", "_t": 30_321},
    ]
    case = Recording(provider="qwen", surface="other", model="qwen3-coder-plus")
    case.call(0, openai_usage(39_321, 39_000), {"tools": tools, "messages": talk})
    size = 39_321
    for number, read in enumerate((39_321, 39_594)):
        talk = [
            *talk,
            {"role": "assistant", "content": f"call {number}", "_t": 100},
            {"role": "user", "content": f"result {number}", "_t": 173},
        ]
        size += 273
        case.call(20 + 20 * number, openai_usage(size, read), {"tools": tools, "messages": talk})
    found = audit(tmp_path, case)
    assert found.losses == []
    path = case.save(tmp_path)
    same = command(tmp_path, "diff", f"{path}#call-1", f"{path}#call-3")
    assert same["first_change"] is None
    assert same["common"]["tools"] == 2


# --- D: diagnosis -----------------------------------------------------------------------------


def test_d01_nothing_read_and_nothing_written(tmp_path: Path) -> None:
    case = Recording().call(0, anthropic_usage(0, 19_000))
    case.call(20, anthropic_usage(0, 0, 20_000)).call(40, anthropic_usage(19_000, 2_000))
    found = audit(tmp_path, case)
    assert found.losses
    for loss in found.losses:
        assert loss.verdict == "unknown"
        assert loss.rivals
    assert "provider-side-suspected" in {
        name for loss in found.losses for name in (loss.name, *loss.rivals)
    }


def test_d01_a_single_request_is_no_loss(tmp_path: Path) -> None:
    found = audit(tmp_path, Recording().call(0, anthropic_usage(0, 0, 20_000)))
    assert found.losses == []
    assert all(note.verdict != "proved" for note in found.notes)


def test_d01_a_write_that_is_read_back_is_healthy(tmp_path: Path) -> None:
    case = Recording().call(0, anthropic_usage(0, 20_000)).call(20, anthropic_usage(20_000, 600))
    assert audit(tmp_path, case).losses == []

"""Steps add up exactly, whatever the session and the edits."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.model.call import Call
from cacheaudit.pricing.book import PriceBook
from cacheaudit.simulate.bill import Bill, Saving
from cacheaudit.simulate.edit import parse_edit
from cacheaudit.simulate.waterfall import waterfall
from cacheaudit.simulate.whatif import evaluate
from tests.unit.whatif.builders import Talk, text, tool

EDITS = (
    "late-tools", "sort-tools", "freeze-text", "keep-alive", "ttl", "mark-previous", "join-blocks",
    "auto-tool-choice", "steady-settings", "fan-out", "compact:at=12000,least=5000", "unmark",
    "model:to=claude-sonnet-5",
)  # fmt: skip
BOOK = PriceBook()


@st.composite
def sessions(draw: st.DrawFn) -> list[Call]:
    """Conversations in which things change that should not."""
    talk = Talk([tool("b", 800), tool("a", 700)], [text("rules", 2500)])
    talk.say("user", text("task", draw(st.integers(100, 3000))))
    at = 0.0
    for number in range(draw(st.integers(2, 7))):
        at += draw(st.sampled_from([1.0, 40.0, 299.0, 301.0, 900.0, 4000.0]))
        event = draw(st.sampled_from(["", "", "tool", "swap", "clock", "force", "wide", "think"]))
        body: dict[str, object] = {}
        if event == "tool":
            talk.tools.insert(0, tool(f"new{number}", 300))
        elif event == "swap":
            talk.tools.reverse()
        elif event == "clock":
            talk.system[0] = text(f"rules at {number}", 2500)
        elif event == "force":
            body = {"tool_choice": {"type": "tool", "name": "a"}}
        elif event == "think":
            body = {"thinking": {"type": "adaptive"}}
        elif event == "wide":
            talk.say("assistant", text("ok", 10))
            talk.say("user", *(text(f"{number}/{n}", 20) for n in range(25)))
        talk.sent(at, body=body).round(f"r{number}", draw(st.integers(150, 2500)))
    return talk.calls


@settings(max_examples=60, deadline=None)
@given(sessions(), st.lists(st.sampled_from(EDITS), min_size=1, max_size=5, unique=True))
def test_steps_sum_to_the_difference_of_the_bills(calls: list[Call], names: list[str]) -> None:
    found = evaluate(calls, [parse_edit(name) for name in names], BOOK)
    after = found.together.bill
    assert after is not None
    assert found.steps.before == found.baseline
    assert found.steps.after == after
    assert found.steps.saves == found.baseline.less(after)
    assert len(found.steps.steps) == sum(trial.bill is not None for trial in found.alone)
    running = found.baseline.amounts
    for step in found.steps.steps:
        running = running - step.saves
        assert running == step.after.amounts
    # The first step is what its edit saves alone, and no other saves more alone.
    if found.steps.steps:
        first = found.steps.steps[0]
        assert first.saves == first.alone == found.alone[first.index].saves
        assert first.alone.rank == max(step.alone.rank for step in found.steps.steps)


@settings(max_examples=60, deadline=None)
@given(sessions(), st.lists(st.sampled_from(EDITS), min_size=1, max_size=3, unique=True))
def test_tokens_are_neither_lost_nor_made_up(calls: list[Call], names: list[str]) -> None:
    found = evaluate(calls, [parse_edit(name) for name in names], BOOK)
    for trial in (*found.alone, found.together, *found.scenarios):
        if trial.bill is None:
            assert trial.refused
            continue
        sent = sum(call.prompt.tokens or 0 for call in trial.calls if call.prompt)
        assert trial.bill.total_input == sent
        assert trial.bill.calls == len(trial.calls)
        assert trial.saves == found.baseline.less(trial.bill)


@settings(max_examples=40, deadline=None)
@given(sessions())
def test_the_bounds_hold(calls: list[Call]) -> None:
    found = evaluate(calls, [], BOOK)
    nothing, ideal = (trial.bill for trial in found.scenarios)
    assert nothing is not None
    assert ideal is not None
    assert nothing.input_equivalents == found.baseline.total_input
    assert ideal.input_equivalents is not None
    assert found.baseline.input_equivalents is not None
    assert ideal.input_equivalents <= found.baseline.input_equivalents
    assert ideal.cache_read >= found.baseline.cache_read
    assert found.together.bill == found.baseline


def test_a_step_may_cost_more_than_it_saves() -> None:
    bills = {0b00: 100, 0b01: 60, 0b10: 120, 0b11: 90}

    def bill(value: int) -> Bill:
        return Bill(amounts=Saving(Decimal(value), Decimal(value)))

    def evaluated(wanted: frozenset[int]) -> Bill:
        return bill(bills[sum(1 << n for n in wanted)])

    alone = [Saving(Decimal(40), Decimal(40)), Saving(Decimal(-20), Decimal(-20))]
    found = waterfall(bill(100), alone, evaluated)
    assert [(step.index, step.saves.cost) for step in found.steps] == [(0, 40), (1, -30)]
    assert found.saves.cost == 10


def test_what_is_not_known_stays_not_known() -> None:
    known, unknown = Saving(Decimal(1), Decimal(2)), Saving(Decimal(1), None)
    assert known + unknown == Saving(Decimal(2), None)
    assert known - unknown == Saving(Decimal(0), None)
    assert unknown.rank == 1

"""The disk cache of the server and that of the simulator on the same random prompts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.simulate import deepseek as simulated
from local_backend.rules import DeepSeekRules, Prompt
from tests.unit.simulate.builders import request

UNIT = 64
Asked = tuple[str, float, float]

_steps = st.lists(
    st.tuples(
        st.text("abc", min_size=1, max_size=6),
        # Within a day: whether a text that has expired still shows a common beginning, nobody says.
        st.sampled_from([0.0, 1.0, 10.0, 1_000.0]),
        st.sampled_from([0.5, 0.5, 2.0]),
    ),
    min_size=1,
    max_size=14,
)


def by_rules(asked: list[Asked]) -> list[int]:
    rules, found = DeepSeekRules(), []
    for names, at, first in asked:
        tokens = tuple(ord(name) for name in names for _ in range(UNIT))
        plan = rules.plan(Prompt(id="m", model="m", tokens=tokens), at)
        found.append(rules.began(plan, plan.read or 0, at + first).read)
    return found


def by_simulator(asked: list[Asked]) -> list[int]:
    machine, rules = simulated.DeepSeekMachine(), simulated.DeepSeekRules()
    return [
        machine.step(request(list(names), at=at, tokens=UNIT, first=at + first), rules).read
        for names, at, first in asked
    ]


@given(_steps)
@settings(max_examples=300)
def test_both_say_the_same(steps: list[Asked]) -> None:
    asked, now = [], 0.0
    for names, gap, first in steps:
        now += gap
        asked.append((names, now, first))
    assert by_rules(asked) == by_simulator(asked)


def test_they_can_differ() -> None:
    """The comparison sees a rule that is not the same."""
    asked = [("ab", 0.0, 1.0), ("ac", 10.0, 1.0), ("ad", 20.0, 1.0)]
    assert by_rules(asked) == by_simulator(asked) == [0, 0, UNIT]
    other = DeepSeekRules(replace(DeepSeekRules().settings, unit=2 * UNIT))
    plans = []
    for names, at, first in asked:
        tokens = tuple(ord(name) for name in names for _ in range(UNIT))
        plan = other.plan(Prompt(id="m", model="m", tokens=tokens), at)
        plans.append(plan.read)
        other.began(plan, plan.read or 0, at + first)
    assert plans == [0, 0, 0]

"""No rules: whatever the engine holds of a prompt is read."""

from __future__ import annotations

from local_backend._typing import override
from local_backend.rules.base import Outcome, Plan, Prompt, ServiceRules


class ImplicitRules(ServiceRules):
    """The longest prefix that the engine holds, from a minimum on, in whole steps.

    Args:
        minimum: Fewer tokens than these are not reported as read.
        step: What is read is rounded down to a multiple of it.
    """

    name = "implicit"
    tools_first = True

    def __init__(self, minimum: int = 0, step: int = 1) -> None:
        self._minimum = minimum
        self._step = step

    @override
    def check(self, prompt: Prompt) -> None:
        del prompt

    @override
    def plan(self, prompt: Prompt, now: float) -> Plan:
        return Plan(prompt=prompt, start=now, read=None)

    @override
    def began(self, plan: Plan, held: int, readable_from: float) -> Outcome:
        del readable_from
        read = held // self._step * self._step
        read = read if read >= self._minimum else 0
        return Outcome(read=read, uncached=len(plan.prompt.tokens) - read)

    @override
    def ended(self, plan: Plan, output: tuple[int, ...], now: float) -> None:
        del plan, output, now

    @override
    def entries(self) -> int:
        return 0

"""Qwen: marked prefixes where the request marks any, else the longest prefix, never both.

Marked prefixes follow the same scheme as Claude's, with other rules: an entry can be read only once
the response that wrote it has ended, and Qwen4 renews for the lifetime that the reader asks for.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.claude import ClaudeMachine, ClaudeRules, claude_rules
from cacheaudit.simulate.longest_prefix import LongestPrefixMachine, LongestRules, longest_rules
from cacheaudit.simulate.machine import Kind
from cacheaudit.simulate.request import Outcome, SimRequest
from cacheaudit.simulate.switches import Switches


class EitherRules(msgspec.Struct, frozen=True):
    """Rules of both modes.

    Attributes:
        marked: Rules of marked prefixes; ``None``: markers are ignored.
        implicit: Rules of the longest prefix.
    """

    marked: ClaudeRules | None
    implicit: LongestRules


def qwen_rules(facts: Rules, switches: Switches) -> EitherRules:
    """Put dated facts and switches together."""
    return EitherRules(claude_rules(facts, switches), longest_rules(facts, switches))


class EitherMachine:
    """State of both caches. Requests must come in order of their start."""

    name = "qwen"

    def __init__(self) -> None:
        self._marked = ClaudeMachine()
        self._implicit = LongestPrefixMachine()

    def step(self, request: SimRequest, rules: EitherRules) -> Outcome:
        """Take one request and say what was read and written."""
        if rules.marked is not None and request.marks:
            return self._marked.step(request, rules.marked)
        return self._implicit.step(request, rules.implicit)


KIND: Final = Kind("qwen", EitherMachine, qwen_rules)

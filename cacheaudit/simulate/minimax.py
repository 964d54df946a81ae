"""MiniMax: markers as in the Messages API on M2 models, the longest prefix on all others."""

from __future__ import annotations

from typing import Final

from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.claude import claude_rules
from cacheaudit.simulate.longest_prefix import longest_rules
from cacheaudit.simulate.machine import Kind
from cacheaudit.simulate.qwen import EitherMachine, EitherRules
from cacheaudit.simulate.switches import Switches


def minimax_rules(facts: Rules, switches: Switches) -> EitherRules:
    """Put dated facts and switches together."""
    marked = claude_rules(facts, switches) if facts.flag("explicit") else None
    return EitherRules(marked, longest_rules(facts, switches))


KIND: Final = Kind("minimax", EitherMachine, minimax_rules)

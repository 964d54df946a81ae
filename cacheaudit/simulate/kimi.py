"""Kimi: the longest prefix in chunks; from K3 on what is stored is billed by its lifetime."""

from __future__ import annotations

from typing import Final

import msgspec

from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.longest_prefix import LongestPrefixMachine, LongestRules, longest_rules
from cacheaudit.simulate.machine import Kind
from cacheaudit.simulate.switches import Switches


def kimi_rules(facts: Rules, switches: Switches) -> LongestRules:
    """Put dated facts and switches together."""
    rules = longest_rules(facts, switches)
    chunk = int(switches.number("kimi_chunk", rules.interval))
    return msgspec.structs.replace(rules, interval=max(1, chunk))


KIND: Final = Kind("kimi", LongestPrefixMachine, kimi_rules)

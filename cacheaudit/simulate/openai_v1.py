"""OpenAI before GPT-5.6: the longest prefix at intervals, reported in steps of 128 tokens.

Text of the provider's own stands in front and is not counted in what is reported; how long it is,
and the interval, is published for few models: recorded reads tell.

Lifetimes are typical ones; entries may live longer, which the note ``expired`` then hides.
"""

from __future__ import annotations

from typing import Final

from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.longest_prefix import LongestPrefixMachine, LongestRules
from cacheaudit.simulate.machine import Kind
from cacheaudit.simulate.switches import Switches


def openai_v1_rules(facts: Rules, switches: Switches) -> LongestRules:
    """Put dated facts and switches together."""
    interval = int(switches.number("openai_interval", facts.integer("interval_tokens", 128)))
    return LongestRules(
        minimum=int(switches.number("minimum_tokens", facts.integer("minimum_tokens", 1024))),
        interval=max(1, interval),
        step=max(1, facts.integer("report_step", 128)),
        hidden=facts.integer("hidden_system_tokens"),
        ttl_seconds=facts.ttl_seconds(),
        default_ttl=facts.text("default_ttl") or "24h",
        best_effort=True,
    )


KIND: Final = Kind("openai_v1", LongestPrefixMachine, openai_v1_rules)

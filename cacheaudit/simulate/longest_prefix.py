"""Caches that find the longest prefix of any earlier prompt, in steps of some tokens.

Stands for every provider that caches by itself and publishes little: the facts give the step, the
smallest prefix and a lifetime. Providers that promise nothing make predictions ``best_effort``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.machine import Kind
from cacheaudit.simulate.request import Outcome, SimRequest
from cacheaudit.simulate.switches import Switches
from cacheaudit.simulate.tree import PrefixTree

_FOREVER: Final = float("inf")


class LongestRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules in force.

    Attributes:
        minimum: Tokens that a prefix needs to be read.
        interval: Tokens between the places up to which prefixes are kept.
        step: Tokens that a reported read is a multiple of.
        hidden: Tokens of the provider's own in front of the prompt: they count for the places, and
            are taken off what is reported.
        ttl_seconds: Lifetimes by name, counted from the last use.
        default_ttl: Lifetime of a request that names none.
        bills_writes: Tokens that are stored are billed as written.
        best_effort: The provider promises nothing.
    """

    minimum: int = 0
    interval: int = 1
    step: int = 1
    hidden: int = 0
    ttl_seconds: Mapping[str, float] = {}
    default_ttl: str = ""
    bills_writes: bool = False
    best_effort: bool = True


def longest_rules(facts: Rules, switches: Switches) -> LongestRules:
    """Put dated facts and switches together."""
    minimum = facts.integer("implicit_minimum_tokens", facts.integer("minimum_tokens"))
    return LongestRules(
        minimum=int(switches.number("minimum_tokens", minimum)),
        interval=max(1, facts.integer("chunk_tokens", 1)),
        ttl_seconds=facts.ttl_seconds(),
        default_ttl=facts.text("default_ttl") or "",
        bills_writes=facts.flag("bills_writes"),
        best_effort=facts.flag("best_effort", default=True),
    )


class LongestPrefixMachine:
    """State of one cache. Requests must come in order of their start."""

    name = "longest_prefix"

    def __init__(self) -> None:
        self._trees: dict[str, PrefixTree] = {}

    def step(self, request: SimRequest, rules: LongestRules) -> Outcome:
        """Take one request and say what was read and written."""
        if request.invalid is not None:
            return Outcome(read=0, writes={}, uncached=request.total, refused=request.invalid)
        tree = self._trees.setdefault(f"{request.scope}\n{request.variant}", PrefixTree())
        found = tree.find(request.digests, request.at)
        ttl = request.ttl if request.ttl in rules.ttl_seconds else rules.default_ttl
        until = request.at + rules.ttl_seconds.get(ttl or "", _FOREVER)
        tree.add(request.digests, request.at, until, request.readable_at, request.id)
        notes = set(found.notes)
        if rules.best_effort:
            notes.add("best_effort")
        matched = request.sizes[found.depth - 1] if found.depth else 0
        read = _reported(matched, rules)
        if read < rules.minimum:
            read = 0
            if matched:
                notes.add("below_minimum")
        total = request.total
        written = max(0, _reported(total, rules) - read) if rules.bills_writes else 0
        return Outcome(
            read=read,
            writes={ttl or "other": written} if written else {},
            uncached=total - read - written,
            hit=found.depth - 1 if read else -1,
            hit_from=found.writer if read else None,
            notes=tuple(sorted(notes)),
        )


def _reported(tokens: int, rules: LongestRules) -> int:
    """Cut a matched prefix to the last place kept, and that to what is reported of it."""
    if not tokens:
        return 0
    kept = tokens + rules.hidden
    kept -= kept % rules.interval
    visible = max(0, kept - rules.hidden)
    return visible - visible % rules.step


KIND: Final = Kind("longest_prefix", LongestPrefixMachine, longest_rules)

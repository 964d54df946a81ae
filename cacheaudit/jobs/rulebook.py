"""Which dated rules of the providers a result rests on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cacheaudit._typing import override
from cacheaudit.providers import facts
from cacheaudit.report.provider_rules import fact_row
from cacheaudit.report.result import Fact, SwitchRow
from cacheaudit.simulate.machine import kind
from cacheaudit.simulate.switches import SWITCHES, Switches

_BODIES: Final = "bodies"
# What the replay of sizes goes by.
_SIZES: Final = (
    "minimum_tokens",
    "implicit_minimum_tokens",
    "ttl_seconds",
    "default_ttl",
    "clock",
    "refresh_on_read",
    "readable_from",
    "interval_tokens",
    "hidden_system_tokens",
    "chunk_tokens",
    "unit_tokens",
)
# What requests are read by before a cache machine sees them.
_REQUESTS: Final = (
    "level_order",
    "isolation",
    "ignored_parameters",
    "thinking_retention",
    "hidden_tool_tokens",
    "server_tool_writes",
)
_DROPS: Final = "drops."
_INTERNAL: Final = "machine"
_NAMED: Final = 4


def switch_rows(switches: Switches) -> list[SwitchRow]:
    """List the disputed rules in force, each with its dated default."""
    values = switches.in_force()
    return [
        SwitchRow(switch.name, values[switch.name], switch.default, switch.since, switch.source)
        for switch in SWITCHES
    ]


class UsedRules:
    """Gathers the rules that predictions rest on, session after session."""

    def __init__(self) -> None:
        self._known: dict[int, facts.Rules] = {}
        self._modes: dict[int, set[str]] = {}

    def add(self, mode: str, rules: Iterable[facts.Rules]) -> None:
        """Add those of one session, and what its predictions rest on."""
        for one in rules:
            self._known[id(one)] = one  # holds it, so that the id stays its own
            self._modes.setdefault(id(one), set()).add(mode)

    def assumed(self) -> list[str]:
        """Name those that rest on one secondary source or on inference, as ``model: fact``."""
        found = {
            f"{one.model or one.provider}: {name}"
            for one in self._known.values()
            for name in self._names(one)
            if one.facts[name].confidence == "low"
        }
        return sorted(found)

    def rows(self) -> list[Fact]:
        """List them, each dated row once with the models that it was used for."""
        rows: dict[int, tuple[facts.Fact, dict[str, None]]] = {}
        for one in sorted(self._known.values(), key=lambda one: (one.provider, one.model)):
            for name in self._names(one):
                fact = one.facts[name]
                models = rows.setdefault(id(fact), (fact, {}))[1]
                models[one.model or one.provider] = None
        listed = [fact_row(_joined(list(models)), fact) for fact, models in rows.values()]
        return sorted(listed, key=lambda row: (row.model, row.name, row.checked or ""))

    def _names(self, one: facts.Rules) -> list[str]:
        names = set(_SIZES)
        if _BODIES in self._modes[id(one)]:
            names |= _asked(one) | set(_REQUESTS)
            names |= {name for name in one.facts if name.startswith(_DROPS)}
        return [name for name in one.facts if name in names and name != _INTERNAL]


class _Listening(facts.Rules):
    """Rules that remember what they were asked for."""

    __slots__ = ("asked",)

    def __init__(self, rules: facts.Rules) -> None:
        self.asked: set[str] = set()
        super().__init__(rules.provider, rules.model, rules.surface, rules.facts)

    @override
    def value(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().value(name, default)


def _asked(rules: facts.Rules) -> set[str]:
    """Find out which facts the cache machine goes by."""
    if rules.machine is None:
        return set()
    listening = _Listening(rules)
    kind(rules.machine).rules(listening, Switches())
    return listening.asked


def _joined(models: list[str]) -> str:
    if len(models) <= _NAMED:
        return ", ".join(models)
    return f"{', '.join(models[:_NAMED])} and {len(models) - _NAMED} more"

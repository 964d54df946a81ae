"""What a record must hold for a rule to speak, as the rule states it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from cacheaudit.diagnose.rule import Rule
from cacheaudit.model.call import Call


def needs(rule: Rule) -> tuple[str, ...]:
    """Return what a rule needs; one that speaks of whatever is recorded needs token counts."""
    return rule.needs or ("usage",)


def lacking(rule: Rule, absent: Collection[str]) -> tuple[str, ...]:
    """Name what a rule lacks in a record that has none of some things; empty where it can speak.

    Args:
        rule: The rule.
        absent: Names as :func:`needs` gives them.
    """
    return tuple(name for name in rule.needs if name in absent)


def holds(calls: Iterable[Call], name: str) -> bool:
    """Whether any of the calls has what :func:`needs` names."""
    has = _HAS[name]
    return any(has(call) for call in calls)


_HAS: Final[dict[str, Callable[[Call], bool]]] = {
    "usage": lambda call: call.usage is not None,
    "requests": lambda call: call.prompt is not None,
    "start_times": lambda call: call.started_at is not None or call.start_span is not None,
    "provider_reasons": lambda call: call.diagnostics is not None,
    "boundaries": lambda call: bool(call.boundaries),
}
THINGS: Final = tuple(_HAS)
"""Everything that a rule can need."""

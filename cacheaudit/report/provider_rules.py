"""The providers' rules that a result rests on, with where they were read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cacheaudit.report.result import AuditResult, Fact

if TYPE_CHECKING:
    from cacheaudit.providers.facts import Fact as Dated

SHOWN_MODELS = 8
_SHOWN = (
    "minimum_tokens",
    "ttl_seconds",
    "default_ttl",
    "clock",
    "refresh_on_read",
    "readable_from",
    "lookback_positions",
    "most_markers",
    "interval_tokens",
    "isolation",
)


def facts(result: AuditResult, models: Iterable[tuple[str | None, str | None]]) -> list[Fact]:
    """List the rules: those of the result, else the newest known of the models named.

    Args:
        result: The result.
        models: (provider, model) of the calls, in the order in which they should be listed.
    """
    if result.facts:
        return list(result.facts)
    known = dict.fromkeys(pair for pair in models if pair[1] is not None)
    return [fact for pair in list(known)[:SHOWN_MODELS] for fact in facts_of(*pair)]


def facts_of(provider: str | None, model: str | None) -> list[Fact]:
    """List the newest rules for one model; empty where none is known."""
    from cacheaudit.providers.facts import rules

    found = rules(provider, model)
    if found is None:
        return []
    return [
        fact_row(model or found.model, found.facts[name]) for name in _SHOWN if name in found.facts
    ]


def fact_row(model: str, fact: Dated) -> Fact:
    """Write one dated rule."""
    return Fact(
        model=model,
        name=fact.name,
        value=_text(fact.value),
        source=fact.source,
        checked=fact.valid_from.isoformat(),
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value) or "none"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("_", " ")

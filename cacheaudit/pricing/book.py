"""Finds the rates of a call: by model, date, kind of service, region and prompt size."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path

from cacheaudit.errors import MissingExtraError
from cacheaudit.pricing.card import RateCard
from cacheaudit.pricing.names import candidates, choose_table, variant
from cacheaudit.pricing.plan import Plan, build_plan
from cacheaudit.pricing.table import Table, builtin_as_of, builtin_names, load_builtin

_Key = tuple[str | None, str | None, str | None, str | None, str | None, str | None]
Fallback = Callable[[str, str, dt.date], Table | None]


class PriceBook:
    """Price tables, read when first needed, and what was found in them.

    Args:
        extra: Price files of the user, which replace built-in models of the same name; of two
            that price the same model the later one counts.
        genai_prices: Also ask the ``genai-prices`` package for models that no table knows;
            ``None``: where it is installed. It is loaded with the first such model.

    Raises:
        ConfigError: A price file is wrong.
        MissingExtraError: ``genai-prices`` is asked for and not installed.
    """

    def __init__(self, extra: Sequence[Path] = (), *, genai_prices: bool | None = None) -> None:
        self._builtin: dict[str, Table | None] = {}
        self._own: list[Table] = []
        self._plans: dict[_Key, Plan] = {}
        self._live: Fallback | None = None
        if extra:
            from cacheaudit.pricing.userfile import load_user_file

            for path in extra:
                self._own = load_user_file(path) + self._own
        self._may_be_installed = genai_prices is None
        if genai_prices:
            self._live = _installed()

    def card(
        self,
        provider: str | None,
        model: str | None,
        at: float | None,
        *,
        surface: str | None = None,
        speed: str | None = None,
        service_tier: str | None = None,
        geo: str | None = None,
        total_input: int | None = None,
    ) -> RateCard | None:
        """Return the rates that a call was billed by, or ``None`` where they are not known.

        Args:
            provider: Who served the call; ``None``: told from the model where that is certain.
            model: Model id as recorded.
            at: Start of the request; ``None``: the newest price is taken and the card says so.
            surface: ``bedrock``, ``google_cloud`` …
            speed: ``fast`` or ``standard``.
            service_tier: ``batch``, ``flex``, ``priority`` …
            geo: Where the model ran: ``us``, a region, ``global``.
            total_input: All input tokens of the request, which decide its price tier.
        """
        plan = self._plans.get((provider, model, surface, speed, service_tier, geo))
        if plan is None:
            plan = self.plan(provider, model, surface, speed, service_tier, geo)
        return plan.pick(at, total_input)

    def why_not(
        self,
        provider: str | None,
        model: str | None,
        *,
        surface: str | None = None,
        speed: str | None = None,
        service_tier: str | None = None,
        geo: str | None = None,
    ) -> str:
        """Say in a few words why :meth:`card` found nothing."""
        plan = self.plan(provider, model, surface, speed, service_tier, geo)
        return plan.reason or f"no price of {model} holds at that date"

    def is_tiered(
        self,
        provider: str | None,
        model: str | None,
        *,
        surface: str | None = None,
        speed: str | None = None,
        service_tier: str | None = None,
        geo: str | None = None,
    ) -> bool:
        """Whether the price depends on the size of the prompt."""
        return self.plan(provider, model, surface, speed, service_tier, geo).tiered

    @property
    def as_of(self) -> str:
        """Newest day on which any built-in or own price was checked, ISO."""
        return max([builtin_as_of(), *(table.as_of for table in self._own)]).isoformat()

    def table(self, name: str) -> Table | None:
        """Return a built-in table, reading it on first use."""
        if name not in self._builtin:
            self._builtin[name] = load_builtin(name)
        return self._builtin[name]

    def tables(self) -> list[Table]:
        """Every table, the user's own first; reads all of them."""
        return self._own + [t for name in builtin_names() if (t := self.table(name)) is not None]

    def plan(
        self,
        provider: str | None,
        model: str | None,
        surface: str | None,
        speed: str | None,
        service_tier: str | None,
        geo: str | None,
    ) -> Plan:
        """Return every price of one model and kind of service, by date, hour and prompt size.

        For who prices many calls: ``plan.pick(at, total_input)`` is what :meth:`card` does last.
        """
        key = (provider, model, surface, speed, service_tier, geo)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._make_plan(*key)
        return plan

    def _make_plan(
        self,
        provider: str | None,
        model: str | None,
        surface: str | None,
        speed: str | None,
        service_tier: str | None,
        geo: str | None,
    ) -> Plan:
        if not model:
            return Plan(reason="model unknown")
        name = choose_table(provider, model, surface)
        found = self._find(name, model)
        if found is None:
            return Plan(reason=f"unknown model {model!r}" + (f" of {name}" if name else ""))
        table, model_id, note = found
        kind = variant(table.provider, speed, service_tier)
        entry = table.model(model_id)
        if kind == "priority" and "claude" in model_id and not _has(entry.rows, kind):
            # Capacity bought ahead: what the commitment cost is in no record.
            kind, note = "standard", "priority capacity is contracted: list price"
        return build_plan(table, entry, kind, geo, note)

    def _find(self, name: str | None, model: str) -> tuple[Table, str, str | None] | None:
        """Return table, model id and a note; the user's own prices go first."""
        builtin = None if name is None else self.table(name)
        for table in self._own:
            if name is None or table.provider == name:
                model_id = _match(table, model)
                if model_id is not None and _same_model(builtin, model_id, model):
                    return table, model_id, None
        if name is None:
            return None
        if builtin is not None:
            if model_id := _match(builtin, model):
                return builtin, model_id, None
            for other in builtin.falls_back:
                seller = self.table(other)
                if seller is not None and (model_id := _match(seller, model)):
                    return seller, model_id, f"served by {name} at the list price of {other}"
        live = self._from_package(name, model, builtin)
        return None if live is None else (live, live.models[0], None)

    def _from_package(self, name: str, model: str, builtin: Table | None) -> Table | None:
        """Ask ``genai-prices``, where it may be asked."""
        if self._may_be_installed:
            self._may_be_installed = False
            with contextlib.suppress(MissingExtraError):
                self._live = _installed()
        if self._live is None:
            return None
        found = self._live(name, model, builtin.as_of if builtin else builtin_as_of())
        # Of a seller that we know, what is like a model in our table is not taken for it.
        if found is None or builtin is None or found.models[0].lower() in candidates(model):
            return found
        return None


def _installed() -> Fallback:
    from cacheaudit.pricing.genai_source import GenaiSource

    return GenaiSource().table


def _same_model(builtin: Table | None, own: str, asked: str) -> bool:
    """Whether a price of the user is for the model asked for.

    A snapshot that the built-in table prices by itself is not the model it is a snapshot of.
    """
    if builtin is None:
        return True
    theirs, mine = _match(builtin, asked), _match(builtin, own)
    return theirs is None or mine is None or theirs == mine


def _match(table: Table, model: str) -> str | None:
    for form in candidates(model):
        if form in table.names:
            return table.names[form]
    return None


def _has(rows: Sequence[object], kind: str) -> bool:
    return any(getattr(row, "when", None) == kind for row in rows)

"""Prices used, findings and decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from cacheaudit.model.finding import Finding
from cacheaudit.model.prompt import digest
from cacheaudit.store.records import Decision
from cacheaudit.store.tables import decisions, findings, prices
from cacheaudit.store.types import to_json

# Sessions named in one statement: databases allow some thousand values in it.
_AT_ONCE = 500


def put_prices(connection: Connection, cards: Mapping[str, Any]) -> None:
    """Remember rate cards by id; a card that changed under its id is kept beside the older one."""
    for name, card in cards.items():
        row = {"id": name, "digest": digest(to_json(card).encode()), "card": card}
        known = sa.select(prices.c.id).where(prices.c.id == name, prices.c.digest == row["digest"])
        if connection.scalar(known) is None:
            connection.execute(prices.insert(), row)


def get_prices(connection: Connection) -> Iterator[tuple[str, Any]]:
    """Yield (id, rate card)."""
    for row in connection.execute(sa.select(prices).order_by(prices.c.id, prices.c.digest)):
        yield row.id, row.card


def put_findings(connection: Connection, found: Iterable[Finding], about: Sequence[str]) -> None:
    """Replace the findings of some sessions."""
    for start in range(0, len(about), _AT_ONCE):
        some = about[start : start + _AT_ONCE]
        connection.execute(findings.delete().where(findings.c.session.in_(some)))
    connection.execute(findings.delete().where(findings.c.session.is_(None)))
    rows = [_finding_row(finding) for finding in found]
    if rows:
        connection.execute(findings.insert(), rows)


def get_findings(connection: Connection, session: str | None = None) -> Iterator[Finding]:
    """Yield findings, those of one session or all."""
    query = sa.select(findings.c.finding).order_by(findings.c.id)
    if session is not None:
        query = query.where(findings.c.session == session)
    for row in connection.execute(query):
        yield msgspec.convert(row.finding, Finding)


def put_decisions(connection: Connection, made: Iterable[Decision]) -> None:
    """Append decisions."""
    rows = [msgspec.structs.asdict(decision) for decision in made]
    if rows:
        connection.execute(decisions.insert(), rows)


def get_decisions(connection: Connection, session: str | None = None) -> Iterator[Decision]:
    """Yield decisions in the order in which they were made."""
    query = sa.select(decisions).order_by(decisions.c.at, decisions.c.id)
    if session is not None:
        query = query.where(decisions.c.session == session)
    for row in connection.execute(query).mappings():
        fields = {name: row[name] for name in Decision.__struct_fields__ if name != "details"}
        yield Decision(**fields, details=row["details"] or {})


def _finding_row(finding: Finding) -> dict[str, Any]:
    lost = finding.lost
    return {
        "session": finding.session,
        "rule": finding.rule,
        "verdict": finding.verdict,
        "kind": finding.kind,
        "tokens_lost": finding.tokens_lost,
        "lost_input_equivalents": None if lost is None else lost.input_equivalents,
        "lost_cost": None if lost is None else lost.cost,
        "finding": msgspec.to_builtins(finding),
    }

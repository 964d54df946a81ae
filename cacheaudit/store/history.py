"""What later decisions learn from: when requests were made, and what was spent on what."""

from __future__ import annotations

from decimal import Decimal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from cacheaudit.store.tables import calls, decisions, sessions

Start = tuple[str, str, float, str | None]
Totals = tuple[str | None, str | None, str | None, int, int, int, float]
_BILLED = (calls.c.cache_read, calls.c.write_5m, calls.c.write_1h)


def recent_starts(connection: Connection, most: int) -> list[Start]:
    """Return the latest requests that were answered: session, lane, start, stop reason.

    Args:
        connection: The database.
        most: How many at most.

    Returns:
        In order of time. Requests that only kept an entry alive, and the like, are left out.
    """
    query = (
        sa.select(sessions.c.name, calls.c.lane, calls.c.started_at, calls.c.stop_reason)
        .join(sessions, sessions.c.id == calls.c.session_id)
        .where(
            calls.c.started_at.is_not(None),
            calls.c.relative_time.is_(False),
            calls.c.has_error.is_(False),
            calls.c.purpose.in_(("main", "subagent", "retry", "other")),
        )
        .order_by(calls.c.started_at.desc())
        .limit(most)
    )
    rows = [(row[0], row[1], float(row[2]), row[3]) for row in connection.execute(query)]
    return rows[::-1]


def marked_totals(connection: Connection, source: str) -> list[Totals]:
    """Sum what was billed for requests whose markers were all placed by a planner.

    Args:
        connection: The database.
        source: Name of the source that recorded them.

    Returns:
        For each model: provider, surface, model, tokens read, written for five minutes and for an
        hour, and the latest start.
    """
    key = (calls.c.provider, calls.c.surface, calls.c.model)
    sums = (sa.func.sum(sa.func.coalesce(column, 0)) for column in _BILLED)
    query = (
        sa.select(*key, *sums, sa.func.max(calls.c.started_at))
        .join(sessions, sessions.c.id == calls.c.session_id)
        .where(
            sessions.c.source == source,
            calls.c.has_usage.is_(True),
            sa.type_coerce(calls.c.extra, sa.Text).like('%"markers":%"planner"%'),
        )
        .group_by(*key)
    )
    return [
        (row[0], row[1], row[2], int(row[3]), int(row[4]), int(row[5]), float(row[6] or 0))
        for row in connection.execute(query)
    ]


def set_outcome(
    connection: Connection, session: str, outcome: str | None, task: str | None
) -> bool:
    """Write the outcome of a task on its last call.

    Args:
        connection: The database.
        session: Session id.
        outcome: ``accepted``, ``rejected`` or ``None``.
        task: The task; ``None``: the last call of the session, whichever task it is of.

    Returns:
        Whether there is such a call.
    """
    query = (
        sa.select(calls.c.id)
        .join(sessions, sessions.c.id == calls.c.session_id)
        .where(sessions.c.name == session, calls.c.purpose.not_in(("keep_alive", "probe")))
        .order_by(calls.c.started_at.desc().nulls_last(), calls.c.id.desc())
        .limit(1)
    )
    if task is not None:
        query = query.where(calls.c.task == task)
    found = connection.scalar(query)
    if found is None:
        return False
    # The fingerprint stays, so that the same reading of the call does not replace this one.
    connection.execute(calls.update().where(calls.c.id == found).values(outcome=outcome))
    return True


def spent(connection: Connection, kind: str, since: float) -> Decimal:
    """Sum the prices of decisions of one kind since a moment, in whatever currency they are."""
    query = sa.select(decisions.c.action_price).where(
        decisions.c.kind == kind, decisions.c.at >= since, decisions.c.action_price.is_not(None)
    )
    return sum((row[0] for row in connection.execute(query)), Decimal(0))

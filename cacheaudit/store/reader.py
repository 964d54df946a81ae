"""Reads sessions back, one at a time, so that memory does not grow with the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from cacheaudit.model.call import Session
from cacheaudit.model.delta import Settings, build
from cacheaudit.model.order import in_order
from cacheaudit.model.prompt import Prompt
from cacheaudit.store.lists import Listing, Lists
from cacheaudit.store.rows import call_from
from cacheaudit.store.tables import calls, content_texts, sessions, usage_parts

_CHUNK = 500
_settings = msgspec.msgpack.Decoder(Settings).decode


class Reader:
    """Reads from one transaction, which sees one state of the database throughout."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lists = Lists(connection)
        self._has_texts: bool | None = None

    def sessions(self, names: Sequence[str] | None = None) -> Iterator[Session]:
        """Yield the sessions that have calls, in the order in which they were first imported.

        Args:
            names: Ids of the sessions wanted; ``None`` for all.
        """
        after = 0
        while True:
            query = (
                sa.select(sessions)
                .where(
                    sessions.c.id > after,
                    sa.exists().where(calls.c.session_id == sessions.c.id),
                )
                .order_by(sessions.c.id)
                .limit(_CHUNK)
            )
            if names is not None:
                query = query.where(sessions.c.name.in_(names))
            rows = self._connection.execute(query).all()
            for row in rows:
                yield self._session(row)
            if len(rows) < _CHUNK:
                return
            after = rows[-1].id

    def _session(self, row: Any) -> Session:
        found = (
            self._connection.execute(
                sa.select(calls).where(calls.c.session_id == row.id).order_by(calls.c.id)
            )
            .mappings()
            .all()
        )
        parts = self._parts(row.id)
        listings = {key: self._lists.get(key) for key in _lists_of(found)}
        texts = self._texts(listings.values())
        made = [
            call_from(
                dict(one),
                row.name,
                parts.get(bytes(one["key"]), ()),
                _prompt(one, listings, texts),
            )
            for one in found
        ]
        return Session(
            id=row.name,
            source=row.source,
            calls=in_order(made, row.source),
            project=row.project,
        )

    def _parts(self, session: int) -> dict[bytes, list[Any]]:
        rows = self._connection.execute(
            sa.select(usage_parts)
            .join(calls, calls.c.key == usage_parts.c.call)
            .where(calls.c.session_id == session)
            .order_by(usage_parts.c.call, usage_parts.c.position)
        ).mappings()
        grouped: dict[bytes, list[Any]] = {}
        for row in rows:
            grouped.setdefault(bytes(row["call"]), []).append(row)
        return grouped

    def _texts(self, listings: Iterable[Listing]) -> dict[bytes, bytes]:
        if self._has_texts is None:
            first = self._connection.scalar(sa.select(content_texts.c.digest).limit(1))
            self._has_texts = first is not None
        if not self._has_texts:
            return {}
        wanted = list({item.digest for listing in listings for item in listing.items})
        found: dict[bytes, bytes] = {}
        for start in range(0, len(wanted), _CHUNK):
            rows = self._connection.execute(
                sa.select(content_texts).where(
                    content_texts.c.digest.in_(wanted[start : start + _CHUNK])
                )
            )
            found.update((bytes(row.digest), bytes(row.canonical)) for row in rows)
        return found


def _lists_of(rows: Iterable[Any]) -> list[bytes]:
    """Return the keys of the lists in order, so that each is read after those it builds on."""
    keys = (row["block_list"] for row in rows)
    return list(dict.fromkeys(bytes(key) for key in keys if key is not None))


def _prompt(row: Any, listings: dict[bytes, Listing], texts: dict[bytes, bytes]) -> Prompt | None:
    if row["block_list"] is None:
        return None
    return build(_settings(row["prompt"]), listings[bytes(row["block_list"])].items, texts)

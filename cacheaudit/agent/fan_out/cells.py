"""Measures what marking the common end and waiting for a response bring, alone and together.

Four cells, each with a text of its own, so that none reads what another one wrote.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cacheaudit.agent.fan_out.layout import layout
from cacheaudit.agent.fan_out.send import Began, send_all
from cacheaudit.agent.probe.requests import Probe
from cacheaudit.agent.probe.run import Row, Server, ask

SIBLINGS: Final = 3
# What is answered does not matter here; some models need a few tokens to end properly.
_OUTPUT: Final = 16
COMBINATIONS: Final = ((False, False), (True, False), (False, True), (True, True))


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One combination.

    Attributes:
        mark: The common end was marked.
        wait: The others waited for the first response to begin.
        rows: What each request brought, in the order of the requests.
        schema: Form of this record.
    """

    mark: bool
    wait: bool
    rows: tuple[Row, ...]
    schema: str = "cacheaudit.fan_out/1"

    @property
    def cache_write(self) -> int | None:
        """Tokens that were written; ``None`` where a response does not say."""
        return _sum([row.cache_write for row in self.rows])

    @property
    def cache_read(self) -> int | None:
        """Tokens that were read; ``None`` where a response does not say."""
        return _sum([row.cache_read for row in self.rows])


def four_cells(
    plan: Probe,
    server: Server,
    tick: Callable[[], float],
    siblings: int = SIBLINGS,
) -> Iterator[Cell]:
    """Send the same family of requests in each of the four ways.

    Args:
        plan: Model, text and API.
        server: Who sends a request.
        tick: A clock that only rises, in seconds.
        siblings: Requests of a family.
    """
    for mark, wait in COMBINATIONS:
        yield cell(plan, server, tick, siblings, mark=mark, wait=wait)


def cell(
    plan: Probe,
    server: Server,
    tick: Callable[[], float],
    siblings: int = SIBLINGS,
    *,
    mark: bool,
    wait: bool,
) -> Cell:
    """Send one family of requests."""
    name = f"{plan.run}-{'marked' if mark else 'unmarked'}-{'waiting' if wait else 'at-once'}"
    mine = msgspec.structs.replace(plan, run=name, most_output=_OUTPUT)
    bodies = [_body(mine, number) for number in range(siblings)]
    api = "anthropic" if plan.api == "messages" else None
    made = layout(bodies, mark=mark, order=wait, least=1, provider=api)
    start = threading.Barrier(1 if wait else siblings)

    def send(body: Mapping[str, Any], began: Began | None) -> Row:
        start.wait()  # without waiting, all must really be on their way together
        return ask(body, "sibling", server, tick, began)

    found = send_all(made, send, concurrency=siblings)
    return Cell(mark=mark, wait=wait, rows=tuple(found))


def _body(plan: Probe, number: int) -> dict[str, Any]:
    """Return a request whose text is shared and whose end is its own."""
    question = f"Give one detail of part {number + 1} of this text."
    if plan.api == "chat":
        return plan.ask(plan.prefix(), question)
    content = [
        {"type": "text", "text": plan.prefix()},
        {"type": "text", "text": question, "cache_control": plan.marker},
    ]
    body = plan.ask("", "")
    del body["system"]
    return {**body, "messages": [{"role": "user", "content": content}]}


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None

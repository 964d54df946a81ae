"""Writes decisions of a program's own parts into the store, with both their prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cacheaudit.agent.faults import Faults
from cacheaudit.agent.recorder import Recorder

if TYPE_CHECKING:
    from cacheaudit.agent.ledger import Ledger

_PATIENCE: Final = 10.0


def keep_decision(recorder: Recorder, faults: Faults, fields: Mapping[str, Any]) -> None:
    """Write one decision; trouble is counted, never raised.

    Args:
        recorder: Whose store.
        faults: Counts what fails.
        fields: Fields of a :class:`~cacheaudit.store.records.Decision`.
    """

    def write(ledger: Ledger) -> None:
        # Imported by the writer's thread, like all that belongs to the store.
        from cacheaudit.store.records import Decision

        store: Any = ledger.store()
        store.record_decisions([Decision(**fields)])

    try:
        recorder.ask(write, _PATIENCE)
    except Exception as error:
        faults("note", error)

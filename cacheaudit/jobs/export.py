"""Writes sessions in the native form, ``*.session.jsonl``, from a store or straight from files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.jobs.common import stored_sessions
from cacheaudit.jobs.import_ import ImportReport, import_files
from cacheaudit.jobs.inputs import Inputs, Progress, silent
from cacheaudit.model.clock import Clock
from cacheaudit.model.ports import Source
from cacheaudit.model.record import RecordWriter
from cacheaudit.store import Store, open_store
from cacheaudit.store.types import to_json


class ExportReport(msgspec.Struct, frozen=True):
    """What an export wrote."""

    sessions: int
    calls: int


def export_store(
    store: Store, out: BinaryIO, *, names: Sequence[str] = (), with_text: bool = False
) -> ExportReport:
    """Write sessions of a store, one after the other, each in order of time.

    Args:
        store: Where they are.
        out: Where they go: one JSON object a line, one object a call.
        names: Ids of the sessions wanted; none means all.
        with_text: Write the text of prompts too, where the store has it.

    Raises:
        UsageError: A session is not in the store.
    """
    missing = [name for name in names if not store.has_session(name)]
    if missing:
        raise UsageError(
            f"There is no session {missing[0]!r} in {store.url}.",
            f"Their ids: cacheaudit usage --db '{store.url}' --by session --format csv",
        )
    writer = RecordWriter(with_text=with_text)
    sessions = calls = 0
    for session in stored_sessions(store, names or None):
        sessions += 1
        for call in session.calls:
            out.write(to_json(writer.record(call)).encode())
            out.write(b"\n")
            calls += 1
    return ExportReport(sessions, calls)


def export_files(
    inputs: Inputs,
    out: BinaryIO,
    clock: Clock,
    progress: Progress = silent,
    *,
    names: Sequence[str] = (),
    with_text: bool = False,
    sources: Sequence[Source] | None = None,
) -> tuple[ExportReport, ImportReport]:
    """Write the sessions of files, with the copies of a call in several of them joined.

    They go through a temporary store, which joins copies and keeps memory small.
    """
    with (
        tempfile.TemporaryDirectory(prefix="cacheaudit-") as folder,
        open_store(str(Path(folder) / "export.db"), store_text=with_text) as store,
    ):
        read = import_files(inputs, store, clock, progress, sources)
        return export_store(store, out, names=names, with_text=with_text), read

"""What is handed to the store and what it hands back, beside calls."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from cacheaudit.model.call import Call


class FileCursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a file has been imported, and how it looked then.

    Attributes:
        path: The file.
        source: Name of the source that read it.
        source_version: Version of that source.
        size: Size in bytes when reading began.
        mtime_ns: Time of its last change, in nanoseconds.
        head: Digest of its first ``head_bytes`` bytes.
        head_bytes: How many bytes ``head`` covers.
        sidecar: Size and time of a write-ahead log beside it, empty where there is none.
        offset: Bytes behind the last complete line that was read; 0 where the format has no lines.
        line: Number of complete lines before ``offset``.
        finished: All calls up to ``size`` are in the store.
        with_text: The text of its prompts was stored too.
        generation: Counts the readings from the start.
        imported_at: When, in seconds since the epoch.
        problems: Kind, count and examples of what could not be read.
    """

    path: str
    source: str
    source_version: int
    size: int
    mtime_ns: int
    head: bytes
    head_bytes: int
    sidecar: str = ""
    offset: int = 0
    line: int = 0
    finished: bool = False
    with_text: bool = False
    generation: int = 1
    imported_at: float = 0.0
    problems: tuple[tuple[str, int, tuple[str, ...]], ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of a call.

    Attributes:
        call: The call.
        source: Name of the source that read it.
        project: Project of its session, where known.
        source_version: Version of the source: a newer one may replace what an older one read.
        file: File that is being imported, where it is one.
        generation: Which reading of the file.
        ordinal: Counts calls without a dedupe key that have the same place and id.
        tokens: Estimated sizes of the prompt's content blocks, where these have none of their own.
    """

    call: Call
    source: str
    project: str | None = None
    source_version: int = 1
    file: str | None = None
    generation: int = 1
    ordinal: int = 0
    tokens: tuple[int, ...] = ()


class WriteCount(msgspec.Struct, frozen=True):
    """What became of the calls of a batch."""

    new: int = 0
    updated: int = 0
    unchanged: int = 0

    def __add__(self, other: WriteCount) -> WriteCount:
        return WriteCount(
            self.new + other.new, self.updated + other.updated, self.unchanged + other.unchanged
        )


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A choice that was made between two prices.

    Attributes:
        session: Session that it was made in.
        call: Call that it concerns, where it is one.
        at: When, in seconds since the epoch.
        kind: What was decided: ``keep_alive``, ``compaction`` …
        action: What was done.
        alternative: What was not done.
        action_price: Expected price of what was done; ``None`` where no price is known.
        alternative_price: Expected price of what was not done.
        currency: Currency of both.
        details: Figures that the decision rests on.
    """

    session: str
    at: float
    kind: str
    action: str
    alternative: str
    call: str | None = None
    action_price: Decimal | None = None
    alternative_price: Decimal | None = None
    currency: str = "USD"
    details: dict[str, Any] = msgspec.field(default_factory=dict)

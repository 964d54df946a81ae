"""Names of files that are no text: what is made of them is, and two names stay two."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from cacheaudit.ingest.records import UsageRecord
from cacheaudit.model.call import Call, Origin

_TEXTS = ("id", "session", "lane", "parent", "dedupe_key")


def is_text(path: Path) -> bool:
    """Whether a path can be written down as it is."""
    name = str(path)
    return name.isascii() or name == shown(name)


def shown(name: Path | str) -> str:
    """Write a name as text that any file and database can hold; odd bytes are spelled out."""
    text = str(name)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def clean_calls(calls: Iterable[Call]) -> Iterator[Call]:
    """Yield the calls of a file whose name is no text, with what was made of the name as text."""
    for call in calls:
        texts = {name: _clean(getattr(call, name)) for name in _TEXTS}
        origin = call.origin
        if origin is not None:
            origin = Origin(shown(origin.file), origin.line)
        yield msgspec.structs.replace(call, origin=origin, **texts)


def clean_records(records: Iterable[UsageRecord]) -> Iterator[UsageRecord]:
    """Yield records, as :func:`clean_calls` does."""
    for record in records:
        yield record._replace(
            key=_clean(record.key),
            session=shown(record.session),
            lane=shown(record.lane),
            project=_clean(record.project),
        )


def _clean(text: str | None) -> str | None:
    return None if text is None else shown(text)


def why_not(path: Path) -> str | None:
    """Say why a path that a user named cannot be looked at; ``None`` where it can."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return f"There is no {shown(path)!r}."
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return f"Cannot read {shown(path)!r}: {reason}."
    return None

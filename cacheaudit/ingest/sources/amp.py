"""Amp threads: a usage ledger joined with the usage that its messages carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cacheaudit.dialects.reading import Reader
from cacheaudit.ingest._agents import (
    beside,
    count_flags,
    document,
    folders,
    items,
    mapping,
    money,
    size,
    text,
)
from cacheaudit.ingest.endpoints import provider_of_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.model.call import Call, Origin
from cacheaudit.model.clock import parse_time
from cacheaudit.model.money import plain
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import FLAG_FIELDS_DISAGREE, Usage

_MESSAGE = ("outputTokens", "inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


class _Ledger(msgspec.Struct):
    events: list[msgspec.Raw] = []


class _Thread(msgspec.Struct):
    """The parts of a thread that are read."""

    id: Any = None
    messages: list[msgspec.Raw] = []
    usageLedger: _Ledger | None = None  # noqa: N815 - named as in the file


class Amp:
    """Reads ``threads/T-*.json``."""

    name = "amp"
    title = "Amp"
    capabilities = Capabilities(reads=True, writes=True, start_times="none")

    def detect(self, head: Head) -> int:
        """Recognise a thread by its id and messages, or by its ledger."""
        record = mapping(head.document)
        ident = record.get("id")
        if isinstance(ident, str) and ident.startswith("T-") and "messages" in record:
            return 90
        if "events" in mapping(record.get("usageLedger")):
            return 90
        start = head.data[:512].replace(b" ", b"").replace(b"\n", b"")
        return 80 if start[:1] == b"{" and b'"id":"T-' in start else 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call for every ledger event, then for messages that no event names."""
        return _calls(path, problems)

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield the threads below ``AMP_DATA_DIR``, default ``~/.local/share/amp``."""
        for root in folders(environment, "AMP_DATA_DIR") or [home / ".local" / "share" / "amp"]:
            yield root / "threads"


def _calls(path: Path, problems: ProblemSink) -> Iterator[Call]:
    thread = document(path, problems, _Thread)
    if thread is None:
        return
    session = text(thread.id) or path.stem
    answers: dict[int, Mapping[str, Any]] = {}
    for position, message in items(thread.messages, f"{path}:messages", problems):
        usage = message.get("usage")
        if message.get("role") != "assistant" or usage is None:
            continue
        if not isinstance(usage, dict):
            problems("wrong_type", f"{path}:messages[{position - 1}]", "usage is no object")
            continue
        number = message.get("messageId")
        answers[number if isinstance(number, int) else -position] = usage
    events = thread.usageLedger.events if thread.usageLedger is not None else []
    for position, event in items(events, f"{path}:usageLedger", problems):
        number = event.get("toMessageId")
        answer = answers.pop(number, None) if isinstance(number, int) else None
        where = f"{path}:usageLedger[{position - 1}]"
        ident = text(event.get("id")) or f"{session}:event:{position}"
        yield _call(path, session, ident, _joined(event, answer), event, answer, where, problems)
    for number, answer in answers.items():
        where = f"{path}:message {number}"
        usage = _usage(answer, _MESSAGE)
        ident = f"{session}:{number}"
        yield _call(path, session, ident, usage, {}, answer, where, problems)


def _call(
    path: Path,
    session: str,
    ident: str,
    usage: Usage,
    event: Mapping[str, Any],
    answer: Mapping[str, Any] | None,
    where: str,
    problems: ProblemSink,
) -> Call:
    count_flags(usage, problems, where)
    model = text(event.get("model")) or text(mapping(answer).get("model"))
    # Credits are no currency: kept as read, never added to money.
    credits = money(event.get("credits"))
    if credits is None:
        credits = money(mapping(answer).get("credits"))
    kind = event.get("operationType")
    helper = kind not in (None, "inference")
    return Call(
        id=ident,
        session=session,
        lane=str(kind) if helper else "main",
        purpose="other" if helper else "main",
        provider=provider_of_model(model),
        surface="other",
        model=model,
        ended_at=parse_time(event.get("timestamp") or mapping(answer).get("timestamp")),
        usage=with_assumed_ttl(usage, None, provider_of_model(model), model),
        client="amp",
        origin=Origin(str(path)),
        dedupe_key=f"amp:{session}:{ident}",
        extra={} if credits is None else {"credits": plain(credits)},
    )


def _joined(event: Mapping[str, Any], answer: Mapping[str, Any] | None) -> Usage:
    """Take the counts of the message, which knows the cache; those of the event fill gaps."""
    ledger = mapping(event.get("tokens"))
    names = ("output", "input", "cacheReadInputTokens", "cacheCreationInputTokens")
    if answer is None:
        return _usage(ledger, names)
    usage = _usage(answer, _MESSAGE)
    booked = size(ledger, "output")
    if booked is not None and usage.output is not None and booked != usage.output:
        usage = msgspec.structs.replace(usage, flags=(*usage.flags, FLAG_FIELDS_DISAGREE))
    return usage


def _usage(raw: Mapping[str, Any], names: tuple[str, ...]) -> Usage:
    reader = Reader()
    output = reader.aside(raw.get(names[0]))
    fresh, read, write = (reader.count(raw.get(name)) for name in names[1:])
    return beside("amp", reader, fresh=fresh, read=read, write=write, output=output)


SOURCE = Amp()

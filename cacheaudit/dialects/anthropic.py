"""Messages API usage: the input count leaves cache reads and writes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cacheaudit.dialects.reading import (
    NO_WRITES,
    Reader,
    Writes,
    additive,
    ephemeral,
    reasoning_of,
    text,
)
from cacheaudit.model.usage import (
    FLAG_BAD_TYPE,
    FLAG_FIELDS_DISAGREE,
    FLAG_SPLIT_UNKNOWN,
    Usage,
    UsagePart,
    sum_parts,
)

_OWN_NAMES: Final = frozenset(
    {
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cache_creation",
        "iterations",
        "server_tool_use",
        "inference_geo",
    }
)
# ``input`` and ``output`` stand beside these names in Langfuse's records.
_OTHERS: Final = frozenset(
    {"prompt_tokens", "input_tokens_details", "cached_input_tokens", "input", "output"}
)
_WITHOUT_INPUT: Final = (
    "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
)  # fmt: skip
# A tuple, since what a damaged record holds there may not be hashable.
_EXECUTOR: Final = ("message", "fallback_message")
_COUNTS: Final = ("uncached_input", "cache_read", "output")


class AnthropicDialect:
    """Reads usage of the Messages API, wherever it is served."""

    name = "anthropic"
    rank = 40

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether the names are those of the Messages API."""
        keys = usage.keys()
        if keys & _OTHERS:
            return False
        if "input_tokens" in keys:
            return bool(keys & _OWN_NAMES) or "total_tokens" not in keys
        # An answer that was not seen from its beginning tells its output alone.
        return not keys.isdisjoint(_WITHOUT_INPUT)

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts; entries of ``iterations`` become billed parts."""
        reader = Reader()
        counts = _Counts(reader, usage)
        details = reader.section(usage, "output_tokens_details")
        tools = reader.section(usage, "server_tool_use")
        rest: dict[str, Any] = {
            "service_tier": text(usage, "service_tier"),
            "speed": text(usage, "speed"),
            "inference_geo": text(usage, "inference_geo"),
            "web_searches": reader.aside(tools.get("web_search_requests")),
            "dialect": self.name,
        }
        reasoning = reader.aside(details.get("thinking_tokens"))
        entries = usage.get("iterations")
        if isinstance(entries, list) and entries:
            return _from_entries(reader, counts, entries, reasoning, rest)
        if entries is not None and not isinstance(entries, list):
            reader.flags.add(FLAG_BAD_TYPE)
        return counts.plain(reader, reasoning, rest)


class _Counts:
    """The counts of one object: the whole usage, or an entry of ``iterations``."""

    __slots__ = ("certain", "fresh", "labelled", "output", "read", "total", "writes")

    def __init__(self, reader: Reader, record: Mapping[str, Any]) -> None:
        self.fresh = reader.count(record.get("input_tokens"))
        self.read = reader.count(record.get("cache_read_input_tokens"))
        self.output = reader.aside(record.get("output_tokens"))
        self.total = reader.count(record.get("cache_creation_input_tokens"))
        self.labelled = ephemeral(reader, reader.section(record, "cache_creation"))
        self.writes, self.certain = reader.writes(self.total, self.labelled)

    def plain(self, reader: Reader, reasoning: int | None, rest: Mapping[str, Any]) -> Usage:
        """Make the usage of a call that was one pass."""
        return additive(
            reader,
            fresh=self.fresh,
            read=self.read,
            writes=self.writes,
            writes_certain=self.certain,
            output=self.output,
            reasoning=reasoning_of(reader, self.output, reasoning),
            **rest,
        )


def _from_entries(
    reader: Reader,
    whole: _Counts,
    entries: Sequence[Any],
    reasoning: int | None,
    rest: Mapping[str, Any],
) -> Usage:
    """Sum what is billed: every entry but the fallback attempts that were declined."""
    records = [entry for entry in entries if isinstance(entry, dict)]
    if len(records) != len(entries):
        reader.flags.add(FLAG_BAD_TYPE)
    billed = [_part(reader, record, whole) for record in _without_declined(whole, records)]
    if not billed:
        return whole.plain(reader, reasoning, rest)
    parts = tuple(part for part, _ in billed)
    executor = [entry for entry in billed if entry[0].kind in _EXECUTOR]
    _compare(reader, whole, [part for part, _ in executor])
    output = _sum(parts, "output")
    totals = [total for _, total in billed]
    if any(part.cache_read is None for part in parts):
        reader.flags.add(FLAG_SPLIT_UNKNOWN)
    reasoning = reasoning_of(reader, output, reasoning)
    return Usage(
        total_input=None if None in totals else sum(t for t in totals if t is not None),
        uncached_input=_sum(parts, "uncached_input"),
        cache_read=_sum(parts, "cache_read"),
        write_5m=sum_parts(parts, "write_5m"),
        write_1h=sum_parts(parts, "write_1h"),
        write_30m=sum_parts(parts, "write_30m"),
        write_12h=sum_parts(parts, "write_12h"),
        write_other=sum_parts(parts, "write_other"),
        output=output,
        reasoning=reasoning,
        context_input=executor[-1][1] if executor else None,
        parts=parts,
        flags=reader.done(),
        **rest,
    )


def _sum(parts: Sequence[UsagePart], field: str) -> int | None:
    """Sum a field that every entry must know."""
    values = [getattr(part, field) for part in parts]
    return None if None in values else sum(values)


def _part(
    reader: Reader, record: Mapping[str, Any], whole: _Counts
) -> tuple[UsagePart, int | None]:
    """Read one entry; returns it with all its input tokens, ``None`` where they are uncertain."""
    own = Reader()
    counts = _Counts(own, record)
    writes = counts.writes
    kind = text(record, "type") or "message"
    if kind in _EXECUTOR and counts.labelled == NO_WRITES and counts.total is not None:
        writes = _label(counts.total, whole.labelled)
    usage = additive(
        own, fresh=counts.fresh, read=counts.read, writes=writes, writes_certain=counts.certain
    )
    reader.flags |= set(usage.flags) - {FLAG_SPLIT_UNKNOWN}
    part = UsagePart(
        kind=kind,
        model=text(record, "model"),
        uncached_input=usage.uncached_input,
        cache_read=usage.cache_read,
        write_5m=usage.write_5m,
        write_1h=usage.write_1h,
        write_30m=usage.write_30m,
        write_12h=usage.write_12h,
        write_other=usage.write_other,
        output=counts.output,
    )
    return part, usage.total_input


def _label(total: int, whole: Writes) -> Writes:
    """Take the lifetime of an entry's writes from the call's split, where that has only one."""
    used = [name for name in ("m5", "h1", "m30", "h12") if getattr(whole, name)]
    return Writes(**{used[0]: total}) if len(used) == 1 else Writes(other=total)


def _without_declined(whole: _Counts, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop the attempts that a fallback model replaced.

    The last entry of a call that a fallback served is ``fallback_message``. ``message`` entries
    before it are the declined attempts, or earlier passes of the serving model: those carry its
    name, or the call's top-level sums hold them.
    """
    last = max(
        (i for i, r in enumerate(records) if r.get("type") == "fallback_message"), default=-1
    )
    if last < 0:
        return list(records)
    serving = records[last].get("model")
    earlier = [r for r in records[:last] if r.get("type") in _EXECUTOR]
    unnamed = [r for r in earlier if r.get("model") is None]
    passes = [r for r in earlier if r.get("model") is not None and r.get("model") == serving]
    if unnamed and _holds(whole, (*passes, records[last], *unnamed)):
        passes += unnamed
    kept = {id(record) for record in passes}
    return [
        record
        for index, record in enumerate(records)
        if index >= last or record.get("type") not in _EXECUTOR or id(record) in kept
    ]


def _holds(whole: _Counts, records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the call's own sums are those of all these entries."""
    counts = [_Counts(Reader(), record) for record in records]
    return (
        whole.output is not None
        and whole.fresh is not None
        and whole.output == sum(c.output or 0 for c in counts)
        and whole.fresh == sum(c.fresh or 0 for c in counts)
    )


def _compare(reader: Reader, whole: _Counts, executor: Sequence[UsagePart]) -> None:
    """Flag top-level sums that differ from the sums of the entries they stand for."""
    if not executor:
        return
    stated = (whole.fresh, whole.read, whole.output)
    for field, value in zip(_COUNTS, stated, strict=True):
        summed = _sum(executor, field)
        if value is not None and summed is not None and value != summed:
            reader.flags.add(FLAG_FIELDS_DISAGREE)


DIALECT = AnthropicDialect()

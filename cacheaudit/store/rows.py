"""Calls as table rows and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cacheaudit.model.call import Boundary, Call, CallError, MissReason, Origin, Span
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.redact import without_quotes, without_text
from cacheaudit.model.usage import FLAG_BAD_TYPE, Usage, UsagePart

LARGEST = 2**63 - 1
COUNTS = (
    "total_input",
    "uncached_input",
    "cache_read",
    "write_5m",
    "write_1h",
    "write_30m",
    "write_12h",
    "write_other",
    "output",
    "reasoning",
    "context_input",
    "web_searches",
)
_USAGE_TEXTS = ("write_other_ttl", "service_tier", "speed", "inference_geo", "dialect")
PART_COUNTS = (
    "uncached_input",
    "cache_read",
    "write_5m",
    "write_1h",
    "write_30m",
    "write_12h",
    "write_other",
    "output",
)
# Same name in the table and in the call.
_PLAIN = (
    "lane",
    "parent",
    "task",
    "purpose",
    "provider",
    "surface",
    "model",
    "attempt",
    "requests",
    "stop_reason",
    "outcome",
    "currency",
    "client",
    "relative_time",
    "dedupe_key",
    "reported_cost",
)
_TIMES = ("started_at", "first_token_at", "ended_at", "tool_seconds")


def call_row(call: Call, *, with_text: bool) -> dict[str, Any]:
    """Return the columns of a call, but for its session, its prompt and its identity.

    Without ``with_text`` whatever may quote a prompt is left out: the message of an error, and
    texts among the fields that this version does not know.
    """
    if not with_text:
        call = without_quotes(call)
    row: dict[str, Any] = {name: getattr(call, name) for name in _PLAIN}
    row["name"] = call.id
    row["attempt"], row["requests"] = _fitting(call.attempt) or 0, _fitting(call.requests)
    for name in _TIMES:
        row[name] = _finite(getattr(call, name))
    span, miss, error, origin = call.start_span, call.diagnostics, call.error, call.origin
    row["start_low"] = None if span is None else _finite(span.low)
    row["start_high"] = None if span is None else _finite(span.high)
    row["miss_type"] = None if miss is None else miss.type
    row["miss_tokens"] = None if miss is None else _fitting(miss.missed_tokens)
    row["has_error"] = error is not None
    row["error_type"] = None if error is None else error.type
    row["error_status"] = None if error is None else _fitting(error.status)
    row["error_message"] = None if error is None else error.message
    row["origin_file"] = None if origin is None else origin.file
    row["origin_line"] = None if origin is None else origin.line
    row["boundaries"] = msgspec.to_builtins(call.boundaries) or None
    row["extra"] = (call.extra if with_text else without_text(call.extra)) or None
    _put_usage(row, call.usage)
    return row


def _put_usage(row: dict[str, Any], usage: Usage | None) -> None:
    row["has_usage"] = usage is not None
    if usage is None:
        row.update(dict.fromkeys((*COUNTS, *_USAGE_TEXTS, "flags")))
        return
    flags = usage.flags
    for name in COUNTS:
        count = getattr(usage, name)
        row[name] = _fitting(count)
        if count is not None and row[name] is None and FLAG_BAD_TYPE not in flags:
            flags = (*flags, FLAG_BAD_TYPE)
    for name in _USAGE_TEXTS:
        row[name] = getattr(usage, name)
    row["flags"] = list(flags) or None


def part_rows(key: bytes, usage: Usage | None) -> list[dict[str, Any]]:
    """Return the rows of the entries that are billed one by one."""
    if usage is None:
        return []
    return [
        {
            "call": key,
            "position": position,
            "kind": part.kind,
            "model": part.model,
            **{name: _fitting(getattr(part, name)) for name in PART_COUNTS},
        }
        for position, part in enumerate(usage.parts)
    ]


def call_from(
    row: Mapping[str, Any], session: str, parts: Sequence[Mapping[str, Any]], prompt: Prompt | None
) -> Call:
    """Make the call that a row was written from."""
    span = None
    if row["start_low"] is not None and row["start_high"] is not None:
        span = Span(row["start_low"], row["start_high"])
    miss = None
    if row["miss_type"] is not None:
        miss = MissReason(row["miss_type"], row["miss_tokens"])
    error = None
    if row["has_error"]:
        error = CallError(row["error_type"], row["error_status"], row["error_message"])
    origin = None
    if row["origin_file"] is not None:
        origin = Origin(row["origin_file"], row["origin_line"])
    return Call(
        id=row["name"],
        session=session,
        usage=_usage(row, parts),
        prompt=prompt,
        start_span=span,
        diagnostics=miss,
        error=error,
        origin=origin,
        boundaries=msgspec.convert(row["boundaries"] or (), tuple[Boundary, ...]),
        extra=row["extra"] or {},
        **{name: row[name] for name in _PLAIN},
        **{name: row[name] for name in _TIMES},
    )


def _usage(row: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Usage | None:
    if not row["has_usage"]:
        return None
    return Usage(
        parts=tuple(
            UsagePart(
                kind=part["kind"],
                model=part["model"],
                **{name: part[name] for name in PART_COUNTS},
            )
            for part in parts
        ),
        flags=tuple(row["flags"] or ()),
        **{name: row[name] for name in COUNTS},
        **{name: row[name] for name in _USAGE_TEXTS},
    )


def _fitting(count: int | None) -> int | None:
    """Return a count that fits a column; anything larger is no token count, so not known."""
    if count is None or -LARGEST <= count <= LARGEST:
        return count
    return None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None

"""Spans and log records out of every shape that OpenTelemetry exporters write them in.

OTLP JSON (camel or snake case), one span a line, the console exporter's documents one after
another, Go's ``stdouttrace``, and flat attribute objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from cacheaudit.ingest._fields import decode, mapping, text
from cacheaudit.model.clock import moment, parse_time

_RESOURCES: Final = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
_SCOPES: Final = (
    "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "scopeLogs", "scope_logs",
)  # fmt: skip
_ITEMS: Final = ("spans", "logRecords", "log_records")
_TRACE: Final = ("traceId", "trace_id", "TraceID", "traceID")
_SPAN: Final = ("spanId", "span_id", "SpanID", "spanID", "id")
_PARENT: Final = ("parentSpanId", "parent_span_id", "parentId", "parent_id", "parentSpanID")
_START: Final = (
    "startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time", "StartTime",
    "startTimestamp", "start_timestamp",
)  # fmt: skip
_END: Final = (
    "endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time", "EndTime", "endTimestamp",
    "end_timestamp",
)  # fmt: skip
_LOGGED: Final = (
    "timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "timestamp", "time",
    "observed_timestamp", "hrTime",
)  # fmt: skip
_NESTING: Final = 12
_NO_ID: Final = frozenset("0x")


class SpanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A span or a log record.

    Attributes:
        attributes: Flat attributes, those of the resource not among them.
        name: Name of the span, or of the event.
        trace: Trace id.
        span: Span id; that of the span around it for a log record.
        parent: Parent span id.
        start: Start, in seconds since the epoch.
        end: End; for a log record the moment it was written.
        is_log: Whether it is a log record.
        scope: Library that wrote it.
        resource: Flat attributes of the resource.
        events: Events of the span: name and flat attributes.
        failed: Whether its status is an error.
        message: Message of the status.
    """

    attributes: Mapping[str, Any]
    name: str = ""
    trace: str | None = None
    span: str | None = None
    parent: str | None = None
    start: float | None = None
    end: float | None = None
    is_log: bool = False
    scope: str = ""
    resource: Mapping[str, Any] = msgspec.field(default_factory=dict)
    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    failed: bool = False
    message: str | None = None


def spans_of(value: Mapping[str, Any]) -> Iterator[SpanRecord]:
    """Yield the spans and log records of one JSON object."""
    groups = _first_list(value, _RESOURCES)
    if groups is None:
        groups = [value] if _first_list(value, _SCOPES) is not None else None
    if groups is None:
        yield _record(value, "", {}, is_log=_is_log(value))
        return
    for group in groups:
        if not isinstance(group, dict):
            continue
        resource = flat(mapping(group.get("resource")).get("attributes"))
        for scope in _first_list(group, _SCOPES) or ():
            if not isinstance(scope, dict):
                continue
            named = mapping(scope.get("scope") or scope.get("instrumentationLibrary"))
            library = text(named.get("name")) or ""
            for item in _first_list(scope, _ITEMS) or ():
                if isinstance(item, dict):
                    is_log = "spans" not in scope
                    yield _record(item, library, resource, is_log=is_log)


def flat(attributes: Any) -> dict[str, Any]:
    """Flatten attributes of any shape to plain values by dotted name."""
    found: dict[str, Any] = {}
    if isinstance(attributes, list):
        for item in attributes:
            if isinstance(item, dict):
                key = item.get("key", item.get("Key"))
                if isinstance(key, str):
                    found[key] = plain_value(item.get("value", item.get("Value")))
    elif isinstance(attributes, Mapping):
        _flatten(attributes, "", found, 0)
    return found


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return the plain value of an OTLP ``AnyValue``; other values as they are."""
    if not isinstance(value, dict) or depth > _NESTING:
        return value
    for name in ("stringValue", "string_value", "boolValue", "bool_value", "doubleValue"):
        if name in value:
            return value[name]
    for name in ("intValue", "int_value"):
        if name in value:
            number = value[name]
            digits = isinstance(number, str) and number.lstrip("-").isdigit() and len(number) < 20
            return int(number) if digits else number
    for name in ("arrayValue", "array_value"):
        if name in value:
            items = mapping(value[name]).get("values", [])
            return [plain_value(v, depth + 1) for v in items] if isinstance(items, list) else []
    for name in ("kvlistValue", "kvlist_value"):
        if name in value:
            pairs = mapping(value[name]).get("values", [])
            pairs = pairs if isinstance(pairs, list) else []
            return {
                str(p.get("key")): plain_value(p.get("value"), depth + 1)
                for p in pairs
                if isinstance(p, dict)
            }
    if value.keys() == {"Type", "Value"}:
        return value["Value"]
    return value


def _flatten(value: Mapping[str, Any], prefix: str, found: dict[str, Any], depth: int) -> None:
    for key, inner in value.items():
        name = f"{prefix}{key}"
        plain = plain_value(inner)
        if isinstance(plain, Mapping) and depth < _NESTING and plain:
            _flatten(plain, f"{name}.", found, depth + 1)
        else:
            found[name] = plain


def _record(
    item: Mapping[str, Any], scope: str, resource: Mapping[str, Any], *, is_log: bool
) -> SpanRecord:
    context = mapping(item.get("context") or item.get("SpanContext") or item.get("spanContext"))
    own = item.get("attributes", item.get("Attributes", item.get("span_attributes")))
    attributes = flat(own) if own is not None else _flat_itself(item)
    body = plain_value(item.get("body"))
    if isinstance(body, Mapping):
        attributes = {**flat(body), **attributes}
    logged = _time(item, _LOGGED)
    status = mapping(item.get("status") or item.get("Status"))
    code = status.get("code", status.get("status_code", status.get("Code")))
    parent = mapping(item.get("Parent")) or mapping(item.get("parentSpanContext"))
    event = text(item.get("eventName")) or text(attributes.get("event.name"))
    spoken = body if isinstance(body, str) and len(body) < 200 else None
    return SpanRecord(
        attributes=attributes,
        name=event or text(item.get("name")) or text(item.get("Name")) or spoken or "",
        trace=_id(item, context, _TRACE),
        span=_id(item, context, _SPAN),
        parent=_id(item, parent, _PARENT),
        start=_time(item, _START),
        end=_time(item, _END) if not is_log else logged,
        is_log=is_log,
        scope=scope or _scope(item),
        resource=resource or flat(mapping(item.get("resource")).get("attributes")),
        events=_events(item.get("events", item.get("Events"))),
        failed=str(code).upper() in ("2", "ERROR", "STATUS_CODE_ERROR", "STATUSCODE.ERROR"),
        message=text(status.get("message")) or text(status.get("description")),
    )


def _flat_itself(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item that is an attribute object itself, or a data frame's row."""
    return {
        key.removeprefix("attributes."): plain_value(value)
        for key, value in item.items()
        if isinstance(key, str) and "." in key
    }


def _is_log(item: Mapping[str, Any]) -> bool:
    if _first(item, _START) is not None:
        return False
    return "body" in item or "eventName" in item or "severityText" in item or "hrTime" in item


def _scope(item: Mapping[str, Any]) -> str:
    for name in ("scope", "instrumentationScope", "instrumentation_scope", "InstrumentationScope"):
        found = mapping(item.get(name))
        if library := text(found.get("name")) or text(found.get("Name")):
            return library
    return ""


def _events(value: Any) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    if not isinstance(value, list):
        return ()
    return tuple(
        (
            text(event.get("name", event.get("Name"))) or "",
            flat(event.get("attributes", event.get("Attributes"))),
        )
        for event in value
        if isinstance(event, dict)
    )


def _first(item: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if item.get(name) is not None:
            return item[name]
    return None


def _first_list(item: Mapping[str, Any], names: tuple[str, ...]) -> list[Any] | None:
    found: list[Any] = []
    present = False
    for name in names:
        value = item.get(name)
        if isinstance(value, list):
            found += value
            present = True
    return found if present else None


def _id(item: Mapping[str, Any], context: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    value = text(_first(context, names)) or text(_first(item, names))
    if value is None or set(value) <= _NO_ID:
        return None
    return value.removeprefix("0x")


def _time(item: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    value = _first(item, names)
    if isinstance(value, list) and len(value) == 2 and all(type(n) is int for n in value):
        return moment(value[0] + value[1] / 1e9)
    if isinstance(value, str) and value.isdigit():
        value = decode(value)
    return parse_time(value)

"""Observations exported from Langfuse: blob export, table export, API pages, single traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from cacheaudit.dialects.detect import normalise
from cacheaudit.ingest._fields import Record, is_absent, mapping, sequence, text
from cacheaudit.ingest.answers import short_message
from cacheaudit.ingest.bodies import Bodies, with_sizes
from cacheaudit.ingest.endpoints import provider_of_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.rows import Names, as_counts, first_rows, named_rows
from cacheaudit.model.call import Call, CallError, Origin
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import Usage

_LISTS: Final = ("data",)
_USAGE: Final = frozenset(
    {"usage_details", "provided_usage_details", "cost_details", "provided_model_name"}
)
_CALLS: Final = frozenset({"GENERATION"})
_SEMANTIC: Final = ("gen_ai.usage.", "llm.token_count.")


class LangfuseSource:
    """Reads generations; ``usageDetails`` keeps its parts apart by definition."""

    name = "langfuse"
    title = "Langfuse observations"
    capabilities = Capabilities(
        reads=True, writes=True, ttl_split=True, bodies=True, start_times="exact"
    )

    def detect(self, head: Head) -> int:
        """Say how sure we are that the file holds observations."""
        document = head.document
        rows = first_rows(head, *_LISTS)
        if isinstance(document, dict) and isinstance(document.get("observations"), list):
            items = document["observations"][:5]
            names = Names()
            rows += [{names(str(n)) for n in item} for item in items if isinstance(item, dict)]
        for found in rows:
            if found & _USAGE and {"trace_id", "start_time"} <= found:
                return 95
        return _likeness_of_text(head)

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call a generation."""
        bodies = Bodies(problems)
        for number, row in _observations(path, problems):
            record = Record(row, f"{path}:{number}", problems)
            call = _call(record, Origin(str(path), number), bodies, problems)
            if call is not None:
                yield call

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield nothing: exports lie where their owner put them."""
        del environment, home
        yield from ()


def _likeness_of_text(head: Head) -> int:
    """Judge a document that is too large to decode by the names in its beginning."""
    if head.lines or head.document is not None:
        return 0
    spelled = (b'"usageDetails"' in head.data, b'"usage_details"' in head.data)
    traced = b'"traceId"' in head.data or b'"trace_id"' in head.data
    return 80 if any(spelled) and traced else 0


def _observations(path: Path, problems: ProblemSink) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield observations; those inside a trace inherit its session."""
    names = Names()
    for number, row in named_rows(path, problems, *_LISTS):
        inner = row.get("observations")
        if not isinstance(inner, list):
            yield number, row
            continue
        trace = mapping(row.get("trace")) or row
        session = text(trace.get("session_id")) or text(trace.get("sessionId"))
        for position, item in enumerate(inner, 1):
            if not isinstance(item, dict):
                what = f"observation is {type(item).__name__}, not an object"
                problems("wrong_type", f"{path}:{position}", what)
                continue
            found = {names(key): value for key, value in item.items()}
            found.setdefault("session_id", session)
            yield position, found


def _call(record: Record, origin: Origin, bodies: Bodies, problems: ProblemSink) -> Call | None:
    kind = (record.text("type") or "GENERATION").upper()
    if kind not in _CALLS:
        return None
    metadata = mapping(record.fields.get("metadata"))
    attributes = mapping(metadata.get("attributes"))
    model = record.text("provided_model_name", "model", "internal_model", "model_id")
    provider = _provider(attributes, metadata) or provider_of_model(model)
    trace = record.text("trace_id")
    session = record.text("session_id") or trace or Path(origin.file).stem
    prompt, lane = bodies.prompt(
        _request(record, model), session=session, where=record.where, provider=provider
    )
    error = _error(record)
    usage = _usage(record, attributes)
    if usage is None and error is None:
        record.problem("missing_usage", "generation without token counts")
    usage = with_assumed_ttl(usage, prompt, provider, model)
    for flag in usage.flags if usage is not None else ():
        record.problem(flag, "")
    started = record.time("start_time")
    first = record.time("completion_start_time")
    wait = record.seconds("time_to_first_token")
    if first is None and started is not None and wait is not None:
        first = started + wait
    ident = record.text("id")
    return Call(
        id=ident or f"{Path(origin.file).stem}#{origin.line}",
        session=session,
        lane=lane,
        provider=provider,
        model=model,
        started_at=started,
        first_token_at=first,
        ended_at=record.time("end_time"),
        usage=usage,
        prompt=with_sizes(prompt, usage, None, record.where, problems),
        error=error,
        reported_cost=_cost(record),
        origin=origin,
        dedupe_key=f"langfuse:{ident}" if ident else None,
    )


def _usage(record: Record, attributes: Mapping[str, Any]) -> Usage | None:
    """Read the counts.

    Where the observation came in through OpenTelemetry its own attributes are kept, and they say
    by definition what ``usageDetails`` had to be worked out from; so they go first.
    """
    own = {k: v for k, v in attributes.items() if k.startswith(_SEMANTIC)}
    if own:
        usage = normalise(as_counts(own))
        if usage is not None and usage.total_input is not None:
            return usage
    for name in ("usage_details", "provided_usage_details"):
        counts = as_counts(mapping(record.fields.get(name)))
        if counts and (usage := normalise(counts)) is not None:
            return usage
    older = as_counts(mapping(record.fields.get("usage")))
    counts = {
        "input": older.get("input", record.count("prompt_tokens", "input_usage")),
        "output": older.get("output", record.count("completion_tokens", "output_usage")),
    }
    known = {name: count for name, count in counts.items() if count is not None}
    return normalise(known) if known else None


def _request(record: Record, model: str | None) -> dict[str, Any] | None:
    """Return the input where it is a request, and not just any value that was traced."""
    value = record.fields.get("input")
    sent = mapping(value)
    if any(isinstance(sent.get(k), list) for k in ("messages", "contents")):
        return {"model": model, **sent}
    messages = sequence(value)
    if messages and all(isinstance(m, dict) and "role" in m for m in messages):
        return {"model": model, "messages": messages}
    return None


def _provider(attributes: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    named = (
        text(attributes.get("gen_ai.provider.name"))
        or text(attributes.get("gen_ai.system"))
        or text(metadata.get("ls_provider"))
    )
    return named if named in ("anthropic", "openai", "deepseek") else None


def _error(record: Record) -> CallError | None:
    if (record.text("level") or "").upper() != "ERROR":
        return None
    return CallError(None, None, short_message(record.text("status_message")))


def _cost(record: Record) -> Decimal | None:
    details = mapping(record.fields.get("cost_details"))
    if not is_absent(details.get("total")):
        return Record(details, record.where, record.problem_sink).money("total")
    return record.money("total_cost", "calculated_total_cost")


SOURCE = LangfuseSource()

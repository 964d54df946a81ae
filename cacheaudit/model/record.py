"""A call as one object of a ``*.session.jsonl`` file, written so that reading it gives it back.

The fields of the published contract hold what they can. What they cannot (disjoint usage parts, a
prompt of which only digests are known, intervals) stands beside them in the field ``cacheaudit``,
exactly. Where someone has edited a contract field, that field counts and not the exact copy.
"""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from cacheaudit.model.call import Boundary, Call, CallError, MissReason, Origin, Span
from cacheaudit.model.clock import moment, parse_time
from cacheaudit.model.delta import Entry, Settings, build, entries, settings, shared
from cacheaudit.model.money import is_sane
from cacheaudit.model.ports import ProblemSink
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.redact import without_quotes, without_text
from cacheaudit.model.usage import Usage, UsagePart

CALL_SCHEMA = "cacheaudit.call/1"
EXACT_FIELD = "cacheaudit"
_PLAIN = (
    "id",
    "session",
    "lane",
    "parent",
    "task",
    "purpose",
    "provider",
    "surface",
    "model",
    "attempt",
    "tool_seconds",
    "outcome",
)
_TIMES = ("started_at", "first_token_at", "ended_at")
FIELDS = frozenset(
    (*_PLAIN, *_TIMES, "schema", "request", "content_tokens", "response", "error", EXACT_FIELD)
)
_LANES_KEPT = 64
_CURRENCY = "USD"
_ITERATION = (
    ("uncached_input", "input_tokens"),
    ("cache_read", "cache_read_input_tokens"),
    ("output", "output_tokens"),
)
_TTLS = (
    ("write_5m", "ephemeral_5m_input_tokens"),
    ("write_1h", "ephemeral_1h_input_tokens"),
)


class PromptPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt, as its difference to that of an earlier call of the same lane in the file.

    Attributes:
        own: What belongs to this prompt alone.
        base: Id of the call that it builds on.
        shared: Number of leading content blocks taken over from that call.
        blocks: The content blocks behind them.
        texts: Canonical JSON of those blocks, where it was written too.
    """

    own: Settings
    base: str | None = None
    shared: int = 0
    blocks: tuple[Entry, ...] = ()
    texts: tuple[str, ...] = ()


class Exact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the contract's fields cannot hold; fields as in :class:`cacheaudit.model.call.Call`."""

    usage: Usage | None = None
    prompt: PromptPart | None = None
    start_span: Span | None = None
    diagnostics: MissReason | None = None
    reported_cost: Decimal | None = None
    currency: str = _CURRENCY
    client: str | None = None
    boundaries: tuple[Boundary, ...] = ()
    origin: Origin | None = None
    dedupe_key: str | None = None
    relative_time: bool = False
    requests: int | None = 1
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


_EXACT = tuple(name for name in Exact.__struct_fields__ if name not in ("usage", "prompt"))


class _Held(msgspec.Struct, frozen=True):
    call: str
    items: tuple[Entry, ...]
    texts: dict[bytes, bytes]


class _Lanes:
    """The last prompt of the lanes used last; reader and writer forget the same ones."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], _Held] = OrderedDict()

    def get(self, call: Call) -> _Held | None:
        return self._held.get((call.session, call.lane))

    def put(self, call: Call, items: tuple[Entry, ...], texts: dict[bytes, bytes]) -> None:
        lane = (call.session, call.lane)
        self._held[lane] = _Held(call.id, items, texts)
        self._held.move_to_end(lane)
        if len(self._held) > _LANES_KEPT:
            self._held.popitem(last=False)


class RecordWriter:
    """Turns the calls of one file into its objects, in order.

    Args:
        with_text: Write the canonical JSON of content blocks, where it is known, and the messages
            of errors.
    """

    def __init__(self, *, with_text: bool = False) -> None:
        self._with_text = with_text
        self._lanes = _Lanes()

    def record(self, call: Call) -> dict[str, Any]:
        """Return the object of one call."""
        if not self._with_text:
            call = without_quotes(call)
        record: dict[str, Any] = {"schema": CALL_SCHEMA}
        record.update((name, getattr(call, name)) for name in _PLAIN)
        record.update((name, _time(getattr(call, name))) for name in _TIMES)
        record["request"] = None
        prompt = call.prompt
        if prompt is not None and prompt.blocks and prompt.tokens is not None:
            record["content_tokens"] = [block.tokens for block in prompt.blocks]
        record["response"] = _response(call)
        record["error"] = self._error(call.error)
        kept = {name: getattr(call, name) for name in _EXACT}
        if not self._with_text:
            kept["extra"] = without_text(call.extra)
        exact = Exact(
            usage=call.usage,
            prompt=None if prompt is None else self._prompt(call, prompt),
            **kept,
        )
        written = msgspec.to_builtins(exact)
        if call.currency == _CURRENCY:  # defaults are recognised by identity alone
            written.pop("currency", None)
        record[EXACT_FIELD] = written
        return record

    def _error(self, error: CallError | None) -> dict[str, Any] | None:
        if error is None:
            return None
        return {"type": error.type, "status": error.status, "message": error.message}

    def _prompt(self, call: Call, prompt: Prompt) -> PromptPart:
        held = self._lanes.get(call)
        count = shared(prompt, held.items) if held is not None else 0
        new = entries(prompt, count)
        items = (*held.items[:count], *new) if held is not None else new
        self._lanes.put(call, items, {})
        has_texts = self._with_text and all(block.canonical for block in prompt.blocks[count:])
        return PromptPart(
            own=settings(prompt, with_text=self._with_text),
            base=held.call if held is not None and count else None,
            shared=count,
            blocks=new,
            texts=tuple(b.canonical.decode() for b in prompt.blocks[count:]) if has_texts else (),
        )


class RecordReader:
    """Reads the objects of one file that :class:`RecordWriter` wrote, in order."""

    def __init__(self) -> None:
        self._lanes = _Lanes()

    def call(self, record: Mapping[str, Any], where: str, problems: ProblemSink) -> Call | None:
        """Return the call of an object.

        Returns:
            ``None`` where the object has no exact part, or its usage or request was put there by
            someone else: it is to be read like any other object then.
        """
        part = record.get(EXACT_FIELD)
        if not isinstance(part, dict) or record.get("request") is not None:
            return None
        try:
            exact = msgspec.convert(part, Exact)
            _check(exact)
            call = _call(record, exact)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            problems("wrong_type", where, f"field {EXACT_FIELD!r}: {error}")
            return None
        if _is_edited(record.get("response"), _response(call)):
            return None
        if exact.prompt is None:
            return call
        return msgspec.structs.replace(
            call, prompt=self._prompt(call, exact.prompt, where, problems)
        )

    def _prompt(
        self, call: Call, part: PromptPart, where: str, problems: ProblemSink
    ) -> Prompt | None:
        held = self._lanes.get(call)
        items: tuple[Entry, ...] = ()
        texts: dict[bytes, bytes] = {}
        if part.shared:
            if held is None or held.call != part.base or len(held.items) < part.shared:
                problems("missing_base", where, f"the prompt builds on {part.base!r}, not read")
                return None
            items, texts = held.items[: part.shared], held.texts
        items = (*items, *part.blocks)
        if part.texts and len(part.texts) == len(part.blocks):
            new = zip(part.blocks, part.texts, strict=True)
            texts = {**texts, **{block.digest: text.encode() for block, text in new}}
        self._lanes.put(call, items, texts)
        try:
            return build(part.own, items, texts)
        except (ValueError, IndexError) as error:
            problems("wrong_type", where, f"prompt: {error}")
            return None


def _check(exact: Exact) -> None:
    """Refuse what only damage can have made of a record.

    Raises:
        ValueError: A time or an amount is beyond any that there are.
    """
    span = exact.start_span
    times = [*(() if span is None else (span.low, span.high)), *(b.at for b in exact.boundaries)]
    if any(at is not None and moment(at) is None for at in times):
        raise ValueError("a time is beyond any calendar")
    if exact.reported_cost is not None and not is_sane(exact.reported_cost):
        raise ValueError("reported_cost is beyond any amount of money")


def _call(record: Mapping[str, Any], exact: Exact) -> Call:
    fields = {name: record.get(name) for name in _PLAIN}
    required = {"id": "", "session": "", "lane": "main", "purpose": "main", "attempt": 0}
    fields.update((name, value) for name, value in required.items() if fields[name] is None)
    response = record.get("response")
    error = record.get("error")
    made = {
        **fields,
        **{name: parse_time(record.get(name)) for name in _TIMES},
        "stop_reason": response.get("stop_reason") if isinstance(response, dict) else None,
        "error": error,
        "usage": exact.usage,
        **{name: getattr(exact, name) for name in _EXACT},
    }
    # Checked like anything that comes from outside.
    return msgspec.convert(made, Call, from_attributes=True)


def _is_edited(found: Any, written: dict[str, Any] | None) -> bool:
    """Whether someone changed what the provider is said to have reported."""
    mine, theirs = written or {}, found if isinstance(found, dict) else {}
    return any(mine.get(name) != theirs.get(name) for name in ("usage", "diagnostics"))


def _response(call: Call) -> dict[str, Any] | None:
    usage = wire_usage(call.usage) if call.usage is not None else None
    if usage is None and call.stop_reason is None and call.diagnostics is None:
        return None
    response: dict[str, Any] = {
        "id": call.id,
        "model": call.model,
        "stop_reason": call.stop_reason,
        "usage": usage,
    }
    if call.diagnostics is not None:
        response["diagnostics"] = _diagnostics(call.diagnostics)
    return response


def _diagnostics(miss: MissReason) -> dict[str, Any]:
    if miss.type == "pending":
        return {"cache_miss_reason": None}
    reason: dict[str, Any] = {"type": miss.type}
    if miss.missed_tokens is not None:
        reason["cache_missed_input_tokens"] = miss.missed_tokens
    return {"cache_miss_reason": reason}


def wire_usage(usage: Usage) -> dict[str, Any]:
    """Write usage in the additive form of the Messages API, whatever it was read from.

    Token counts stay what they were; what is not known is left out.
    """
    wire = _counts(usage)
    for name in ("service_tier", "speed", "inference_geo"):
        if (value := getattr(usage, name)) is not None:
            wire[name] = value
    if usage.web_searches is not None:
        wire["server_tool_use"] = {"web_search_requests": usage.web_searches}
    if usage.reasoning is not None:
        wire["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if usage.parts:
        wire["iterations"] = [
            {"type": part.kind, **({"model": part.model} if part.model else {}), **_counts(part)}
            for part in usage.parts
        ]
    return wire


def _counts(part: Usage | UsagePart) -> dict[str, Any]:
    wire: dict[str, Any] = {}
    for name, field in _ITERATION:
        if (count := getattr(part, name)) is not None:
            wire[field] = count
    names = ("write_5m", "write_1h", "write_30m", "write_12h", "write_other")
    writes: Sequence[int] = [w for name in names if (w := getattr(part, name)) is not None]
    if writes:
        wire["cache_creation_input_tokens"] = sum(writes)
        split = {field: getattr(part, name) or 0 for name, field in _TTLS}
        if sum(split.values()) == sum(writes):
            wire["cache_creation"] = split
    return wire


def _time(value: float | None) -> str | float | None:
    """Write a time as RFC 3339 where that keeps every digit, as seconds otherwise."""
    if value is None:
        return None
    try:
        found = dt.datetime.fromtimestamp(value, tz=dt.UTC)
    except (ValueError, OverflowError, OSError):
        return value
    text = found.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return text if parse_time(text) == value else value

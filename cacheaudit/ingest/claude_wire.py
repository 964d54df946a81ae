"""The fields of a Claude Code transcript that an accounting reads, and their decoders."""

from __future__ import annotations

import msgspec

NO_VALUE = msgspec.Raw()


class _Creation(msgspec.Struct, gc=False):
    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _ServerTools(msgspec.Struct, gc=False):
    web_search_requests: int | None = None


class Iteration(msgspec.Struct):
    """One entry of ``usage.iterations``."""

    type: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class WireUsage(msgspec.Struct, gc=False):
    """The usual fields of a usage object; everything else sends it to the general dialect."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: _Creation | None = None
    server_tool_use: _ServerTools | None = None
    service_tier: str | None = None
    speed: str | None = None
    inference_geo: str | None = None
    iterations: list[Iteration] | None = None
    output_tokens_details: _OutputDetails | None = None


class TailMessage(msgspec.Struct, gc=False):
    """The end of the message."""

    usage: WireUsage
    stop_reason: str | None = None
    diagnostics: msgspec.Raw = NO_VALUE


class Tail(msgspec.Struct, rename="camel", gc=False):
    """Behind the content: closes the message and the line."""

    message: TailMessage
    type: str | None = None
    request_id: str | None = None
    timestamp: str | None = None
    uuid: str | None = None
    cost: msgspec.Raw = msgspec.field(default=NO_VALUE, name="costUSD")


class FramedMessage(msgspec.Struct, gc=False):
    """A message without its content."""

    id: str
    usage: WireUsage
    model: str | None = None
    stop_reason: str | None = None
    diagnostics: msgspec.Raw = NO_VALUE


class Framed(msgspec.Struct, rename="camel", gc=False):
    """A line without the content of its message."""

    message: FramedMessage
    type: str | None = None
    session_id: str | None = None
    is_sidechain: bool | None = None
    agent_id: str | None = None
    version: str | None = None
    request_id: str | None = None
    timestamp: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    cost: msgspec.Raw = msgspec.field(default=NO_VALUE, name="costUSD")


class WholeMessage(msgspec.Struct):
    """Its message."""

    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: msgspec.Raw = NO_VALUE
    diagnostics: msgspec.Raw = NO_VALUE


class WholeLine(msgspec.Struct, rename="camel"):
    """A response line, content left aside."""

    type: str | None = None
    message: WholeMessage | None = None
    session_id: str | None = None
    is_sidechain: bool | None = None
    agent_id: str | None = None
    version: str | None = None
    request_id: str | None = None
    timestamp: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    cost: msgspec.Raw = msgspec.field(default=NO_VALUE, name="costUSD")


class CompactMark(msgspec.Struct, rename="camel"):
    """What a compaction records of itself."""

    trigger: str | None = None
    pre_tokens: int | None = None


class SystemLine(msgspec.Struct, rename="camel"):
    """A system line."""

    type: str | None = None
    subtype: str | None = None
    timestamp: str | None = None
    is_sidechain: bool | None = None
    compact_metadata: CompactMark | None = None


class PlainLine(msgspec.Struct, rename="camel", gc=False):
    """Any line."""

    type: str | None = None
    timestamp: str | None = None
    is_sidechain: bool | None = None
    uuid: str | None = None
    parent_uuid: str | None = None


decode_tail = msgspec.json.Decoder(Tail).decode
decode_framed = msgspec.json.Decoder(Framed).decode
decode_whole = msgspec.json.Decoder(WholeLine).decode
decode_usage = msgspec.json.Decoder(WireUsage).decode
decode_system = msgspec.json.Decoder(SystemLine).decode
decode_plain = msgspec.json.Decoder(PlainLine).decode
_decode_any = msgspec.json.Decoder().decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode_odd(line: bytes | bytearray) -> WholeLine | None:
    """Decode a line of a response in which a field has another type: that one is unknown.

    Returns:
        ``None`` where it has no message with a usage object.
    """
    try:
        outer = _decode_fields(line)
        inner = _decode_fields(outer.get("message", NO_VALUE))
        _decode_fields(inner.get("usage", NO_VALUE))
    except (msgspec.DecodeError, RecursionError):
        return None
    message = WholeMessage(
        id=_text(inner, "id"),
        model=_text(inner, "model"),
        stop_reason=_text(inner, "stop_reason"),
        usage=inner["usage"],
        diagnostics=inner.get("diagnostics", NO_VALUE),
    )
    return WholeLine(
        type=_text(outer, "type"),
        message=message,
        session_id=_text(outer, "sessionId"),
        is_sidechain=bytes(outer.get("isSidechain", NO_VALUE)) == b"true",
        agent_id=_text(outer, "agentId"),
        version=_text(outer, "version"),
        request_id=_text(outer, "requestId"),
        timestamp=_text(outer, "timestamp"),
        uuid=_text(outer, "uuid"),
        parent_uuid=_text(outer, "parentUuid"),
        cost=outer.get("costUSD", NO_VALUE),
    )


def _text(fields: dict[str, msgspec.Raw], name: str) -> str | None:
    raw = bytes(fields.get(name, NO_VALUE))
    value = _decode_any(raw) if raw.startswith(b'"') else None
    return value if isinstance(value, str) else None


def is_one_pass(wire: WireUsage) -> bool:
    """Whether the only iteration is the call itself, so that it says nothing new."""
    if wire.iterations is None or len(wire.iterations) != 1:
        return False
    entry = wire.iterations[0]
    return (
        entry.type == "message"
        and entry.model is None
        and entry.input_tokens == wire.input_tokens
        and entry.cache_read_input_tokens == wire.cache_read_input_tokens
        and entry.cache_creation_input_tokens == wire.cache_creation_input_tokens
        and entry.output_tokens == wire.output_tokens
    )

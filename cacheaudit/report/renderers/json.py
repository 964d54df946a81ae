"""JSON: the published contract, written call by call so that memory does not grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from cacheaudit.report.renderer import View
from cacheaudit.report.result import AuditResult, UsageResult
from cacheaudit.report.spool import CallSpool

_FLUSH = 1 << 16
_BEFORE = ("schema", "tool", "scope", "totals")
_AFTER = (
    "findings",
    "what_if",
    "simulation",
    "data_quality",
    "by_model",
    "by_purpose",
    "by_session",
    "prices",
    "tools",
    "checks",
    "diagnosed",
    "facts",
    "command",
)


class JsonRenderer:
    """Writes ``cacheaudit.audit/1`` and ``cacheaudit.usage/1``."""

    name = "json"
    suffix = ".json"

    def audit(self, result: AuditResult, out: BinaryIO, view: View) -> None:
        """Write the result of an audit; one call a line."""
        del view
        encoder = msgspec.json.Encoder()
        buffer = bytearray(b"{")
        for field in _BEFORE:
            _field(buffer, encoder, field, result)
        buffer += b'"calls":['
        separator = b"\n"
        for row in _rows(result, encoder):
            buffer += separator
            buffer += row
            separator = b",\n"
            if len(buffer) > _FLUSH:
                out.write(buffer)
                buffer.clear()
        buffer += b"],\n"
        for field in _AFTER:
            _field(buffer, encoder, field, result)
        del buffer[-2:]
        buffer += b"}\n"
        out.write(buffer)

    def usage(self, result: UsageResult, out: BinaryIO, view: View) -> None:
        """Write totals; those of a group stand beside its key, and together as ``totals`` too."""
        del view
        fields = ("schema", "tool", "scope", "by", "totals", "groups", "data_quality")
        whole = {name: getattr(result, name) for name in fields}
        whole["groups"] = [
            {"key": group.key, **msgspec.structs.asdict(group.totals), "totals": group.totals}
            for group in result.groups
        ]
        out.write(msgspec.json.encode(whole) + b"\n")


def _rows(result: AuditResult, encoder: msgspec.json.Encoder) -> Iterator[bytes]:
    """Take rows that are kept as JSON as they are."""
    if isinstance(result.calls, CallSpool):
        return result.calls.json_rows()
    return map(encoder.encode, result.calls)


def _field(
    buffer: bytearray, encoder: msgspec.json.Encoder, name: str, result: AuditResult
) -> None:
    buffer += b'"' + name.encode() + b'":'
    encoder.encode_into(getattr(result, name), buffer, -1)
    buffer += b",\n"


RENDERER = JsonRenderer()

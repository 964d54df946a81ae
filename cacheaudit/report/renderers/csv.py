"""CSV: one row a call, or one row a group of totals."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

from cacheaudit.report.renderer import View
from cacheaudit.report.result import AuditResult, CallRow, Totals, UsageResult
from cacheaudit.report.summary import writes

_CALL_TEXT = ("id", "session", "lane", "purpose", "provider", "model", "started_at")
_CALL_FIGURES = ("total_input", "cache_read", "cache_write", "uncached_input", "output")
_BATCH = 500
# A cell that begins so is run as a formula by spreadsheets.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class CsvRenderer:
    """Writes rows for a spreadsheet; unknown is an empty cell, zero is 0."""

    name = "csv"
    suffix = ".csv"

    def audit(self, result: AuditResult, out: BinaryIO, view: View) -> None:
        """Write one row a call, as the calls come."""
        del view
        header = (
            *_CALL_TEXT,
            *_CALL_FIGURES,
            "predicted_cache_read",
            "predicted_cache_write",
            "read_off_by",
            "cost",
            "currency",
            "reported_cost",
            "first_token_seconds",
            "findings",
            "first_change_path",
            "first_change_kind",
            "where",
        )
        currency = result.totals.cost.currency
        rules = _rules(result)
        _write(out, header, (_call(call, currency, rules) for call in result.calls))

    def usage(self, result: UsageResult, out: BinaryIO, view: View) -> None:
        """Write one row a group."""
        del view
        tiers = sorted({ttl for group in result.groups for ttl in group.totals.cache_write})
        header = (
            result.by,
            "calls",
            *("uncached_input", "cache_read", "cache_write"),
            *(f"cache_write_{ttl}" for ttl in tiers),
            *("output", "total_input", "hit_ratio", "input_equivalents"),
            *("cost_computed", "cost_reported", "currency", "unpriced_calls"),
            *(f"{part}_unknown_calls" for part in _CALL_FIGURES),
        )
        _write(out, header, ((safe(g.key), *_totals(g.totals, tiers)) for g in result.groups))


def safe(text: str | None) -> str:
    """Make text harmless for spreadsheets, which would run it as a formula otherwise."""
    if text is None:
        return ""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _rules(result: AuditResult) -> dict[str, str]:
    """Name the rules that speak of each call, by its id."""
    found: dict[str, dict[str, None]] = {}
    for finding in result.findings:
        for call in finding.calls:
            found.setdefault(call, {})[finding.rule] = None
    return {call: " ".join(names) for call, names in found.items()}


def _call(call: CallRow, currency: str, rules: Mapping[str, str]) -> tuple[object, ...]:
    predicted, change = call.predicted, call.first_change
    expected = predicted.cache_read if predicted else None
    is_compared = expected is not None and call.cache_read is not None
    return (
        *(safe(getattr(call, name)) for name in _CALL_TEXT),
        *(getattr(call, name) for name in _CALL_FIGURES),
        expected,
        predicted.cache_write if predicted else None,
        (expected or 0) - (call.cache_read or 0) if is_compared else None,
        call.cost,
        currency if call.cost is not None or call.reported_cost is not None else None,
        call.reported_cost,
        call.first_token_seconds,
        safe(rules.get(call.id)),
        safe(change.path) if change else None,
        change.kind if change else None,
        safe(call.where),
    )


def _totals(totals: Totals, tiers: Sequence[str]) -> tuple[object, ...]:
    return (
        totals.calls,
        totals.uncached_input,
        totals.cache_read,
        writes(totals),
        *(totals.cache_write.get(ttl) for ttl in tiers),
        totals.output,
        totals.total_input,
        totals.hit_ratio,
        totals.input_equivalents,
        totals.cost.computed,
        totals.cost.reported,
        totals.cost.currency,
        totals.cost.unpriced_calls,
        *(totals.unknown_calls.get(part, 0) for part in _CALL_FIGURES),
    )


def _write(out: BinaryIO, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for batch in _batches(rows):
        writer.writerows(batch)
        out.write(text.getvalue().encode())
        text.seek(0)
        text.truncate()
    out.write(text.getvalue().encode())


def _batches(rows: Iterable[Sequence[object]]) -> Iterator[list[Sequence[object]]]:
    batch: list[Sequence[object]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


RENDERER = CsvRenderer()

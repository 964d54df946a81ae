"""Sums over calls of which some do not tell a part: lower bounds, never zeros."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import msgspec
import pytest

from cacheaudit.jobs.rows import CallRows
from cacheaudit.jobs.tally import Tally, merged
from cacheaudit.model.call import Call
from cacheaudit.model.usage import FLAG_OUTPUT_LOWER_BOUND, Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.cells import ledger
from cacheaudit.report.groups import group_cells
from cacheaudit.report.ledger import Ledger
from cacheaudit.report.renderer import View, renderer
from cacheaudit.report.result import AuditResult, Group, Totals, UsageResult
from cacheaudit.report.summary import bound, tokens
from tests.unit.report import samples

Add = Callable[..., Totals]
UNKNOWN = Usage(total_input=1_000, uncached_input=400, cache_read=600, output=10)
ZERO = msgspec.structs.replace(UNKNOWN, write_5m=0)
SHORT = msgspec.structs.replace(UNKNOWN, flags=(FLAG_OUTPUT_LOWER_BOUND,))
BLIND = Usage(total_input=1_000, output=10)


def totals(*usages: Usage, model: str | None = None) -> Totals:
    """Add calls up as every command does."""
    tally = Tally(PriceBook())
    for number, usage in enumerate(usages):
        tally.add(tally.bucket(str(number % 2)), usage, "openai", model, None, None)
    return merged(tally.buckets.values()).totals()


def by_day(*usages: Usage) -> Totals:
    """Add the same calls up as the page does for its days and lanes."""
    found, rows = Ledger(), CallRows()
    for number, usage in enumerate(usages):
        call = Call(id=str(number), session="s", lane="main", usage=usage)
        found.take(rows.row(call, None, None, None, None, None))
    day, lane = found.by_day("USD"), found.by_agent("USD")
    assert day[0].totals == lane[0].totals
    return day[0].totals


@pytest.mark.parametrize("add", [totals, by_day], ids=["tally", "ledger"])
def test_a_sum_says_how_many_of_its_calls_are_not_in_it(add: Add) -> None:
    some = add(UNKNOWN, ZERO, UNKNOWN, BLIND)

    assert some.unknown_calls == {"uncached_input": 1, "cache_read": 1, "cache_write": 3}
    assert tokens(some, "cache_write") == "≥ 0"
    assert tokens(some, "cache_read") == "≥ 1,800"
    assert tokens(some, "total_input") == "4,000"
    cells = group_cells([Group("m", some)])[0]
    assert cells[1:6] == ("≥ 1,200", "≥ 0", "≥ 1,800", "40", "≥ 45.0 %")
    assert [cell.text for cell in ledger("Model", [Group("m", some)]).rows[0].cells[1:6]] == [
        *cells[1:6]
    ]


@pytest.mark.parametrize("add", [totals, by_day], ids=["tally", "ledger"])
def test_a_part_that_no_call_tells_is_unknown(add: Add) -> None:
    none = add(UNKNOWN, UNKNOWN)

    assert tokens(none, "cache_write") == "–"  # noqa: RUF001
    assert none.unknown_calls == {"cache_write": 2}


@pytest.mark.parametrize("add", [totals, by_day], ids=["tally", "ledger"])
def test_a_known_zero_is_zero(add: Add) -> None:
    assert tokens(add(ZERO, ZERO), "cache_write") == "0"
    assert add(ZERO, ZERO).unknown_calls == {}


@pytest.mark.parametrize("add", [totals, by_day], ids=["tally", "ledger"])
def test_output_that_was_cut_off_is_a_lower_bound(add: Add) -> None:
    cut = add(SHORT, UNKNOWN)

    assert bound(cut, "output") == "≥ "
    assert group_cells([Group("m", cut)])[0][4] == "≥ 20"


def test_calls_without_any_figure_are_in_no_day() -> None:
    assert by_day(UNKNOWN, Usage()).calls == 1


def _partly() -> AuditResult:
    result = samples.audit()
    partly = msgspec.structs.replace(
        result.totals, cache_write={"5m": 0}, unknown_calls={"cache_write": 13, "cache_read": 2}
    )
    result.totals = partly
    result.by_model = [Group("some-model", partly), Group("other", partly)]
    return result


def _render(form: str, result: AuditResult | UsageResult) -> str:
    out = io.BytesIO()
    form_of = renderer(form)
    if isinstance(result, AuditResult):
        form_of.audit(result, out, View(width=120))
    else:
        form_of.usage(result, out, View(width=120))
    return out.getvalue().decode()


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_every_rendering_of_an_audit_marks_them(form: str) -> None:
    shown = _render(form, _partly())

    assert "≥ 0" in shown
    assert "At least 52.6 % of the input" in shown
    assert "≥ 52.6 %" in shown


def test_json_and_csv_count_the_calls() -> None:
    found = json.loads(_render("json", _partly()))
    assert found["totals"]["unknown_calls"] == {"cache_write": 13, "cache_read": 2}

    result = samples.usage()
    some = msgspec.structs.replace(result.totals, unknown_calls={"cache_write": 13})
    result.groups = [Group("2026-11-03", some)]
    row = next(csv.DictReader(io.StringIO(_render("csv", result))))
    assert row["cache_write_unknown_calls"] == "13"
    assert row["cache_read_unknown_calls"] == "0"

"""What a backtest leaves out is told where its figures stand beside those of an audit."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console

from cacheaudit.jobs.audit import audit
from cacheaudit.jobs.backtest import backtest
from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.report.backtest import backtest_text
from cacheaudit.report.renderer import View, renderer
from cacheaudit.report.result import Scenario

HEAD = (
    "timestamp,provider,model,session,input_tokens,cache_read_input_tokens,"
    "cache_creation_input_tokens,output_tokens\n"
)
CALLS = (
    "2026-11-03T08:00:00Z,anthropic,claude-sonnet-4-6,s1,10,0,50000,20\n"
    "2026-11-03T08:07:00Z,anthropic,claude-sonnet-4-6,s1,10,0,51000,20\n"
)
UNDATED = ",anthropic,claude-sonnet-4-6,s1,10,51000,1000,20\n"


def inputs(folder: Path, text: str) -> Inputs:
    log = folder / "log.csv"
    log.write_text(HEAD + text, encoding="utf-8")
    return Inputs(paths=(log,), environment={}, home=folder)


def tried_text(read: Inputs) -> str:
    out = io.StringIO()
    console = Console(file=out, width=400)
    for part in backtest_text(backtest(read, silent, ["1h"])):
        console.print(part)
    return out.getvalue()


def test_the_settings_say_what_their_command_leaves_out(tmp_path: Path) -> None:
    read = inputs(tmp_path, CALLS + UNDATED)
    result = audit(read, silent)
    tried = backtest(read, silent, ["1h"])
    rows = {row.name: row for row in result.what_if.scenarios if isinstance(row, Scenario)}
    long = rows["one-hour"]

    assert long.unjudged == tried.left_out == {"no_start_time": 1}
    assert long.saves is not None
    assert long.saves == tried.policies[0].saves
    assert long.cost is not None
    assert tried.policies[0].cost.cost is not None
    # The call that is left out: 10 uncached, 51,000 read, 1,000 written, 20 of output.
    left = Decimal("0.00003") + Decimal("0.0153") + Decimal("0.00375") + Decimal("0.0003")
    assert Decimal(long.cost) - Decimal(tried.policies[0].cost.cost) == left


@pytest.mark.parametrize("form", ["md", "html", "text"])
def test_every_table_of_settings_says_so(tmp_path: Path, form: str) -> None:
    out = io.BytesIO()
    result = audit(inputs(tmp_path, CALLS + UNDATED), silent)
    renderer(form).audit(result, out, View(width=300, verbose=True))

    words = "as billed here and left out of the backtest: 1 call without a start time"
    assert words in out.getvalue().decode()


def test_a_backtest_says_that_its_sums_are_of_fewer_calls(tmp_path: Path) -> None:
    shown = tried_text(inputs(tmp_path, CALLS + UNDATED))

    assert "Judged 2 of 3 calls of 1 session" in shown
    assert "Left out: 1 call without a start time." in shown
    assert "Costs are those of the judged calls" in shown


def test_nothing_is_said_where_nothing_is_left_out(tmp_path: Path) -> None:
    read = inputs(tmp_path, CALLS)

    assert "Judged 2 calls of 1 session" in tried_text(read)
    assert "Costs are those" not in tried_text(read)
    rows = [row for row in audit(read, silent).what_if.scenarios if isinstance(row, Scenario)]
    assert [row.unjudged for row in rows] == [{}] * len(rows)


def test_without_a_judged_call_nothing_is_counted(tmp_path: Path) -> None:
    shown = tried_text(inputs(tmp_path, UNDATED))

    assert "Judged 0 of 1 call of 1 session by sizes and pauses." in shown
    assert "After a pause" not in shown
    assert "Costs are those" not in shown

"""The result of ``cacheaudit backtest``. Its JSON form is a public contract.

Money and input equivalents are decimal strings; ``None`` is *not known*.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cacheaudit.report import format as fmt
from cacheaudit.report.result import Quality, SavingRow, Scope, Tool
from cacheaudit.report.words import LEFT_OUT

BACKTEST_SCHEMA = "cacheaudit.backtest/1"


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One policy over the history.

    Attributes:
        policy: As written.
        cost: What the judged calls would have cost, refreshes included.
        saves: Against what was billed; negative where it would have cost more.
        sessions: Sessions judged.
        lost_sessions: Sessions that it would have made dearer.
        won_sessions: Sessions that it would have made cheaper.
        days: Days judged.
        lost_days: Days that it would have made dearer.
        lost_sessions_share: Share of sessions.
        lost_days_share: Share of days.
        worst_session: The session that it would have hurt most.
        worst: What that one would have lost; negative.
        refreshes: Refreshes sent.
        refresh_cost: What they cost; contained in ``cost``.
        reads_gained: Calls that would have read what they wrote again.
        reads_lost: Calls that would have written again what they read.
    """

    policy: str
    cost: SavingRow
    saves: SavingRow
    sessions: int
    lost_sessions: int
    won_sessions: int
    days: int
    lost_days: int
    lost_sessions_share: float | None
    lost_days_share: float | None
    worst_session: str | None
    worst: SavingRow | None
    refreshes: int
    refresh_cost: SavingRow
    reads_gained: int
    reads_lost: int


class BacktestResult(msgspec.Struct, frozen=True, kw_only=True):
    """Policies over a history.

    Attributes:
        schema: Name and version of this shape.
        tool: What made it.
        scope: What was read.
        judged_calls: Calls with a choice of lifetime.
        left_out: Other calls, by reason.
        unpriced_calls: Judged calls without a price.
        billed: What the judged calls were billed.
        currency: Currency of all money here.
        expiries: Calls that lost their prefix to a pause.
        rewritten_tokens: Tokens that those wrote again and a longer lifetime would have kept.
        policies: In the order asked for.
        best: Of the policies that need no foresight the one that saves most; ``None`` where none
            saves anything.
        data_quality: What could not be read.
    """

    schema: str = BACKTEST_SCHEMA
    tool: Tool
    scope: Scope
    judged_calls: int
    left_out: dict[str, int]
    unpriced_calls: int
    billed: SavingRow
    currency: str
    expiries: int
    rewritten_tokens: int
    policies: list[PolicyRow]
    best: str | None
    data_quality: list[Quality] = []


def backtest_text(result: BacktestResult) -> Iterator[RenderableType]:
    """Lay out the policies, what they rest on, and what was left out."""
    yield Text(_headline(result), style="bold")
    if result.judged_calls:
        yield Text()
        yield _table(result)
    yield Text()
    for line in _remarks(result):
        yield Text(fmt.printable(line), style="dim")


def _headline(result: BacktestResult) -> str:
    if not result.judged_calls:
        return "No call with a choice of lifetime was found."
    if result.best is None:
        return "No other setting would have cost less."
    row = next(row for row in result.policies if row.policy == result.best)
    return f"{row.policy} would have saved {_text(row.saves, result.currency)}."


def _table(result: BacktestResult) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("setting")
    for head in ("cost", "saves", "sessions dearer", "days dearer", "refreshes", "worst session"):
        table.add_column(head, justify="right")
    table.add_row("as billed", _text(result.billed, result.currency), "", "", "", "", "")
    for row in result.policies:
        worst = fmt.DASH
        if row.worst is not None:
            worst = _text(row.worst, result.currency)
        table.add_row(
            fmt.printable(row.policy),
            _text(row.cost, result.currency),
            _text(row.saves, result.currency),
            f"{row.lost_sessions:,} of {row.sessions:,}",
            f"{row.lost_days:,} of {row.days:,}",
            fmt.count(row.refreshes),
            worst,
            style="green" if row.policy == result.best else "",
        )
    return table


def _remarks(result: BacktestResult) -> Iterator[str]:
    every = result.judged_calls + sum(result.left_out.values())
    calls = fmt.plural(result.judged_calls, "call")
    if result.left_out:
        calls = f"{result.judged_calls:,} of {fmt.plural(every, 'call')}"
    sessions = fmt.plural(result.scope.sessions, "session")
    lost = fmt.plural(result.expiries, "call")
    again = (
        f" After a pause {lost} wrote again what "
        f"a longer lifetime would have kept: {fmt.plural(result.rewritten_tokens, 'token')}."
    )
    judged = f"Judged {calls} of {sessions} by sizes and pauses."
    yield judged + again if result.judged_calls else judged
    for reason, count in result.left_out.items():
        yield f"Left out: {fmt.plural(count, 'call')} {LEFT_OUT.get(reason, reason)}."
    if result.left_out and result.judged_calls:
        yield (
            "Costs are those of the judged calls, so that they lie below those of an audit, which "
            "adds the others as they were billed; what is saved is the same."
        )
    if result.unpriced_calls:
        yield f"Without a price: {fmt.plural(result.unpriced_calls, 'call')}."


def _text(row: SavingRow, currency: str) -> str:
    if row.cost is not None:
        return fmt.amount(row.cost, currency)
    return f"{fmt.equivalents(row.input_equivalents)} tokens"

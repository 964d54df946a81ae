"""What ``tasks`` says, in the shape of its JSON: the ledger of whole tasks.

Money and input equivalents are decimal strings, times are seconds; ``None`` is *not known*.
"""

from __future__ import annotations

import msgspec

from cacheaudit.report.result import Group, Quality, Scope, Tool, Totals

TASKS_SCHEMA = "cacheaudit.tasks/1"


class Spread(msgspec.Struct, frozen=True):
    """One kind of time over the calls that tell it.

    Attributes:
        calls: How many tell it.
        total: Sum, in seconds; ``None`` where none does.
        p50: The typical one.
        p95: A slow one.
    """

    calls: int
    total: float | None
    p50: float | None
    p95: float | None


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of calls went.

    Attributes:
        first_response: From the start of a request to its first token.
        generation: From the first token to the end.
        whole: From the start to the end: also of calls that were not streamed.
        tool: In tools, before the next request was sent.
    """

    first_response: Spread
    generation: Spread
    whole: Spread
    tool: Spread


class LaneRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of conversation of a task.

    Attributes:
        session: Its session.
        lane: Its name; those that it opened stand below ``name/``.
        depth: 0 for a lane that no other one opened.
        purposes: Calls by purpose.
        totals: Its own calls.
        whole: Its own calls and those of all lanes that it opened.
    """

    session: str
    lane: str
    depth: int
    purposes: dict[str, int]
    totals: Totals
    whole: Totals


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task with everything that was spent on it.

    Attributes:
        task: Its name; ``None``: calls that name no task.
        sessions: Sessions that it took.
        outcome: ``accepted`` or ``rejected``; ``None``: nobody said.
        first: Start of its first call, RFC 3339.
        last: Latest known moment of its calls.
        seconds: From one to the other.
        calls: All calls, also those without usage.
        failed: Calls that ended with an error.
        retries: Attempts after the first one.
        without_usage: Calls whose usage is not known and that may have been billed; those that the
            server refused are not.
        totals: Tokens and money.
        by_purpose: The same by purpose, dearest first.
        lanes: The same by lane.
        times: Where the time went.
    """

    task: str | None
    sessions: list[str]
    outcome: str | None
    first: str | None
    last: str | None
    seconds: float | None
    calls: int
    failed: int
    retries: int
    without_usage: int
    totals: Totals
    by_purpose: list[Group]
    lanes: list[LaneRow]
    times: Times


class Completions(msgspec.Struct, frozen=True, kw_only=True):
    """What an accepted task costs, failures included.

    Attributes:
        accepted: Tasks that were accepted.
        rejected: Tasks that were not.
        undecided: Tasks of which nobody said.
        cost: What accepted and rejected tasks cost; ``None``: not all of it is known.
        per_accepted: That, by the number of accepted tasks.
        undecided_cost: What the others cost, tasks without a name included.
        currency: ISO code.
        reason: Why ``per_accepted`` is ``None``.
    """

    accepted: int
    rejected: int
    undecided: int
    cost: str | None
    per_accepted: str | None
    undecided_cost: str | None
    currency: str
    reason: str | None = None


class TasksResult(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger of whole tasks."""

    tool: Tool
    scope: Scope
    totals: Totals
    by_purpose: list[Group]
    completions: Completions
    tasks: list[TaskRow]
    times: Times
    task_seconds: Spread
    data_quality: list[Quality]
    schema: str = TASKS_SCHEMA

"""Puts the same task of both sides side by side."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cacheaudit.jobs.comparing.gather import Side, Task
from cacheaudit.report.comparison import Warning_


class Pair(msgspec.Struct, frozen=True):
    """One task, before and after."""

    name: str
    before: Task
    after: Task


class Pairs(msgspec.Struct, frozen=True):
    """All pairs, and what found none.

    Attributes:
        by: ``task``, ``session`` or ``order``.
        pairs: The pairs, in the order of the recording before.
        only_before: Names without a partner.
        only_after: Names without a partner.
        warnings: Why the pairing is weaker than by task.
    """

    by: str
    pairs: list[Pair]
    only_before: list[str]
    only_after: list[str]
    warnings: list[Warning_]


def pair(before: Side, after: Side) -> Pairs:
    """Pair by ``task`` where both sides have tasks, else by session name, else by order."""
    if before.tasks and after.tasks:
        return _by_name("task", before.tasks, after.tasks, [])
    warnings = []
    if before.tasks or after.tasks:
        lacking = after if before.tasks else before
        warnings.append(
            Warning_("tasks_on_one_side", f"{lacking.path} names no tasks, the other side does.")
        )
    if before.sessions.keys() & after.sessions.keys():
        text = "No task is named: sessions of the same name were taken for the same task."
        warnings.append(Warning_("paired_by_session", text))
        return _by_name("session", before.sessions, after.sessions, warnings)
    text = (
        "No task is named and no session name is the same: sessions were paired in order of time."
        " Give calls a task to be sure."
    )
    warnings.append(Warning_("paired_by_order", text))
    return _by_order(before, after, warnings)


def _by_name(
    by: str, before: Mapping[str, Task], after: Mapping[str, Task], warnings: list[Warning_]
) -> Pairs:
    return Pairs(
        by=by,
        pairs=[Pair(name, before[name], after[name]) for name in before if name in after],
        only_before=[name for name in before if name not in after],
        only_after=[name for name in after if name not in before],
        warnings=warnings,
    )


def _by_order(before: Side, after: Side, warnings: list[Warning_]) -> Pairs:
    mine, theirs = _ordered(before), _ordered(after)
    count = min(len(mine), len(theirs))
    return Pairs(
        by="order",
        pairs=[
            Pair(f"{a.name} → {b.name}", a, b)
            for a, b in zip(mine[:count], theirs[:count], strict=True)
        ],
        only_before=[task.name for task in mine[count:]],
        only_after=[task.name for task in theirs[count:]],
        warnings=warnings,
    )


def _ordered(side: Side) -> list[Task]:
    def start(task: Task) -> float:
        return task.moments.first if task.moments.first is not None else float("inf")

    return sorted(side.sessions.values(), key=start)

"""Edits of recorded calls, weighed: each alone, all together, and as steps that add up."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from cacheaudit.jobs.command import Commands
from cacheaudit.model.call import Call
from cacheaudit.model.money import plain
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.result import SavingRow, Scenario, Step, WhatIf
from cacheaudit.simulate.bill import Bill, Saving
from cacheaudit.simulate.edit import Edit, edit_text
from cacheaudit.simulate.switches import Switches
from cacheaudit.simulate.whatif import Trial, evaluate
from cacheaudit.simulate.whatif import WhatIf as Weighed


def what_if(
    calls: Sequence[Call],
    edits: Sequence[Edit],
    book: PriceBook | None,
    switches: Switches | None = None,
    commands: Commands | None = None,
) -> WhatIf:
    """Weigh edits.

    Args:
        calls: Recorded calls of one or more sessions.
        edits: What to change.
        book: Prices.
        switches: Disputed rules.
        commands: Writes the command lines that work settings out again.
    """
    return described(evaluate(calls, edits, book, switches), edits, commands)


def described(found: Weighed, edits: Sequence[Edit], commands: Commands | None = None) -> WhatIf:
    """Write what was weighed in the shape of the result."""
    texts = [edit_text(edit) for edit in edits]

    def line(*these: str) -> str | None:
        return None if commands is None else commands.simulate(these)

    alone = [_scenario(trial, line(text)) for trial, text in zip(found.alone, texts, strict=True)]
    return WhatIf(
        all_fixes=_scenario(found.together, line(*texts)),
        scenarios=[*alone, *(_scenario(trial, None) for trial in found.scenarios)],
        reported=_bill("reported", "As it was billed", found.reported),
        baseline=_bill("baseline", "As it was, simulated", found.baseline),
        waterfall=[
            Step(
                name=found.alone[step.index].name,
                title=found.alone[step.index].title,
                saves=_row(step.saves),
                alone=_row(step.alone),
                edit=edit_text(edits[step.index]),
            )
            for step in found.steps.steps
        ],
    )


def _scenario(trial: Trial, command: str | None) -> Scenario:
    if trial.bill is None:
        return Scenario(
            name=trial.name,
            title=trial.title,
            refused=trial.refused,
            left_out=trial.left_out,
            command=command,
        )
    own = trial.own_costs
    spent = own.added + own.longer_writes
    return _bill(
        trial.name,
        trial.title,
        trial.bill,
        saves=_row(trial.saves),
        added_calls=own.added_calls,
        own_costs=_row(spent) if spent.rank or own.added_calls else None,
        left_out=trial.left_out,
        command=command,
    )


def _bill(
    name: str,
    title: str,
    bill: Bill,
    *,
    saves: SavingRow | None = None,
    added_calls: int = 0,
    own_costs: SavingRow | None = None,
    left_out: dict[str, str] | None = None,
    command: str | None = None,
) -> Scenario:
    def told(part: str, tokens: int) -> int | None:
        return tokens if bill.calls > bill.unknown_calls.get(part, 0) else None

    return Scenario(
        name=name,
        title=title,
        calls=bill.calls,
        uncached_input=told("uncached_input", bill.uncached_input),
        cache_read=told("cache_read", bill.cache_read),
        cache_write=told("cache_write", bill.cache_write),
        hit_ratio=None if bill.hit_ratio is None else float(bill.hit_ratio),
        input_equivalents=_text(bill.input_equivalents),
        cost=_text(bill.cost),
        saves=saves,
        added_calls=added_calls,
        own_costs=own_costs,
        left_out=left_out or {},
        command=command,
        unknown_calls=bill.unknown_calls,
    )


def _row(saving: Saving) -> SavingRow:
    return SavingRow(_text(saving.input_equivalents), _text(saving.cost))


def _text(value: Decimal | None) -> str | None:
    return None if value is None else plain(value)

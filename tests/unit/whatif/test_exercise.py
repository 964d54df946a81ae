"""The session of fourteen requests: every figure of its fixes, alone and together."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Call, Session
from cacheaudit.pricing.book import PriceBook
from cacheaudit.simulate.edit import apply_all, parse_edit
from cacheaudit.simulate.forced import ForcedPaths, forced_paths
from cacheaudit.simulate.run import run
from cacheaudit.simulate.whatif import Lab, WhatIf, evaluate
from tests.unit.whatif.builders import written_read

FIXES = ("late-tools", "keep-alive", "auto-tool-choice", "mark-previous:over=20", "fan-out")
REPORTED = [
    (8_500, 0), (1_500, 8_500), (1_500, 10_000), (21_300, 11_500), (34_650, 0), (1_500, 34_650),
    (37_650, 0), (1_500, 37_650), (33_300, 7_350), (3_000, 39_150), (44_520, 7_350),
    (30_500, 51_870), (30_500, 51_870), (30_500, 51_870),
]  # fmt: skip
FIXED = [
    (8_500, 0), (1_500, 8_500), (1_500, 10_000), (21_300, 11_500), (1_850, 32_800),
    (1_500, 34_650), (0, 36_150), (1_500, 36_150), (1_500, 37_650), (1_500, 39_150),
    (1_500, 40_650), (9_720, 42_150), (30_500, 51_870), (200, 82_170), (200, 82_170),
]  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Session:
    root = Path(__file__).parents[3]
    path = root / "fixtures" / "sessions" / "exercise-14.session.jsonl"
    (found,) = Corpus([path], Problems(), lambda _done, _total: None).sessions()
    return found


@pytest.fixture(scope="module")
def weighed(session: Session) -> WhatIf:
    return evaluate(session, [parse_edit(name) for name in FIXES], PriceBook())


def edited(session: Session, *names: str) -> list[tuple[int, int]]:
    return written_read(apply_all([parse_edit(name) for name in names], session.calls))


def test_the_baseline_is_what_was_billed(session: Session, weighed: WhatIf) -> None:
    assert written_read(session.calls) == REPORTED
    assert weighed.exact == weighed.simulated == 14
    assert weighed.baseline.amounts == weighed.reported.amounts
    assert weighed.baseline.input_equivalents == Decimal(381_701)
    assert weighed.difference.input_equivalents == 0


@pytest.mark.parametrize(
    ("name", "saves"),
    [
        ("late-tools", "36915"),
        ("keep-alive", "37957.5"),
        ("keep-alive:at=06:50", "37957.5"),
        ("auto-tool-choice", "38295"),
        ("mark-previous:over=20", "40020"),
        ("join-blocks", "40020"),
        ("fan-out", "69690"),
    ],
)
def test_each_fix_alone(session: Session, name: str, saves: str) -> None:
    (trial,) = evaluate(session, [parse_edit(name)]).alone
    assert trial.saves.input_equivalents == Decimal(saves)


def test_a_later_tool_declared_later(session: Session) -> None:
    rows = edited(session, "late-tools")
    assert rows[4] == (1_850, 32_800)
    # The front is now 7,000 tokens where it was 7,350.
    assert (rows[8], rows[10]) == ((33_650, 7_000), (44_870, 7_000))
    assert [r for n, r in enumerate(rows) if n not in (4, 8, 10)] == [
        r for n, r in enumerate(REPORTED) if n not in (4, 8, 10)
    ]


def test_a_refresh_shortly_before_expiry(session: Session) -> None:
    calls = parse_edit("keep-alive").apply(session.calls)
    (added,) = [call for call in calls if call.purpose == "keep_alive"]
    start = session.calls[0].started_at
    assert start is not None
    assert added.started_at == start + 6 * 60 + 50
    rows = run(calls).by_id()
    outcome = rows[added.id].predicted
    assert outcome is not None
    assert (outcome.read, outcome.written, outcome.uncached) == (36_150, 0, 0)
    after = rows[session.calls[6].id].predicted
    assert after is not None
    assert (after.written, after.read) == (1_500, 36_150)


def test_no_forced_tool(session: Session) -> None:
    rows = edited(session, "auto-tool-choice")
    assert (rows[8], rows[9]) == ((1_500, 39_150), (1_500, 40_650))


@pytest.mark.parametrize("name", ["mark-previous:over=20", "join-blocks"])
def test_the_long_turn_is_found(session: Session, name: str) -> None:
    rows = edited(session, name)
    assert rows[10] == (9_720, 42_150)
    assert [r for n, r in enumerate(rows) if n != 10] == [
        r for n, r in enumerate(REPORTED) if n != 10
    ]


def test_one_sibling_first(session: Session) -> None:
    rows = edited(session, "fan-out")
    assert rows[11:] == [(30_500, 51_870), (200, 82_170), (200, 82_170)]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ("mark=no,order=no", [(30_500, 51_870)] * 3),
        ("mark=yes,order=no", [(30_500, 51_870)] * 3),
        ("mark=no,order=yes", [(30_500, 51_870)] * 3),
        ("mark=yes,order=yes", [(30_500, 51_870), (200, 82_170), (200, 82_170)]),
    ],
)
def test_fan_out_needs_both(session: Session, options: str, rows: list[tuple[int, int]]) -> None:
    if options == "mark=no,order=no":
        assert written_read(session.calls)[11:] == rows
    else:
        assert edited(session, f"fan-out:{options}")[11:] == rows


def test_all_fixes_together(session: Session, weighed: WhatIf) -> None:
    bill = weighed.together.bill
    assert bill is not None
    assert bill.calls == 15
    assert bill.cache_write == 82_770
    assert bill.cache_read == 545_560
    assert bill.hit_ratio is not None
    assert round(bill.hit_ratio * 100, 2) == Decimal("86.83")
    assert bill.input_equivalents == Decimal("158018.5")
    assert edited(session, *FIXES) == FIXED
    assert weighed.baseline.hit_ratio is not None
    assert round(weighed.baseline.hit_ratio * 100, 2) == Decimal("52.65")


def test_the_order_in_which_fixes_are_named_does_not_matter(
    session: Session, weighed: WhatIf
) -> None:
    turned = evaluate(session, [parse_edit(name) for name in reversed(FIXES)], PriceBook())
    assert turned.together.bill == weighed.together.bill


def test_the_steps_add_up_exactly(weighed: WhatIf) -> None:
    after = weighed.together.bill
    assert after is not None
    assert weighed.steps.saves == weighed.baseline.less(after)
    assert weighed.steps.saves.input_equivalents == Decimal("223682.5")
    alone = [trial.saves.input_equivalents for trial in weighed.alone]
    # Alone they save less together: the later tool's 805 come back once rows 9 and 11 are mended.
    assert sum(value for value in alone if value is not None) == Decimal("222877.5")


def test_money_follows_the_same_prices(weighed: WhatIf) -> None:
    saves = weighed.baseline.less(weighed.together.bill) if weighed.together.bill else None
    assert saves is not None
    assert saves.cost == Decimal("223682.5") * Decimal("0.000005")


def test_own_costs_are_stated(weighed: WhatIf) -> None:
    keep_alive = weighed.alone[1]
    assert keep_alive.own_costs.added_calls == 1
    assert keep_alive.own_costs.added.input_equivalents == Decimal(3_615)


def test_an_hour_costs_more_here(session: Session) -> None:
    (trial,) = evaluate(session, [parse_edit("ttl")]).alone
    # Row 7 is read (36,150 fewer written), everything else costs 0.75 more a token.
    assert trial.bill is not None
    assert trial.bill.cache_writes == {"1h": 280_420 - 36_150}
    assert trial.saves.input_equivalents == 36_150 * Decimal("1.15") - 244_270 * Decimal("0.75")
    assert trial.own_costs.longer_writes.input_equivalents == 244_270 * Decimal("0.75")


@pytest.fixture(scope="module")
def paths(session: Session) -> ForcedPaths:
    return forced_paths(Lab(session, PriceBook()))


def test_three_paths_of_a_forced_tool(paths: ForcedPaths) -> None:
    assert paths.forced.input_equivalents == 50_025
    assert paths.complies.input_equivalents == 11_730
    assert paths.retry.input_equivalents == 54_090


def test_break_even_compliance(paths: ForcedPaths) -> None:
    assert paths.break_even == Fraction(4_065, 42_360)
    share = Decimal(4_065) / Decimal(42_360)
    assert round(share * 100, 1) == Decimal("9.6")
    below, above = paths.saves(Decimal("0.09")), paths.saves(Decimal("0.10"))
    assert below.input_equivalents is not None
    assert above.input_equivalents is not None
    assert below.input_equivalents < 0 < above.input_equivalents
    assert paths.expected(Decimal(1)).input_equivalents == 11_730
    assert paths.expected(Decimal(0)).input_equivalents == 54_090


@pytest.mark.parametrize("share", ["-0.1", "1.1"])
def test_a_probability_is_between_0_and_1(paths: ForcedPaths, share: str) -> None:
    with pytest.raises(ValueError, match="probability"):
        paths.expected(Decimal(share))


def test_nothing_recorded_is_changed(session: Session) -> None:
    before = [(call.id, call.prompt, call.usage, call.started_at) for call in session.calls]
    calls: tuple[Call, ...] = session.calls
    apply_all([parse_edit(name) for name in FIXES], calls)
    assert before == [(call.id, call.prompt, call.usage, call.started_at) for call in calls]

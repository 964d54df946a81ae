"""How much all fixes save under disputed rules and chances: the exercise, worked out by hand."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from cacheaudit.diagnose.runner import diagnose
from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.outlook import Outlook
from cacheaudit.jobs.predict import Predictor
from cacheaudit.jobs.prediction import Change, FixStep, SessionPrediction
from cacheaudit.jobs.spread import TOO_MUCH, Spread, spread
from cacheaudit.model.call import Session
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.result import CostTotal, SavingRow, Totals
from cacheaudit.simulate.bill import Saving
from cacheaudit.simulate.edit import Edit, parse_edit
from cacheaudit.simulate.edits.auto_tool_choice import AutoToolChoice
from cacheaudit.simulate.switches import SWITCHES, Switches
from cacheaudit.simulate.whatif import Lab

BOOK = PriceBook()
SESSIONS = Path(__file__).parents[3] / "fixtures" / "sessions"
STEADY = "steady-settings:names=tool_choice"
FIXES = ("fan-out", "mark-previous", STEADY, "keep-alive", "late-tools")
TOTALS = Totals(
    calls=1,
    input_equivalents="1000",
    uncached_input=1,
    cache_read=1,
    cost=CostTotal("1", None, "USD", 0),
)


@pytest.fixture(scope="module")
def exercise() -> Session:
    corpus = Corpus([SESSIONS / "exercise-14.session.jsonl"], Problems(), lambda _a, _b: None)
    (found,) = corpus.sessions()
    return found


def equivalents(saving: Saving | None) -> Decimal:
    assert saving is not None
    assert saving.input_equivalents is not None
    return saving.input_equivalents


def saves(session: Session, *texts: str, **switches: str) -> Decimal:
    """What edits save together under some rules."""
    lab = Lab(session, BOOK, Switches(**switches))
    return equivalents(lab.together([lab.priced(parse_edit(text)) for text in texts]).saves)


def tried(session: Session, *texts: str, budget: int = 100_000) -> Spread:
    lab = Lab(session, BOOK)
    edits = [lab.priced(parse_edit(text)) for text in texts]
    return spread(lab, edits, lab.together(edits).saves, BOOK, budget)


def test_a_disputed_rule_is_one_end(exercise: Session) -> None:
    # Both agents wait for the first token; where that is two seconds too soon, they write again.
    found = tried(exercise, "fan-out")
    assert (equivalents(found.low), equivalents(found.high)) == (Decimal(0), Decimal(69_690))
    assert saves(exercise, "fan-out", visible_after="2") == 0


def test_a_chance_is_one_end(exercise: Session) -> None:
    # Where a forced choice drops nothing, freeing it saves nothing; a retry then only costs.
    found = tried(exercise, STEADY)
    assert equivalents(found.high) == Decimal(38_295) == saves(exercise, STEADY)
    assert saves(exercise, STEADY, tool_choice="nothing") == 0
    lab = Lab(exercise, BOOK, Switches(tool_choice="nothing"))
    unlucky = lab.alone(AutoToolChoice(path="retry"))
    assert equivalents(found.low) == equivalents(unlucky.saves) < 0


def test_all_fixes_of_the_exercise(exercise: Session) -> None:
    found = tried(exercise, *FIXES)
    every = Decimal("223682.5")
    assert equivalents(found.high) == every == saves(exercise, *FIXES)
    # Worst: neither the fan-out nor the freed choice saves, and the forced request follows.
    assert saves(exercise, *FIXES, visible_after="2") == every - 69_690
    assert saves(exercise, *FIXES, tool_choice="nothing") == every - 38_295
    both = saves(exercise, *FIXES, visible_after="2", tool_choice="nothing")
    assert both == every - 69_690 - 38_295
    assert equivalents(found.low) == Decimal("111632.5") < both


def test_the_range_holds_every_single_rule(exercise: Session) -> None:
    found = tried(exercise, *FIXES)
    low, high = equivalents(found.low), equivalents(found.high)
    for switch in SWITCHES:
        for value in switch.values:
            if not value.startswith("<"):
                assert low <= saves(exercise, *FIXES, **{switch.name: value}) <= high, switch.name


def test_nothing_to_mend_is_a_point(exercise: Session) -> None:
    assert tried(exercise) == Spread(Saving(), Saving())


def test_too_much_is_refused(exercise: Session) -> None:
    found = tried(exercise, *FIXES, budget=100)
    assert (found.low, found.high, found.reason, found.work) == (None, None, TOO_MUCH, 0)
    assert 0 < tried(exercise, *FIXES).work < 400


def told(*predictions: SessionPrediction) -> tuple[SavingRow | None, SavingRow | None, str | None]:
    outlook = Outlook()
    for prediction in predictions:
        outlook.add(prediction, ())
    what_if = outlook.what_if(TOTALS)
    return what_if.low, what_if.high, what_if.reason


def prediction(session: Session) -> SessionPrediction:
    return Predictor(BOOK).predict(session, diagnose(session, BOOK))


def test_ranges_add_up(exercise: Session) -> None:
    one = prediction(exercise)
    low, high, reason = told(one, one)
    assert low == SavingRow("223265", "1.101325")
    assert high == SavingRow("447365", "2.236825")
    assert reason is None


def test_one_session_that_was_not_tried_leaves_no_range(exercise: Session) -> None:
    saved = Change(saves=Saving(Decimal(5), Decimal(1)))
    sizes = SessionPrediction(
        session="s", change=saved, steps=(FixStep("x:s:0", saved, False, ()),), untried="no bodies"
    )
    assert told(prediction(exercise), sizes) == (None, None, "no bodies")


def test_sessions_without_a_fix_need_no_trial() -> None:
    nothing = SessionPrediction(session="s", low=Saving(), high=Saving())
    assert told(nothing) == (SavingRow("0", "0"), SavingRow("0", "0"), None)


def test_edits_are_told_by_what_they_are(exercise: Session) -> None:
    freed: Edit = parse_edit("auto-tool-choice")
    found = tried(exercise, "auto-tool-choice")
    lab = Lab(exercise, BOOK)
    assert equivalents(found.high) == equivalents(lab.alone(freed).saves)
    assert equivalents(found.low) < equivalents(found.high)

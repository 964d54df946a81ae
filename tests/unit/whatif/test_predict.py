"""What an audit is told: predictions, savings of fixes, the whole bill after them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from cacheaudit.diagnose.runner import Diagnosis, diagnose
from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.outlook import Outlook
from cacheaudit.jobs.predict import Predictor, SessionPrediction, predict, with_savings
from cacheaudit.jobs.tally import Bucket, Tally
from cacheaudit.model.call import Session
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.result import Scenario, Totals, WhatIf
from cacheaudit.simulate.edit import parse_edit
from cacheaudit.simulate.run import run
from tests.unit.whatif.builders import growing, without_bodies

BOOK = PriceBook()
SESSIONS = Path(__file__).parents[3] / "fixtures" / "sessions"


def read(*paths: Path) -> list[Session]:
    return list(Corpus(list(paths), Problems(), lambda _done, _total: None).sessions())


def totals_of(*sessions: Session) -> Totals:
    tally, bucket = Tally(BOOK), Bucket()
    for session in sessions:
        for call in session.calls:
            if call.usage is not None:
                at = None if call.relative_time else call.at
                tally.add(bucket, call.usage, call.provider, call.model, call.surface, at)
    return bucket.totals()


def told(*sessions: Session) -> tuple[list[SessionPrediction], list[Diagnosis], WhatIf]:
    predictor, outlook = Predictor(BOOK), Outlook()
    predictions, diagnoses = [], []
    for session in sessions:
        diagnosis = diagnose(session, BOOK)
        prediction = predictor.predict(session, diagnosis)
        outlook.add(prediction, diagnosis.findings)
        predictions.append(prediction)
        diagnoses.append(diagnosis)
    return predictions, diagnoses, outlook.what_if(totals_of(*sessions))


def scenario(what_if: WhatIf, name: str) -> Scenario:
    return next(s for s in what_if.scenarios if isinstance(s, Scenario) and s.name == name)


@pytest.fixture(scope="module")
def exercise() -> Session:
    (found,) = read(SESSIONS / "exercise-14.session.jsonl")
    return found


def test_the_audit_knows_every_figure_of_the_exercise(exercise: Session) -> None:
    (prediction,), _, what_if = told(exercise)
    assert (prediction.exact, prediction.compared, prediction.exact_writes) == (14, 14, 14)
    every = what_if.all_fixes
    assert isinstance(every, Scenario)
    assert (every.calls, every.cache_write, every.cache_read) == (15, 82_770, 545_560)
    assert every.hit_ratio == 0.86827
    assert every.input_equivalents == "158018.5"
    assert what_if.baseline is not None
    assert what_if.baseline.input_equivalents == "381701"
    assert {step.alone.input_equivalents for step in what_if.waterfall if step.alone} == {
        "36915", "37957.5", "38295", "40020", "69690",
    }  # fmt: skip


def test_the_waterfall_leads_from_the_baseline_to_all_fixes(exercise: Session) -> None:
    _, _, what_if = told(exercise, *read(SESSIONS / "demo.session.jsonl"))
    every, base = what_if.all_fixes, what_if.baseline
    assert isinstance(every, Scenario)
    assert base is not None
    for unit in ("input_equivalents", "cost"):
        steps = sum(Decimal(getattr(step.saves, unit)) for step in what_if.waterfall)
        assert Decimal(getattr(base, unit)) - steps == Decimal(getattr(every, unit))


def test_every_fix_can_be_run_again_by_hand(exercise: Session) -> None:
    _, _, what_if = told(exercise)
    for step in what_if.waterfall:
        assert step.edit is not None
        assert parse_edit(step.edit).name == step.name


def test_savings_go_into_the_findings(exercise: Session) -> None:
    diagnosis = diagnose(exercise, BOOK)
    prediction = predict(exercise, diagnosis, BOOK)
    findings = with_savings(diagnosis.findings, prediction)
    alone = {
        finding.rule[:3]: finding.fix.saves_alone.input_equivalents
        for finding in findings
        if finding.kind == "loss" and finding.fix is not None and finding.fix.saves_alone
    }
    assert alone == {
        "TOL": Decimal(36_915),
        "TTL": Decimal("37957.5"),
        "MDL": Decimal(38_295),
        "BRK": Decimal(40_020),
        "RTE": Decimal(69_690),
    }
    assert [finding.id for finding in findings] == [finding.id for finding in diagnosis.findings]


def test_work_is_bounded(exercise: Session) -> None:
    diagnosis = diagnose(exercise, BOOK)
    prediction = Predictor(BOOK, work=0).predict(exercise, diagnosis)
    assert prediction.exact == 14
    assert prediction.saves == {}
    fixable = {f.id for f in diagnosis.findings if f.kind == "loss"}
    assert prediction.left_out.keys() == fixable


def test_usage_alone_predicts_what_the_simulator_does() -> None:
    session = without_bodies(growing([0, 20, 40, 400, 420]))
    prediction = predict(session, diagnose(session, BOOK), BOOK)
    rows = {row.id: row.predicted for row in run(session).calls if row.predicted is not None}
    assert {name: call.read for name, call in prediction.calls.items()} == {
        name: outcome.read for name, outcome in rows.items()
    }
    assert prediction.mode == "sizes"
    assert prediction.exact == prediction.compared == 4
    assert prediction.refused == {"not_told_by_sizes": 1}


def test_a_lost_pause_is_weighed_with_its_refresh() -> None:
    session = without_bodies(growing([0, 20, 400, 420], first=40_000))
    (prediction,), (diagnosis,), what_if = told(session)
    (finding,) = [f for f in diagnosis.findings if f.kind == "loss"]
    assert finding.rule.startswith("TTL")
    lost = 45_000
    saves = lost * Decimal("1.15") - lost * Decimal("0.1")
    assert prediction.saves[finding.id].input_equivalents == saves
    every = what_if.all_fixes
    assert isinstance(every, Scenario)
    assert every.added_calls == 1
    assert every.cache_read is not None
    reported = what_if.reported
    assert reported is not None
    assert reported.cache_read is not None
    assert every.cache_read == reported.cache_read + lost + lost
    assert scenario(what_if, "one-hour").saves is not None


def test_sums_over_sessions_are_sums_of_sessions(exercise: Session) -> None:
    other = without_bodies(growing([0, 20, 400, 420], first=40_000))
    single = [told(session)[2] for session in (exercise, other)]
    both = told(exercise, other)[2]
    for name in ("no-caching", "one-hour", "ideal"):
        parts = [scenario(what_if, name).input_equivalents for what_if in single]
        whole = scenario(both, name).input_equivalents
        assert whole is not None
        assert Decimal(whole) == sum(Decimal(part) for part in parts if part is not None)


def test_the_ideal_is_left_out_where_it_is_not_known_of_all() -> None:
    session = without_bodies(growing([0, 20, 400]))
    timeless = tuple(
        msgspec.structs.replace(
            call, id=f"t{n}", started_at=None, first_token_at=None, ended_at=None
        )
        for n, call in enumerate(session.calls)
    )
    unknown = Session(id="t", source="test", calls=timeless)
    names = [s.name for s in told(session, unknown)[2].scenarios if isinstance(s, Scenario)]
    assert "ideal" not in names
    assert "one-hour" in names


def test_nothing_read_nothing_said() -> None:
    outlook = Outlook()
    assert outlook.what_if(totals_of()).all_fixes is None
    assert outlook.simulation().calls is None


@pytest.mark.shared
def test_recorded_sessions_are_predicted(shared: Path) -> None:
    folder = shared / "data" / "sessions"
    sessions = read(folder / "claude_code" / "a.jsonl", folder / "claude_code" / "b.jsonl")
    predictions, _, what_if = told(*sessions)
    assert [(p.exact, p.compared) for p in predictions] == [(226, 226), (198, 219)]
    assert what_if.baseline is not None
    assert what_if.reported is not None
    assert what_if.baseline.input_equivalents == what_if.reported.input_equivalents


def test_a_fix_is_credited_only_with_what_it_does_for_its_own_calls() -> None:
    (demo,) = read(SESSIONS / "demo.session.jsonl")
    (prediction,), (diagnosis,), _ = told(demo)
    found = {finding.rule: finding.id for finding in diagnosis.findings}
    # The pause before this call was the user's: refreshing while a tool runs does not reach it,
    # though it saves elsewhere in the same session.
    assert found["TTL101"] not in prediction.saves
    assert prediction.edits[found["TTL102"]] == "keep-alive"
    # Staying with the model, by hand: calls 30 to 33 billed $0.1836171, all of Opus $0.0927584.
    assert prediction.edits[found["MDL101"]] == "model:to=claude-opus-5-5,lanes=main"
    assert prediction.saves[found["MDL101"]].cost == Decimal("0.0908587")

"""Totals of everything that is recorded, against figures that others worked out."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.errors import UnknownFormatError, UsageError
from cacheaudit.jobs.audit import audit
from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.jobs.usage import GROUPS, usage
from cacheaudit.report.result import Totals
from fixtures.make.make_corpus import main as make_corpus

EXERCISE = "fixtures/sessions/exercise-14.csv"


def inputs(*paths: Path, **more: Any) -> Inputs:
    """Name files, far from any real home."""
    return Inputs(paths=paths, environment={}, home=Path("/nonexistent"), **more)


def parts(totals: Totals) -> dict[str, int]:
    """Name the sums as the expected figures do; parts that nobody knows are left out."""
    writes = totals.cache_write
    found = {
        "uncached_input": totals.uncached_input,
        "cache_read": totals.cache_read,
        "cache_write_5m": writes["5m"],
        "cache_write_1h": writes["1h"],
        "cache_write": writes["other"],
        "output": totals.output,
    }
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.shared
def test_every_recorded_session_totals_as_expected(shared: Path) -> None:
    expected = json.loads((shared / "data" / "expected.json").read_text())["files"]
    for name, figures in expected.items():
        result = usage(inputs(shared / "data" / name), "session", silent)
        totals = result.totals
        found = parts(totals)
        for part, value in found.items():
            if part in figures:
                assert value == figures[part], (name, part)
        missing = {p for p in figures if p.startswith("cache_")} - found.keys()
        assert not {p for p in missing if figures[p]}, name
        assert totals.calls == figures.get("requests", figures.get("calls")), name
        assert totals.output_is_lower_bound == figures.get("output_is_lower_bound", False), name
        if "stored_cost_usd" in figures:
            reported = Decimal(totals.cost.reported or "nan").quantize(Decimal("1e-6"))
            assert str(reported) == figures["stored_cost_usd"]


@pytest.mark.shared
def test_audit_and_usage_agree_on_every_recorded_session(shared: Path) -> None:
    folder = shared / "data" / "sessions"
    quick = usage(inputs(folder), "model", silent)
    full = audit(inputs(folder), silent)
    assert full.totals == quick.totals
    assert full.scope == quick.scope
    assert {g.key: g.totals for g in full.by_model} == {g.key: g.totals for g in quick.groups}
    rows = list(full.calls)
    assert len(rows) == full.scope.calls
    assert sum(row.cache_read or 0 for row in rows) == full.totals.cache_read
    costs = [Decimal(row.cost) for row in rows if row.cost is not None]
    assert sum(costs) == Decimal(full.totals.cost.computed or 0)
    assert len(rows) - len(costs) == full.totals.cost.unpriced_calls


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small generated corpus with its truth."""
    out = tmp_path_factory.mktemp("corpus")
    make_corpus([str(out), "--size", "6MB", "--seed", "7"])
    return out


def test_the_bill_of_a_generated_corpus_is_exact(corpus: Path) -> None:
    truth = json.loads((corpus / "truth.json").read_text())
    for by, key in (("model", "by_model"), ("session", "by_session")):
        result = usage(inputs(corpus / "projects"), by, silent)
        assert result.totals.cost.computed == truth["totals"]["cost"]
        for group in result.groups:
            figures = truth[key][group.key]
            assert group.totals.calls == figures["calls"]
            assert Decimal(group.totals.cost.computed or 0) == Decimal(figures["cost"])
            for part, value in parts(group.totals).items():
                assert value == figures[part]
        assert {group.key for group in result.groups} == set(truth[key])
    copies = {row.kind: row.count for row in result.data_quality}["repeated_calls_left_out"]
    assert copies == truth["copied_calls"]


def test_groups_add_up_to_the_totals(corpus: Path) -> None:
    for by in GROUPS:
        result = usage(inputs(corpus / "projects"), by, silent)
        assert sum(group.totals.calls for group in result.groups) == result.totals.calls
        money = sum(Decimal(group.totals.cost.computed or 0) for group in result.groups)
        assert money == Decimal(result.totals.cost.computed or 0), by


def test_the_exercise_from_usage_alone(root: Path) -> None:
    totals = usage(inputs(root / EXERCISE), "day", silent).totals
    assert totals.calls == 14
    assert totals.cache_write["other"] == 280_420
    assert totals.cache_read == 311_760
    assert totals.hit_ratio == pytest.approx(0.5265, abs=5e-5)
    assert totals.input_equivalents == "381701"
    assert totals.cost.computed is None
    assert totals.cost.unpriced_calls == 14


def test_a_better_copy_corrects_row_total_and_cost(tmp_path: Path) -> None:
    from tests.unit.jobs.transcripts import line

    (tmp_path / "a.jsonl").write_text(line("m1", 5))
    (tmp_path / "b.jsonl").write_text("\n".join([line("m1", 9), line("m2", 1)]))
    result = audit(inputs(tmp_path), silent)
    assert [(row.id, row.output) for row in result.calls] == [("m1", 9), ("m2", 1)]
    assert result.totals.output == 10
    rows = sum(Decimal(row.cost or 0) for row in result.calls)
    assert Decimal(result.totals.cost.computed or 0) == rows
    assert result.totals == usage(inputs(tmp_path), "day", silent).totals


def test_a_period_leaves_other_calls_out(corpus: Path) -> None:
    whole = audit(inputs(corpus / "projects"), silent)
    times = sorted(row.started_at for row in whole.calls if row.started_at)
    from cacheaudit.model.clock import parse_time

    middle = parse_time(times[len(times) // 2])
    early = usage(inputs(corpus / "projects", until=middle), "day", silent)
    late = usage(inputs(corpus / "projects", since=middle), "day", silent)
    assert early.totals.calls + late.totals.calls == whole.totals.calls
    assert 0 < early.totals.calls < whole.totals.calls


def test_a_store_gives_the_same_totals(shared: Path, tmp_path: Path) -> None:
    from cacheaudit.jobs.import_ import import_files
    from cacheaudit.model.clock import FixedClock
    from cacheaudit.store.store import open_store

    url = f"sqlite:///{tmp_path / 'x.db'}"
    files = inputs(shared / "data" / "sessions" / "claude_code" / "b.jsonl")
    with open_store(url) as store:
        import_files(files, store, FixedClock())
    stored = inputs(db=url)
    assert usage(stored, "model", silent).totals == usage(files, "model", silent).totals
    assert audit(stored, silent).totals == audit(files, silent).totals
    assert len(audit(stored, silent).findings) == len(audit(files, silent).findings)


@pytest.mark.parametrize("job", [audit, lambda i, p: usage(i, "day", p)])
def test_what_cannot_be_read_is_said(tmp_path: Path, job: Any) -> None:
    with pytest.raises(UsageError, match="There is no"):
        job(inputs(tmp_path / "none.jsonl"), silent)
    (tmp_path / "x.json").write_text('{"a": 1}')
    with pytest.raises(UnknownFormatError, match="No source recognises"):
        job(inputs(tmp_path / "x.json"), silent)
    with pytest.raises(UnknownFormatError, match="Nothing readable"):
        job(inputs(tmp_path), silent)
    with pytest.raises(UsageError, match="No agent keeps sessions"):
        job(Inputs(paths=(), environment={}, home=tmp_path / "home"), silent)


def test_an_unknown_grouping_names_the_known_ones(root: Path) -> None:
    with pytest.raises(UsageError, match="day, session, model"):
        usage(inputs(root / EXERCISE), "colour", silent)


def test_without_any_usage_the_bill_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "x.session.jsonl"
    path.write_text(
        json.dumps(
            {
                "schema": "cacheaudit.call/1",
                "id": "a",
                "session": "s",
                "provider": "anthropic",
                "model": "claude-opus-5-5",
                "started_at": "2026-11-01T00:00:00Z",
                "error": {"type": "overloaded_error", "status": 529},
            }
        )
        + "\n"
    )
    totals = audit(inputs(path), silent).totals
    assert (totals.calls, totals.total_input, totals.cost.computed) == (0, None, None)
    assert totals.cost.reason == "no call with usage"

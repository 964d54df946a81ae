"""Recorded sessions in the store add up to the figures worked out by hand beside them."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.import_ import import_files
from cacheaudit.model.clock import FixedClock
from cacheaudit.store import open_store
from tests.unit.store.builders import inputs

pytestmark = pytest.mark.shared


def test_totals_of_every_file(shared: Path, tmp_path: Path) -> None:
    expected = json.loads((shared / "data" / "expected.json").read_text())["files"]
    for number, (name, row) in enumerate(expected.items()):
        with open_store(str(tmp_path / f"{number}.db")) as store:
            import_files(inputs(shared / "data" / name), store, FixedClock())
            calls = [call for session in store.sessions() for call in session.calls]
        assert len(calls) == row.get("requests", row.get("calls")), name
        sums: Counter[str] = Counter()
        for usage in (call.usage for call in calls if call.usage is not None):
            for field in ("uncached_input", "cache_read", "write_5m", "write_1h", "output"):
                sums[field] += getattr(usage, field) or 0
            sums["cache_write"] += usage.cache_write or 0
        for field in ("uncached_input", "cache_read", "output", "cache_write"):
            assert sums[field] == row.get(field, sums[field]), (name, field)
        for field in ("write_5m", "write_1h"):
            assert sums[field] == row.get(f"cache_{field}", sums[field]), (name, field)
        if "stored_cost_usd" in row:
            cost = sum((call.reported_cost or Decimal(0) for call in calls), Decimal(0))
            assert round(cost, 6) == Decimal(row["stored_cost_usd"]), name


def test_the_store_gives_the_sessions_that_the_files_give(url: str, shared: Path) -> None:
    folder = (shared / "data" / "sessions").resolve()
    corpus = Corpus([folder], Problems(), lambda _done, _whole: None)
    straight = {(session.source, session.id): session for session in corpus.sessions()}
    with open_store(url) as store:
        import_files(inputs(folder), store, FixedClock())
        again = import_files(inputs(folder), store, FixedClock())
        stored = {(session.source, session.id): session for session in store.sessions()}
    assert again.files_skipped == again.files_seen
    assert stored == straight

"""The experiments as sessions: as their script writes them, and as the rules bill them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cacheaudit.simulate.run import run
from fixtures.make.make_replays import main
from tests.unit.replay.builders import SESSIONS, calls_of

NAMES = ("probe.session.jsonl", "fan-out.session.jsonl")


def test_the_script_gives_the_same_bytes(tmp_path: Path) -> None:
    main(tmp_path)
    for name in NAMES:
        assert (tmp_path / name).read_bytes() == (SESSIONS / name).read_bytes()


@pytest.mark.parametrize(("name", "calls"), [(NAMES[0], 4), (NAMES[1], 16)])
def test_the_rules_predict_what_was_billed(name: str, calls: int) -> None:
    found = run(calls_of(SESSIONS / name)).accuracy
    assert (found.calls, found.exact_calls, found.exact_writes) == (calls, calls, calls)

from __future__ import annotations

import pytest

from local_backend.kvcache import lab


def test_a_newcomer_waits_and_the_answer_is_unchanged() -> None:
    unsafe, safe = lab.arrival_unsafe(), lab.arrival_safe()
    assert unsafe.changed > 0
    assert (safe.changed, safe.of) == (0, 16)
    assert safe.note == "B waits, then B is admitted"


def test_pages_of_a_second_user_survive_the_end_of_the_first() -> None:
    unsafe, safe = lab.shared_unsafe(), lab.shared_safe()
    assert unsafe.changed > 0
    assert (safe.changed, safe.of) == (0, 20)
    assert safe.note == "11 pages shared, B refused"


def test_after_one_eviction_the_tail_costs_16_tokens_and_the_head_all() -> None:
    assert lab.order_unsafe().hit == 0
    assert lab.order_unsafe().note == "11 pages remain and cannot be reached"
    assert lab.order_safe().hit == 176


def test_a_shared_last_page_is_copied_before_either_writes() -> None:
    assert lab.branch_unsafe().changed > 0
    assert lab.branch_safe().changed == 0


def test_pages_under_way_to_a_tier_are_pinned() -> None:
    unsafe, safe = lab.offload_unsafe(), lab.offload_safe()
    assert unsafe.changed > 0
    assert (safe.changed, safe.hit) == (0, 48)


def test_every_scenario_has_both_variants(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [scenario() for scenario in lab.SCENARIOS]
    names = {outcome.scenario for outcome in outcomes}
    assert len(names) == 5
    for name in names:
        assert sorted(o.is_safe for o in outcomes if o.scenario == name) == [False, True]
    assert lab.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(outcomes)
    assert "176 tokens found" in lines[5]

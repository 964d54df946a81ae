"""The diagnosis against a small generated corpus: nothing wrong, nothing made up, all listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.make.make_accuracy import CAUSES, GRADES, LISTED, RIGHT, Result, measure, render
from fixtures.make.make_corpus import Corpus

NAMED_FROM_USAGE = (
    "ttl_expired_1h",
    "ttl_expired_5m",
    "ttl_long_request",
    "model_switch",
    "model_switch_back",
    "compaction",
    "subagent_fan_out",
    "tool_choice_restored",
    "cold_start",
)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("corpus")
    Corpus(folder, 24_000_000, 7).write()
    return measure(folder)


def test_no_finding_on_a_healthy_call(result: Result) -> None:
    assert result.false == {}


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_every_planted_cause_is_right_or_among_the_rivals(result: Result, cause: str) -> None:
    counts = {grade: result.number(cause, grade) for grade in GRADES}
    assert sum(counts.values()) > 0
    assert counts == {grade: n if grade in (RIGHT, LISTED) else 0 for grade, n in counts.items()}


@pytest.mark.parametrize("cause", NAMED_FROM_USAGE)
def test_what_usage_decides_is_named_every_time(result: Result, cause: str) -> None:
    assert result.number(cause, LISTED) == 0
    assert result.number(cause, RIGHT) > 0


@pytest.mark.parametrize("cause", ["tools_changed", "system_changed", "history_pruned"])
def test_the_providers_reasons_are_taken_over(result: Result, cause: str) -> None:
    assert result.grades[cause, True, RIGHT] > 0
    assert result.grades[cause, True, LISTED] == 0


def test_attributed_tokens_are_the_lost_ones(result: Result) -> None:
    assert result.attributed == result.lost > 0


def test_the_page_shows_every_cause_and_the_worst_figures(result: Result) -> None:
    page = render(result)
    assert "Findings on healthy calls: **0**. Wrong causes: **0**." in page
    for cause in CAUSES:
        assert f"| {cause} |" in page


def test_the_page_in_the_docs_is_of_this_generator(root: Path, result: Result) -> None:
    page = (root / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert f"generator {result.generator['generator']}, seed" in page
    assert "Findings on healthy calls: **0**. Wrong causes: **0**." in page

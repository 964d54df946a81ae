"""``cacheaudit explain``: every rule has a page whose examples show what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cacheaudit.diagnose.rule import all_rules
from tests.unit.cli.helpers import run

RULES = all_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_bad_example_names_the_rule_and_the_good_one_does_not_lose(
    rule: object, tmp_path: Path
) -> None:
    name = rule.name  # type: ignore[attr-defined]
    result = run(tmp_path, "explain", name, "--json")
    assert result.exit_code == 0, result.stderr
    page = json.loads(result.stdout)
    assert page["schema"] == "cacheaudit.rule/1"
    assert page["rule"]["name"] == name
    assert page["explanation"]
    bad, good = page["bad"], page["good"]
    assert bad["text"]
    assert good["text"]
    said = {word for call in bad["calls"] for word in call["says"]}
    assert name in said
    if page["rule"]["kind"] == "loss":
        assert bad["tokens_lost"][name] > 0
    assert name not in good["tokens_lost"]


def test_the_example_of_a_lifetime_in_figures(tmp_path: Path) -> None:
    """36,150 tokens written again for 1.25 each instead of read for 0.1."""
    page = json.loads(run(tmp_path, "explain", "ttl101", "--json").stdout)
    assert page["bad"]["tokens_lost"] == {"ttl-expired": 36_150}
    assert page["bad"]["input_equivalents"] == "41572.5"
    assert [c["start"] for c in page["bad"]["calls"]] == [0, 335, 365]
    assert page["good"]["tokens_lost"] == {}
    text = run(tmp_path, "explain", "TTL101").stdout
    assert "05:35" in text
    assert "Nothing is lost." in text
    markdown = run(tmp_path, "explain", "TTL101", "--format", "md").stdout
    assert "| call-2 | main | 05:35 | 0 | 37,650 | 0 | ttl-expired |" in markdown


def test_an_unknown_rule_names_the_nearest(tmp_path: Path) -> None:
    result = run(tmp_path, "explain", "ttl-expire")
    assert result.exit_code == 2
    assert "ttl-expired" in result.stderr
    result = run(tmp_path, "explain", "too-many-markers")
    assert result.exit_code == 2
    assert "cacheaudit lint" in result.stderr

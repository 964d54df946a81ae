"""Disputed rules: named, documented, checked, and told in every result."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from cacheaudit.errors import UsageError
from cacheaudit.providers import facts
from cacheaudit.simulate.claude import claude_rules
from cacheaudit.simulate.deepseek import deepseek_rules
from cacheaudit.simulate.kimi import kimi_rules
from cacheaudit.simulate.openai_v1 import openai_v1_rules
from cacheaudit.simulate.openai_v2 import openai_v2_rules
from cacheaudit.simulate.switches import SWITCHES, Switches


def rules(model: str, provider: str = "anthropic", surface: str | None = None) -> facts.Rules:
    found = facts.rules(provider, model, surface=surface)
    assert found is not None
    return found


def test_every_field_is_described_with_its_own_default() -> None:
    fields = Switches.__struct_fields__
    assert [switch.name for switch in SWITCHES] == list(fields)
    plain = Switches()
    for switch in SWITCHES:
        assert getattr(plain, switch.name) == switch.default
        assert switch.default in switch.values
        assert dt.date.fromisoformat(switch.since) <= facts.newest()
        assert switch.source
        assert switch.about


def test_the_guide_lists_every_switch_as_it_is(root: Path) -> None:
    text = (root / "docs" / "guide" / "simulator.md").read_text()
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    for switch in SWITCHES:
        cells = [cell.strip() for cell in rows[switch.name].strip("|").split("|")]
        values = {value.strip("`") for value in cells[1].split(", ")}
        assert values == {value.replace("<number>", "a number") for value in switch.values}
        assert cells[2:] == [f"`{switch.default}`", switch.since, switch.about]


def test_only_what_differs_is_told() -> None:
    assert Switches().changed() == {}
    assert Switches.parse({"lookback_runs": "each", "ttl_in_key": "no"}).changed() == {
        "lookback_runs": "each"
    }


def test_texts_are_read_as_people_write_them() -> None:
    found = Switches.of_texts(("lookback-runs = each", "visible_after=2.5"))
    assert found.changed() == {"lookback_runs": "each", "visible_after": "2.5"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lookbak_runs=each", "Did you mean 'lookback_runs'"),
        ("lookback_runs=two", "Allowed: auto, one, each"),
        ("visible_after=-1", "cannot be '-1'"),
        ("visible_after=<number>", "cannot be"),
        ("visible_after", "NAME=VALUE"),
        ("nothing_like_it_at_all=1", "Switches:"),
    ],
)
def test_mistakes_are_explained(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Switches.of_texts((text,))
    assert said in str(caught.value)


def test_switches_reach_the_machines() -> None:
    opus = rules("claude-opus-5", surface="claude_api")
    assert claude_rules(opus, Switches()).collapse_runs
    assert not claude_rules(opus, Switches(lookback_runs="each")).collapse_runs
    assert claude_rules(opus, Switches(minimum_tokens="77")).minimum == 77
    assert claude_rules(opus, Switches(visible_after="2")).visible_after == 2.0
    assert claude_rules(opus, Switches(lookback_positions="30")).positions == 30
    assert claude_rules(opus, Switches(ttl_in_key="yes")).ttl_in_key
    assert claude_rules(opus, Switches(read_upgrades="yes")).read_upgrades
    assert not claude_rules(opus, Switches(refresh_marked="no")).refresh_marked
    assert not claude_rules(opus, Switches(write_below_hit="no")).write_below_hit
    sonnet = rules("anthropic.claude-sonnet-4-6", "bedrock")
    assert claude_rules(sonnet, Switches()).minimum == 1024
    assert claude_rules(sonnet, Switches(bedrock_minimum="platform")).minimum == 2048
    assert openai_v2_rules(rules("gpt-6-sol", "openai"), Switches()).lookup == "sdk"
    guide = Switches(openai_lookup="guide")
    assert openai_v2_rules(rules("gpt-6-sol", "openai"), guide).lookup == "guide"
    old = rules("gpt-5.5", "openai")
    assert (openai_v1_rules(old, Switches()).interval, openai_v1_rules(old, Switches()).step) == (
        2048,
        128,
    )
    usual = openai_v1_rules(old, Switches())
    assert (usual.interval, usual.step) == (2048, 128)
    assert openai_v1_rules(old, Switches(openai_interval="128")).interval == 128
    assert deepseek_rules(rules("deepseek-v4-pro", "deepseek"), Switches()).unit == 0
    stepped = Switches(deepseek_unit="64")
    assert deepseek_rules(rules("deepseek-v4-pro", "deepseek"), stepped).unit == 64
    assert kimi_rules(rules("kimi-k3", "kimi"), Switches(kimi_chunk="128")).interval == 128

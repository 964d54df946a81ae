"""Dated provider facts: every figure that simulations rest on, looked up as calls name them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cacheaudit.providers import facts
from cacheaudit.simulate.machine import kind, kinds


def at(day: str) -> float:
    return dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC).timestamp()


def test_the_version_is_the_day_of_the_newest_fact() -> None:
    assert facts.newest().isoformat() == facts.RULES_VERSION


def test_every_row_has_source_day_and_confidence() -> None:
    for provider in facts.names():
        for fact in facts.all_facts(provider):
            assert fact.source, fact
            assert fact.confidence in ("high", "medium", "low"), fact
            assert dt.date(2024, 1, 1) <= fact.valid_from <= facts.newest(), fact


def test_every_provider_names_a_machine_that_exists() -> None:
    for provider in facts.names():
        named = {f.value for f in facts.all_facts(provider) if f.name == "machine"}
        assert named, provider
        assert named <= set(kinds()), provider
    assert all(kind(name).name == name for name in kinds())


MINIMA = {
    "claude-fable-5-2": 512, "claude-mythos-5-2": 512, "claude-haiku-5-5": 512,
    "claude-sonnet-5-5": 512, "claude-opus-5-5": 512, "claude-fable-5-1": 512,
    "claude-fable-5": 512, "claude-mythos-5": 512, "claude-opus-5": 512, "claude-sonnet-5": 1024,
    "claude-opus-4-8": 1024, "claude-sonnet-4-6": 1024, "claude-sonnet-4-5": 1024,
    "claude-opus-4-1": 1024, "claude-opus-4-20250514": 1024, "claude-sonnet-4-20250514": 1024,
    "claude-opus-4-7": 2048, "claude-mythos-preview": 2048, "claude-3-5-haiku-20241022": 2048,
    "claude-opus-4-6": 4096, "claude-opus-4-5": 4096, "claude-haiku-4-5": 4096,
}  # fmt: skip


@pytest.mark.parametrize(("model", "minimum"), MINIMA.items())
def test_minimum_sizes(model: str, minimum: int) -> None:
    found = facts.rules("anthropic", model)
    assert found is not None
    assert found.integer("minimum_tokens") == minimum


@pytest.mark.parametrize(
    ("provider", "model", "surface"),
    [
        ("bedrock", "us.anthropic.claude-opus-4-5-20251101-v1:0", None),
        ("bedrock", "global.anthropic.claude-opus-4-5-20251101-v1:0", None),
        ("openrouter", "anthropic/claude-opus-4.5", None),
        ("vertex", "claude-opus-4-5@20251101", None),
        ("anthropic", "claude-opus-4-5-20251101[1m]", "claude_api"),
        (None, "claude-opus-4-5", None),
    ],
)
def test_a_model_is_known_by_any_of_its_names(
    provider: str | None, model: str, surface: str | None
) -> None:
    found = facts.rules(provider, model, surface=surface)
    assert found is not None
    assert (found.provider, found.model) == ("anthropic", "claude-opus-4-5")
    assert found.integer("minimum_tokens") == 4096


def test_runs_count_as_one_from_september_on_and_on_the_claude_api_only() -> None:
    def collapse(day: str, surface: str) -> bool:
        found = facts.rules("anthropic", "claude-opus-5", at(day), surface)
        assert found is not None
        return found.flag("collapse_runs")

    assert not collapse("2026-08-25", "claude_api")
    assert not collapse("2026-02-01", "claude_api")
    assert collapse("2026-09-01", "claude_api")
    assert not collapse("2026-11-30", "bedrock")
    assert not collapse("2026-11-30", "google_cloud")


def test_surfaces_differ_where_they_do() -> None:
    bedrock = facts.rules("bedrock", "anthropic.claude-sonnet-4-6")
    api = facts.rules("anthropic", "claude-sonnet-4-6")
    assert bedrock is not None
    assert api is not None
    assert bedrock.integer("platform_minimum_tokens") == 2048
    assert api.value("platform_minimum_tokens") is None
    assert (bedrock.text("isolation"), api.text("isolation")) == ("organization", "workspace")
    assert (bedrock.flag("automatic_marker"), api.flag("automatic_marker")) == (False, True)


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        ("claude-opus-4-5", "all"), ("claude-sonnet-4-6", "all"), ("claude-haiku-5-5", "all"),
        ("claude-fable-5", "all"), ("claude-opus-4-1", "last_turn"),
        ("claude-sonnet-4-5", "last_turn"), ("claude-haiku-4-5", "last_turn"),
    ],
)  # fmt: skip
def test_thinking_that_is_kept(model: str, kept: str) -> None:
    found = facts.rules("anthropic", model)
    assert found is not None
    assert found.text("thinking_retention") == kept


@pytest.mark.parametrize(
    ("model", "machine"),
    [
        ("gpt-5.5", "openai_v1"), ("gpt-5.2-codex", "openai_v1"), ("o3", "openai_v1"),
        ("gpt-4o-2024-08-06", "openai_v1"), ("gpt-5.6-sol", "openai_v2"),
        ("gpt-6.1-terra", "openai_v2"),
    ],
)  # fmt: skip
def test_openai_changed_with_gpt_5_6(model: str, machine: str) -> None:
    found = facts.rules("openai", model)
    assert found is not None
    assert found.machine == machine


def test_an_unknown_openai_model_has_no_machine() -> None:
    found = facts.rules("openai", "gpt-7-nova")
    assert found is not None
    assert found.machine is None


def test_a_host_of_open_weights_follows_its_own_rules() -> None:
    found = facts.rules("groq", "openai/gpt-oss-120b")
    assert found is not None
    assert found.provider == "groq"


def test_nothing_is_known_of_strangers() -> None:
    assert facts.rules("acme", "acme-1") is None
    assert facts.rules(None, None) is None


@pytest.mark.shared
def test_the_figures_are_those_of_the_recorded_facts(shared: Path) -> None:
    """Minimum sizes, hidden tokens, lookback and lifetimes against the collected facts."""
    written: Mapping[str, Any] = yaml.safe_load(
        (shared / "facts" / "provider_rules.yaml").read_text()
    )
    claude = written["providers"]["anthropic"]
    for model, entry in claude["min_tokens_by_model"].items():
        found = facts.rules("anthropic", model)
        assert found is not None
        assert found.integer("minimum_tokens") == entry["value"], model
    hidden = claude["hidden_tokens"]["tool_use_system_prompt_auto_none__any_tool"]
    for model, pair in hidden.items():
        found = facts.rules("anthropic", model)
        if model != "source" and found is not None:
            assert found.value("hidden_tool_tokens") == pair, model
    found = facts.rules("anthropic", "claude-opus-5", surface="claude_api")
    assert found is not None
    assert found.integer("lookback_positions") == claude["lookback"]["positions"]
    assert found.integer("most_markers") == claude["max_breakpoints"]
    assert found.ttl_seconds() == claude["ttl"]["options_seconds"]
    assert found.text("clock") == claude["ttl"]["clock_starts"]
    assert found.text("isolation") == claude["isolation"]["claude_api"]
    qwen = facts.rules("qwen", "qwen4-max")
    assert qwen is not None
    assert (
        qwen.integer("minimum_tokens")
        == written["providers"]["alibaba_qwen"]["min_tokens"]["explicit"]
    )
    kimi = facts.rules("kimi", "kimi-k3")
    assert kimi is not None
    step = written["providers"]["moonshot_kimi"]["chunk_tokens_observed"]["value"]
    assert kimi.integer("chunk_tokens") == step
    groq = facts.rules("groq", "any")
    assert groq is not None
    assert groq.ttl_seconds()["idle"] == written["providers"]["groq"]["ttl"]["idle_seconds"]
    openai = facts.rules("openai", "gpt-6-sol")
    assert openai is not None
    v2 = written["providers"]["openai_gpt_5_6_and_later"]
    assert openai.ttl_seconds() == v2["ttl"]["options_seconds"]
    assert openai.text("lookup") == v2["lookup"]["use"]
    assert openai.integer("most_writes") == v2["max_writes_per_request"]
    block = written["providers"]["vllm"]["match"]["block_tokens"]
    local = facts.rules("vllm", "any")
    assert local is not None
    assert local.integer("kv_block_tokens") == block

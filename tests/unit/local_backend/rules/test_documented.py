"""Rules against the test vectors of the recorded facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from local_backend.rules import AnthropicRules, DeepSeekRules
from local_backend.rules.base import TTLS
from local_backend.rules.minimums import MINIMUMS
from tests.unit.local_backend.rules.build import ask, block, parts, prompt, run, texts

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def facts(shared: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((shared / "facts/provider_rules.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def vectors(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {vector["id"]: vector for vector in facts["test_vectors"]}


def test_lookback(vectors: dict[str, Any]) -> None:
    steps = vectors["lookback-doc"]["steps"]
    found = run(*((texts(s["blocks"], s["bp"]), n) for n, s in enumerate(steps)))
    assert [o.read for o in found] == [100 * (s["read_at"] or 0) for s in steps]
    assert [o.read + o.written for o in found] == [100 * s["write_at"][0] for s in steps]
    second = vectors["lookback-second-bp"]["step"]
    after = run(
        *((texts(s["blocks"], s["bp"]), n) for n, s in enumerate(steps[:2])),
        (texts(second["blocks"], second["bp"]), 3),
    )
    assert after[-1].read == 100 * second["read_at"]


def test_both_lifetimes(vectors: dict[str, Any]) -> None:
    usage = vectors["mixed-ttl"]["usage"]
    read, five, hour = usage["cache_read"], usage["write_5m"], usage["write_1h"]
    start = block("start", read, "1h")
    more = (block("hour", hour, "1h"), block("five", five, "5m"), block("x", usage["input_tokens"]))
    found = run((prompt(start), 0), (prompt(start, *more), 1))[1]
    assert parts(found) == (read, five, hour, usage["input_tokens"])


def test_the_clock_starts_with_the_request(vectors: dict[str, Any]) -> None:
    vector = vectors["ttl-start-clock"]
    for at, hit in ((vector["next_start_s"], True), (vector["next_start_miss_s"], False)):
        rules = AnthropicRules()
        ask(rules, texts(3, [3], 1000), vector["t0"], began=vector["generation_s"])
        assert (ask(rules, texts(3, [3], 1000), at).read == 3000) is hit


def test_keeping_alive(vectors: dict[str, Any]) -> None:
    vector = vectors["keepalive-measured"]
    asked = texts(3, [3], ttl=vector["ttl"])
    kept = run((asked, 0), (asked, vector["ping_s"]), (asked, vector["read_s"]))
    alone = run((asked, 0), (asked, vector["read_s"]))
    assert (kept[-1].read > 0, alone[-1].read > 0) == (vector["hit"], vector["control_hit"])


def test_warming_up(vectors: dict[str, Any]) -> None:
    usage = vectors["prewarm"]["usage"]
    asked = prompt(block("shared", usage["write_5m"], "5m"), block("?", usage["input_tokens"]))
    assert parts(run((asked, 0))[0]) == (0, usage["write_5m"], 0, usage["input_tokens"])


def test_a_common_beginning(vectors: dict[str, Any]) -> None:
    assert "request 3 hits A" in vectors["deepseek-common-prefix"]["steps"]
    rules, reads = DeepSeekRules(), []
    for number in range(3):
        tokens = (1,) * 640 + (10 + number,) * 300
        plan = rules.plan(prompt(id="m", tokens=tokens), number)
        reads.append(rules.began(plan, plan.read or 0, number + 0.5).read)
    assert reads == [0, 0, 640]


def test_the_facts_are_those_of_the_file(facts: dict[str, Any]) -> None:
    claude = facts["providers"]["anthropic"]
    assert dict(TTLS) == claude["ttl"]["options_seconds"]
    known = {m: row["value"] for m, row in claude["min_tokens_by_model"].items()}
    assert {model: MINIMUMS[model] for model in known} == known
    assert claude["lookback"]["positions"] == AnthropicRules().settings.positions

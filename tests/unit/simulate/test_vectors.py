"""The test vectors of the collected provider facts, each with its own figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.cost import cost
from cacheaudit.simulate.claude import ClaudeMachine, ClaudeRules
from cacheaudit.simulate.deepseek import DeepSeekMachine, DeepSeekRules
from cacheaudit.simulate.openai_v2 import OpenAIMachine, OpenAIRules
from cacheaudit.simulate.request import Outcome
from tests.unit.simulate.builders import blocks, request

pytestmark = pytest.mark.shared
Vector = Mapping[str, Any]
CLAUDE = ClaudeRules(minimum=0)
NEWEST = 1_795_996_800.0


def claude(*requests: Any) -> list[Outcome]:
    machine = ClaudeMachine()
    return [machine.step(one, CLAUDE) for one in requests]


def lookback(vector: Vector) -> None:
    asked = [
        request(blocks(step["blocks"]), [place - 1 for place in step["bp"]], at=10.0 * n, tokens=1)
        for n, step in enumerate(vector["steps"])
    ]
    for step, found in zip(vector["steps"], claude(*asked), strict=True):
        assert (found.read or None) == step["read_at"]
        assert found.read + found.written == step["write_at"][-1]


def second_marker(vector: Vector) -> None:
    step = vector["step"]
    marks = [place - 1 for place in step["bp"]]
    found = claude(
        request(blocks(15), [14], at=0, tokens=1),
        request(blocks(step["blocks"]), marks, at=10, tokens=1),
    )
    assert found[1].read == step["read_at"]


def tool_run(vector: Vector) -> None:
    assert vector["derived"]
    kinds = ["text", *["tool_use"] * 15, *["tool_result"] * 15]
    found = claude(request(["a"], [0], at=0), request(["a", *blocks(30)], [30], at=10, kinds=kinds))
    assert found[1].read == 100


def volatile_suffix(vector: Vector) -> None:
    assert "bp on 5" in vector["steps"]
    for mark, reads in ((5, [0, 0, 0]), (4, [0, 500, 500])):
        asked = [request([*blocks(5), f"now{n}"], [mark], at=10.0 * n) for n in range(3)]
        assert [found.read for found in claude(*asked)] == reads


def mixed(vector: Vector) -> None:
    usage = vector["usage"]
    read, five, hour = usage["cache_read"], usage["write_5m"], usage["write_1h"]
    names, sizes = ["a", "b", "c", "d"], [read, hour, five, usage["input_tokens"]]
    found = claude(
        request(["a"], [(0, "1h")], at=0, tokens=[read]),
        request(names, [(1, "1h"), (2, "5m")], at=10, tokens=sizes),
    )[1]
    assert (found.read, found.writes) == (read, {"1h": hour, "5m": five})
    assert found.uncached == usage["input_tokens"]


def clock(vector: Vector) -> None:
    first = request(["a"], [0], at=vector["t0"], first=2, end=vector["generation_s"])
    assert vector["hit"]
    assert claude(first, request(["a"], [0], at=vector["next_start_s"]))[1].read == 100
    assert claude(first, request(["a"], [0], at=vector["next_start_miss_s"]))[1].read == 0


def keep_alive(vector: Vector) -> None:
    times = [0, vector["ping_s"], vector["read_s"]]
    asked = [request(["a"], [(0, vector["ttl"])], at=at) for at in times]
    assert (claude(*asked)[2].read > 0) is vector["hit"]
    assert (claude(asked[0], asked[2])[1].read > 0) is vector["control_hit"]


def prewarm(vector: Vector) -> None:
    usage = vector["usage"]
    sizes = [usage["write_5m"], usage["input_tokens"]]
    found = claude(request(["s", "u"], [0], tokens=sizes, is_prewarm=True))[0]
    assert (found.writes, found.uncached) == ({"5m": usage["write_5m"]}, usage["input_tokens"])


def haiku(vector: Vector) -> None:
    for total, usd in (
        (vector["prompt"], vector["usd"]),
        (vector["prompt"] - 1, vector["at_100000_usd"]),
    ):
        read, written = vector["read"], vector["write_5m"]
        usage = Usage(
            total_input=total,
            uncached_input=total - read - written,
            cache_read=read,
            write_5m=written,
            output=vector["output"],
        )
        assert price("claude-haiku-5-5", usage) == Decimal(usd)


def opus(vector: Vector) -> None:
    usage = Usage(
        total_input=vector["fresh"] + vector["read"] + vector["write_5m"] + vector["write_1h"],
        uncached_input=vector["fresh"],
        cache_read=vector["read"],
        write_5m=vector["write_5m"],
        write_1h=vector["write_1h"],
        output=vector["output"],
        web_searches=vector["web_searches"],
    )
    assert price("claude-opus-5-5", usage) == Decimal(vector["usd"])
    assert price("claude-opus-5-5", usage, speed="fast") == Decimal(vector["fast_usd"])


def price(model: str, usage: Usage, speed: str | None = None) -> Decimal | None:
    card = PriceBook().card("anthropic", model, NEWEST, speed=speed, total_input=usage.total_input)
    assert card is not None
    return cost(usage, card).amount


def openai(vector: Vector) -> None:
    first, second = vector["req1"], vector["req2"]
    roles = ["developer", "user", "assistant", "user"]
    sizes = [2_000, first["input"] - 2_000, 500, second["input"] - first["input"] - 500]
    machine = OpenAIMachine()
    for count, expected in ((2, first), (4, second)):
        asked = request(
            blocks(count),
            at=20.0 * count,
            tokens=sizes[:count],
            roles=roles[:count],
            messages=list(range(count)),
        )
        found = machine.step(asked, OpenAIRules())
        assert (found.read, found.written) == (expected["cached"], expected["write"])


def deepseek(vector: Vector) -> None:
    assert "request 3 hits A" in vector["steps"]
    machine = DeepSeekMachine()
    asked = [request(["A", tail], at=10.0 * n, tokens=500) for n, tail in enumerate("BCD")]
    assert [machine.step(one, DeepSeekRules()).read for one in asked] == [0, 0, 500]


CHECKS: Mapping[str, Callable[[Vector], None]] = {
    "lookback-doc": lookback,
    "lookback-second-bp": second_marker,
    "lookback-tool-run": tool_run,
    "volatile-suffix": volatile_suffix,
    "mixed-ttl": mixed,
    "ttl-start-clock": clock,
    "keepalive-measured": keep_alive,
    "prewarm": prewarm,
    "haiku55-tier": haiku,
    "opus55-split": opus,
    "openai-56-implicit": openai,
    "deepseek-common-prefix": deepseek,
}


@pytest.mark.parametrize("name", CHECKS)
def test_vector(name: str, shared: Path) -> None:
    written = yaml.safe_load((shared / "facts" / "provider_rules.yaml").read_text())
    vectors = {vector["id"]: vector for vector in written["test_vectors"]}
    assert vectors.keys() == CHECKS.keys()
    CHECKS[name](vectors[name])

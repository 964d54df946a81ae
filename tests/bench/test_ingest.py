"""Speed, memory and exactness on a generated Claude Code corpus, beside other tools in one run.

``make bench`` runs it; ``CACHEAUDIT_BENCH_SIZE`` (500MB) and ``CACHEAUDIT_BENCH_REPEATS`` (4)
change it. Times are never judged by themselves: only ratios between tools that ran in turn on the
same machine, each taken at its best repetition.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fixtures.make.make_corpus import GENERATOR, Corpus, parse_size
from tests.bench.peers import NotAvailableError, Tool, ours, peers

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
SIZE = os.environ.get("CACHEAUDIT_BENCH_SIZE", "500MB")
REPEATS = int(os.environ.get("CACHEAUDIT_BENCH_REPEATS", "4"))
SEED = 1

# What must hold beside the best other tool of the same kind, in bytes per processor second.
USAGE_RATIO = 1.2
AUDIT_RATIO = 1.1
PEAK_MIB = 150
FLAT_MEMORY_RATIO = 1.35

pytestmark = pytest.mark.timeout(1800)


@dataclass(frozen=True)
class Cost:
    """What one run took."""

    cpu_s: float
    peak_mib: float
    code: int


def corpus_of(size: str) -> Path:
    """The corpus of a size, made where it is missing or of an older generator."""
    folder = CACHE / f"corpus{size.upper().removesuffix('MB')}"
    truth = folder / "truth.json"
    if truth.is_file():
        known = json.loads(truth.read_text())
        if (known["generator"], known["seed"]) == (GENERATOR, SEED):
            return folder
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    Corpus(folder, parse_size(size), SEED).write()
    return folder


@pytest.fixture(scope="module")
def corpus() -> Path:
    return corpus_of(SIZE)


@pytest.fixture(scope="module")
def truth(corpus: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((corpus / "truth.json").read_text())
    return found


@pytest.fixture(scope="module")
def others(corpus: Path) -> list[Tool]:
    try:
        return peers(CACHE / "peers", corpus)
    except NotAvailableError as error:
        pytest.skip(str(error))


def measure(tool: Tool, output: Path) -> Cost:
    report = output.with_suffix(".cost")
    command = [sys.executable, "-S", str(ROOT / "tests" / "bench" / "meter.py"), str(report)]
    environment = os.environ | {"HOME": str(output.parent)} | dict(tool.environment)
    subprocess.run([*command, str(output), *tool.command], check=True, env=environment)
    return Cost(**json.loads(report.read_text()))


def read(output: Path) -> Any:
    return json.loads(output.read_text(encoding="utf-8"))


def warm(corpus: Path) -> None:
    """Bring the corpus into the page cache, so that no tool pays for the disk."""
    for path in corpus.rglob("*.jsonl"):
        path.read_bytes()


def test_speed_beside_other_tools(
    corpus: Path, truth: dict[str, Any], others: list[Tool], tmp_path: Path
) -> None:
    tools = [*ours(sys.executable, corpus), *others]
    costs: dict[str, list[Cost]] = {tool.name: [] for tool in tools}
    warm(corpus)
    for repeat in range(REPEATS):
        # In turn, and in another order each time, so that a busy minute hits all alike.
        for tool in tools[repeat % len(tools) :] + tools[: repeat % len(tools)]:
            cost = measure(tool, tmp_path / f"{tool.name}.json")
            assert cost.code == 0, tool.name
            costs[tool.name].append(cost)

    megabytes = truth["bytes"] / 1e6
    speed = {name: megabytes / min(c.cpu_s for c in runs) for name, runs in costs.items()}
    peak = {name: max(c.peak_mib for c in runs) for name, runs in costs.items()}
    best = {does: best_other(others, speed, does) for does in ("totals", "audit")}
    print(f"\n{megabytes:.0f} MB, best of {REPEATS} interleaved repetitions")
    print(
        f"{'command':22} {'CPU s':>7} {'MB/CPU s':>9} {'of best':>8} {'peak MiB':>9}  off the truth"
    )
    for tool in tools:
        wrong = deviation(tool.totals(read(tmp_path / f"{tool.name}.json")), truth["totals"])
        print(
            f"{tool.name:22} {megabytes / speed[tool.name]:7.2f} {speed[tool.name]:9.0f} "
            f"{speed[tool.name] / best[tool.does]:8.2f} {peak[tool.name]:9.0f}  {wrong or 'exact'}"
        )
    assert speed["cacheaudit usage"] >= USAGE_RATIO * best["totals"]
    assert speed["cacheaudit audit"] >= AUDIT_RATIO * best["audit"]
    assert max(peak["cacheaudit usage"], peak["cacheaudit audit"]) <= PEAK_MIB


def best_other(others: list[Tool], speed: dict[str, float], does: str) -> float:
    return max(speed[tool.name] for tool in others if tool.does == does)


def deviation(found: dict[str, int], right: dict[str, Any]) -> str:
    wrong = (
        f"{name} {(value - right[name]) / right[name]:+.1%}"
        for name, value in found.items()
        if value != right[name]
    )
    return ", ".join(wrong)


def test_totals_and_bill_are_exact(corpus: Path, truth: dict[str, Any], tmp_path: Path) -> None:
    for tool in ours(sys.executable, corpus):
        output = tmp_path / "result.json"
        assert measure(tool, output).code == 0
        result = read(output)
        right = {name: truth["totals"][name] for name in tool.totals(result)}
        assert tool.totals(result) == right, tool.name
        assert result["totals"]["cost"]["computed"] == truth["totals"]["cost"]
        assert result["totals"]["cost"]["unpriced_calls"] == 0


@pytest.mark.parametrize("by", ["model", "session"])
def test_groups_are_exact(by: str, corpus: Path, truth: dict[str, Any], tmp_path: Path) -> None:
    tool = ours(sys.executable, corpus)[0]
    output = tmp_path / "result.json"
    grouped = Tool(tool.name, tool.does, (*tool.command, "--by", by), tool.totals)
    assert measure(grouped, output).code == 0
    found = {
        group["key"]: (*tool.totals(group).values(), group["totals"]["cost"]["computed"])
        for group in read(output)["groups"]
    }
    # A tier that nothing was written to is reported as zero or as not known.
    found = {key: tuple(value or 0 for value in row) for key, row in found.items()}
    right = {
        key: (*(row[name] for name in list(row)[:-1]), row["cost"])
        for key, row in truth[f"by_{by}"].items()
    }
    if by == "session":
        # A copied call stands in two sessions: which of them counts it is a matter of taste.
        found, right = (joined(rows, truth["copies"]) for rows in (found, right))
    assert found == right


def joined(rows: dict[str, tuple[Any, ...]], copies: dict[str, str]) -> dict[str, Any]:
    """Add up each session with the one that repeats it."""
    rows = dict(rows)
    for copy, original in copies.items():
        pair = [rows.pop(name) for name in (original, copy) if name in rows]
        rows[original] = tuple(sum(map(Decimal, column)) for column in zip(*pair, strict=True))
    return rows


def test_no_event_on_healthy_calls_and_every_expiry_is_found(
    corpus: Path, truth: dict[str, Any], tmp_path: Path
) -> None:
    output = tmp_path / "result.json"
    assert measure(ours(sys.executable, corpus)[1], output).code == 0
    planted = {event["message_id"]: event["cause"] for event in truth["events"]}
    named: dict[str, set[str]] = {}
    false: Counter[str] = Counter()
    for finding in read(output)["findings"]:
        if finding["kind"] != "loss":
            continue
        for call in finding["calls"]:
            if call in planted:
                named.setdefault(planted[call], set()).add(finding["name"])
            else:
                false[finding["name"]] += 1
    print("\ncause: rules that name it")
    for cause in sorted(named):
        print(f"  {cause}: {', '.join(sorted(named[cause]))}")
    assert not false
    for cause in ("ttl_expired_1h", "ttl_expired_5m"):
        assert named[cause] == {"ttl-expired"}
    assert named["ttl_long_request"] == {"ttl-used-up-by-long-request"}
    assert named["compaction"] == {"compacted"}


def test_memory_does_not_grow_with_the_corpus(corpus: Path, tmp_path: Path) -> None:
    small = corpus_of("50MB")
    for large_tool, small_tool in zip(
        ours(sys.executable, corpus), ours(sys.executable, small), strict=True
    ):
        large = measure(large_tool, tmp_path / "large.json").peak_mib
        little = measure(small_tool, tmp_path / "small.json").peak_mib
        print(f"\n{large_tool.name}: {little:.0f} MiB for 50 MB, {large:.0f} MiB for {SIZE}")
        assert large <= FLAT_MEMORY_RATIO * little

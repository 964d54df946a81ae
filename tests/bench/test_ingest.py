"""Speed, memory and exactness on generated Claude Code corpora, beside other tools in one run.

``make bench`` runs it. It can be changed by the environment:

- ``CACHEAUDIT_BENCH_SIZE``: bytes of each corpus (500MB).
- ``CACHEAUDIT_BENCH_LINES``: mean bytes of their lines, one corpus for each (``drawn,5000``;
  ``drawn`` leaves the lengths as drawn, about 3,100).
- ``CACHEAUDIT_BENCH_REPEATS``: repetitions (4).

Times are never judged by themselves: only ratios between tools that ran in turn on the same
machine, each taken at its best repetition. Every repetition has a fresh copy of the corpus, since
the same reads cost more from files that were cached long ago; the row ``reading alone`` says what
reading costs at that time, and the column ``x reading`` how many times that a tool takes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.bench.corpora import DRAWN, corpus_of, line_sizes, renew
from tests.bench.peers import NotAvailableError, Tool, ours, peers, reading

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
SIZE = os.environ.get("CACHEAUDIT_BENCH_SIZE", "500MB")
LINES = line_sizes(os.environ.get("CACHEAUDIT_BENCH_LINES", f"{DRAWN},5000"))
REPEATS = int(os.environ.get("CACHEAUDIT_BENCH_REPEATS", "4"))

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


@pytest.fixture(scope="module", params=LINES, ids=lambda size: f"lines {size or DRAWN}")
def line_size(request: pytest.FixtureRequest) -> int | None:
    size: int | None = request.param
    return size


@pytest.fixture(scope="module")
def corpus(line_size: int | None) -> Path:
    return corpus_of(CACHE, SIZE, line_size)


@pytest.fixture(scope="module")
def truth(corpus: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((corpus / "truth.json").read_text())
    return found


@pytest.fixture
def copy() -> Iterator[Path]:
    """Where copies of a corpus go, one after another: on its disk, which has room for it."""
    folder = Path(tempfile.mkdtemp(prefix="copy-", dir=CACHE))
    yield folder / "corpus"
    shutil.rmtree(folder)


@pytest.fixture
def others(copy: Path) -> list[Tool]:
    try:
        return peers(CACHE / "peers", copy, copy.parent / "home")
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


def test_speed_beside_other_tools(
    corpus: Path, truth: dict[str, Any], copy: Path, others: list[Tool], tmp_path: Path
) -> None:
    floor = reading(sys.executable, copy)
    tools = [floor, *ours(sys.executable, copy), *others]
    costs: dict[str, list[Cost]] = {tool.name: [] for tool in tools}
    for repeat in range(REPEATS):
        renew(copy, corpus)
        # In turn, and in another order each time, so that a busy minute hits all alike.
        for tool in tools[repeat % len(tools) :] + tools[: repeat % len(tools)]:
            cost = measure(tool, tmp_path / f"{tool.name}.json")
            assert cost.code == 0, tool.name
            costs[tool.name].append(cost)

    megabytes = truth["bytes"] / 1e6
    cpu = {name: min(c.cpu_s for c in runs) for name, runs in costs.items()}
    speed = {name: megabytes / seconds for name, seconds in cpu.items()}
    peak = {name: max(c.peak_mib for c in runs) for name, runs in costs.items()}
    best = {does: best_other(others, speed, does) for does in ("totals", "audit")}
    print(
        f"\n{megabytes:.0f} MB, {truth['lines']:,} lines of {truth['bytes'] // truth['lines']:,} "
        f"bytes, {truth['totals']['calls']:,} calls, best of {REPEATS} interleaved repetitions, "
        "each on a fresh copy"
    )
    print(
        f"{'command':22} {'CPU s':>7} {'MB/CPU s':>9} {'of best':>8} {'x reading':>10} "
        f"{'peak MiB':>9}  off the truth"
    )
    right = truth["totals"] | {"bytes": truth["bytes"]}
    for tool in tools:
        wrong = deviation(tool.totals(read(tmp_path / f"{tool.name}.json")), right)
        of_best = f"{speed[tool.name] / best[tool.does]:.2f}" if tool.does in best else ""
        print(
            f"{tool.name:22} {cpu[tool.name]:7.2f} {speed[tool.name]:9.0f} {of_best:>8} "
            f"{cpu[tool.name] / cpu[floor.name]:10.1f} {peak[tool.name]:9.0f}  {wrong or 'exact'}"
        )
    assert floor.totals(read(tmp_path / f"{floor.name}.json")) == {"bytes": truth["bytes"]}
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


def test_memory_does_not_grow_with_the_corpus(
    corpus: Path, line_size: int | None, tmp_path: Path
) -> None:
    small = corpus_of(CACHE, "50MB", line_size)
    for large_tool, small_tool in zip(
        ours(sys.executable, corpus), ours(sys.executable, small), strict=True
    ):
        large = measure(large_tool, tmp_path / "large.json").peak_mib
        little = measure(small_tool, tmp_path / "small.json").peak_mib
        print(f"\n{large_tool.name}: {little:.0f} MiB for 50 MB, {large:.0f} MiB for {SIZE}")
        assert large <= FLAT_MEMORY_RATIO * little

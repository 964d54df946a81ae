"""The dialects on real session files: totals known of them, no contradiction anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.dialects.after import reported_cost
from cacheaudit.dialects.detect import normalise
from cacheaudit.model.usage import Usage

pytestmark = pytest.mark.shared


def rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        value = json.loads(line)
        if isinstance(value, dict):
            yield value


def expected(shared: Path, name: str) -> dict[str, Any]:
    found = json.loads((shared / "data" / "expected.json").read_text())["files"][name]
    assert isinstance(found, dict)
    return found


def read(record: dict[str, Any], dialect: str) -> Usage:
    usage = normalise(record)
    assert usage is not None
    assert (usage.dialect, usage.flags) == (dialect, ())
    return usage


def total(usages: list[Usage], field: str) -> int:
    return sum(getattr(usage, field) or 0 for usage in usages)


@pytest.mark.parametrize("letter", ["a", "b", "c", "d"])
def test_claude_code(shared: Path, letter: str) -> None:
    name = f"sessions/claude_code/{letter}.jsonl"
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows(shared / "data" / name):
        message = row.get("message")
        if row.get("type") != "assistant" or not isinstance(message, dict):
            continue
        if message.get("model") == "<synthetic>" or not message.get("usage"):
            continue
        key = (message["id"], row.get("requestId"))
        old = best.get(key)
        if old is None or message["usage"]["output_tokens"] > old["output_tokens"]:
            best[key] = message["usage"]
    usages = [read(record, "anthropic") for record in best.values()]
    want = expected(shared, name)
    assert len(usages) == want["requests"]
    assert total(usages, "uncached_input") == want["uncached_input"]
    assert total(usages, "cache_read") == want["cache_read"]
    assert total(usages, "write_5m") == want["cache_write_5m"]
    assert total(usages, "write_1h") == want["cache_write_1h"]
    assert total(usages, "output") == want["output"]
    assert total(usages, "write_other") == 0


@pytest.mark.parametrize("letter", ["a", "b"])
def test_pi(shared: Path, letter: str) -> None:
    name = f"sessions/pi/{letter}.jsonl"
    usages: list[Usage] = []
    cost = Decimal(0)
    for row in rows(shared / "data" / name):
        message = row.get("message")
        if isinstance(message, dict) and isinstance(message.get("usage"), dict):
            usages.append(read(message["usage"], "pi"))
            cost += reported_cost(message["usage"]) or Decimal(0)
    want = expected(shared, name)
    assert len(usages) == want["requests"]
    assert total(usages, "uncached_input") == want["uncached_input"]
    assert total(usages, "cache_read") == want["cache_read"]
    assert total(usages, "write_other") == want["cache_write"]
    assert total(usages, "output") == want["output"]
    assert round(cost, 6) == Decimal(want["stored_cost_usd"])


@pytest.mark.parametrize("letter", ["a", "b"])
def test_codex(shared: Path, letter: str) -> None:
    name = f"sessions/codex/{letter}.jsonl"
    usages: list[Usage] = []
    running: Any = None
    for row in rows(shared / "data" / name):
        payload = row.get("payload")
        info = payload.get("info") if isinstance(payload, dict) else None
        if not isinstance(info, dict) or info.get("total_token_usage") == running:
            continue
        running = info["total_token_usage"]
        usages.append(read(info["last_token_usage"], "codex"))
    want = expected(shared, name)
    assert len(usages) == want["calls"]
    assert total(usages, "uncached_input") == want["uncached_input"]
    assert total(usages, "cache_read") == want["cache_read"]
    assert total(usages, "output") == want["output"]

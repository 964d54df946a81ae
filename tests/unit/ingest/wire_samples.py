"""What the tests of the recording and export sources share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Call
from cacheaudit.model.ports import Source

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
WIRE = FIXTURES / "wire"
SESSIONS = FIXTURES / "sessions"
SECRET = "sk-ant-not-a-real-key"


def read(source: Source, path: Path) -> tuple[list[Call], dict[str, int]]:
    """Read a whole file; returns the calls and the problems by kind."""
    problems = Problems()
    calls = list(source.read(path, problems))
    return calls, {kind: count for kind, count, _ in problems.items()}


def examples(source: Source, path: Path, kind: str) -> tuple[str, ...]:
    """Return the examples that were kept of one kind of problem."""
    problems = Problems()
    for _ in source.read(path, problems):
        pass
    return next((found for name, _, found in problems.items() if name == kind), ())


def parts(call: Call) -> tuple[int | None, ...]:
    """Return uncached input, read, 5-minute, 1-hour and unlabelled writes, output."""
    usage = call.usage
    assert usage is not None
    return (
        usage.uncached_input,
        usage.cache_read,
        usage.write_5m,
        usage.write_1h,
        usage.write_other,
        usage.output,
    )


def lines(path: Path, records: Iterable[Any]) -> Path:
    """Write JSON lines; text is written as it is."""
    path.write_text(
        "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records),
        encoding="utf-8",
    )
    return path


def deep(depth: int = 100_000) -> str:
    """Return JSON that is nested deeper than any decoder goes."""
    return '{"a":' * depth + "1" + "}" * depth


def request(*texts: str, **more: Any) -> dict[str, Any]:
    """Make a Messages API body."""
    roles = ("user", "assistant")
    turns = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"model": "claude-opus-5", "system": "Be brief.", "messages": turns, **more}


def response(ident: str, **usage: Any) -> dict[str, Any]:
    """Make a Messages API response."""
    whole = {
        "input_tokens": 3,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0,
        "output_tokens": 9,
        **usage,
    }
    content = [{"type": "text", "text": "Yes."}]
    return {"id": ident, "model": "claude-opus-5", "content": content, "usage": whole}

"""What the tests of the agent sources share: samples, a reader, and damage done to them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from cacheaudit.ingest.detect import detect, head_of
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Call
from cacheaudit.model.ports import Source

SAMPLES = Path(__file__).resolve().parents[3] / "fixtures" / "sessions" / "agents"
COUNTS = (
    "total_input",
    "uncached_input",
    "cache_read",
    "write_5m",
    "write_1h",
    "write_30m",
    "write_12h",
    "write_other",
    "output",
    "reasoning",
)


def read(source: Source, path: Path) -> tuple[list[Call], Problems]:
    """Read a whole file."""
    problems = Problems()
    return list(source.read(path, problems)), problems


def kinds(problems: Problems) -> dict[str, int]:
    """Return the counts by kind."""
    return {kind: count for kind, count, _ in problems.items()}


def parts(call: Call) -> tuple[int | None, ...]:
    """Return (uncached, read, written, output) of a call."""
    usage = call.usage
    assert usage is not None
    return usage.uncached_input, usage.cache_read, usage.cache_write, usage.output


def assert_claims(source: Source, *files: Path) -> None:
    """The source, and no other, is chosen for the files by their content."""
    for file in files:
        chosen = detect(head_of(file))
        assert chosen is not None, file
        assert chosen.name == source.name, file


def assert_sound(calls: list[Call]) -> None:
    """Whatever the file held: counts are unknown or whole, and the parts make up the input."""
    for call in calls:
        assert call.id
        assert call.origin is not None
        if call.usage is None:
            continue
        for name in COUNTS:
            value = getattr(call.usage, name)
            assert value is None or (type(value) is int and value >= 0), name
        usage = call.usage
        if None not in (usage.total_input, usage.uncached_input, usage.cache_read):
            summed = usage.uncached_input + usage.cache_read + (usage.cache_write or 0)
            assert usage.total_input == summed
        if call.start_span is not None:
            assert call.start_span.low <= call.start_span.high


_WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**20),
    st.floats(),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
    st.just([{"type": 1}]),
    st.just({"a": -1}),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    steps = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in steps:
        found += _places(inner, (*path, key))
    return found


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """Replace or remove some values anywhere inside a JSON value."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        places = _places(value)
        if not places:
            break
        *above, last = draw(st.sampled_from(places))
        holder = value
        for step in above:
            holder = holder[step]
        if draw(st.booleans()):
            holder[last] = copy.deepcopy(draw(_WRONG))
        else:
            del holder[last]
    return value


def lines_of(path: Path) -> list[Any]:
    """Decode a file of one JSON value a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, values: list[Any]) -> Path:
    """Write one JSON value a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def write_document(path: Path, value: Any) -> Path:
    """Write one JSON value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path

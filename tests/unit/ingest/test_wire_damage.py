"""Values of any type anywhere in a record raise nothing, and leave the other records alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.detect import all_sources
from tests.unit.ingest.agent_samples import assert_sound, damaged, lines_of, read, write_lines
from tests.unit.ingest.wire_samples import SESSIONS, WIRE

SAMPLES: dict[str, list[Any]] = {
    "native": lines_of(SESSIONS / "demo.session.jsonl")[:2],
    "usage_log": lines_of(SESSIONS / "plain.jsonl"),
    "http_capture": lines_of(WIRE / "capture.jsonl"),
    "litellm": lines_of(WIRE / "litellm.jsonl"),
    "langfuse": lines_of(WIRE / "langfuse.jsonl"),
    "otel": [*lines_of(WIRE / "otlp.jsonl"), *lines_of(WIRE / "client-events.jsonl")],
    "har": [json.loads((WIRE / "browser.har").read_text())],
    "vcr": [json.loads((WIRE / "cassette.json").read_text())],
}


@pytest.mark.parametrize("name", list(SAMPLES))
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_damaged_values_cost_their_record_only(
    name: str, data: st.DataObject, tmp_path: Path
) -> None:
    source = next(source for source in all_sources() if source.name == name)
    records = SAMPLES[name]
    hurt = data.draw(damaged(records))
    whole = tmp_path / "x.jsonl"
    if name in ("har", "vcr"):
        calls, _ = read(source, write_lines(whole, hurt))
        assert_sound(calls)
        return
    intact, _ = read(source, write_lines(whole, records))
    calls, _ = read(source, write_lines(whole, [*hurt, *records]))
    assert_sound(calls)
    if name != "otel":  # there a damaged record may be the repetition of a later one
        tail = calls[len(calls) - len(intact) :]
        assert [(c.id, c.usage) for c in tail if c.origin and "#" not in c.id] == [
            (c.id, c.usage) for c in intact if "#" not in c.id
        ]

"""No field of the model is forgotten by the tables or by the written form."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from cacheaudit.model.call import Boundary, Call, CallError, MissReason, Origin, Span
from cacheaudit.model.delta import Entry, Settings
from cacheaudit.model.prompt import ContentBlock, Prompt
from cacheaudit.model.record import _EXACT, _PLAIN, _TIMES
from cacheaudit.model.usage import Usage, UsagePart
from cacheaudit.store.rows import call_from, call_row, part_rows

BUILT_APART = {"usage", "prompt", "session"}
SAMPLES = {
    "id": "i",
    "session": "s",
    "lane": "l",
    "parent": "p",
    "task": "t",
    "purpose": "retry",
    "provider": "pr",
    "surface": "su",
    "model": "m",
    "started_at": 1.5,
    "start_span": Span(1.0, 2.0),
    "first_token_at": 2.5,
    "ended_at": 3.5,
    "attempt": 3,
    "diagnostics": MissReason("model_changed", 4),
    "stop_reason": "end_turn",
    "error": CallError("overloaded_error", 529, "m"),
    "tool_seconds": 0.5,
    "outcome": "accepted",
    "reported_cost": Decimal("1.50"),
    "currency": "EUR",
    "client": "c 1",
    "boundaries": (Boundary("compaction", 1.0, "auto", 9),),
    "origin": Origin("f", 4),
    "dedupe_key": "k",
    "relative_time": True,
    "requests": None,
    "extra": {"x": 1},
}


def test_the_sample_covers_every_field() -> None:
    assert set(SAMPLES) | BUILT_APART == set(Call.__struct_fields__)
    defaults = {name: getattr(Call(id="other"), name) for name in SAMPLES}
    assert all(SAMPLES[name] != defaults[name] for name in SAMPLES)


@pytest.mark.parametrize("usage", [None, Usage(), Usage(output=1)])
def test_every_field_goes_through_a_row(usage: Usage | None) -> None:
    call = Call(**SAMPLES, usage=usage)
    row = call_row(call, with_text=True)
    row["boundaries"] = msgspec.to_builtins(row["boundaries"])
    assert call_from(row, "s", part_rows(b"k", usage), None) == call


def test_every_count_goes_through_a_row() -> None:
    """One different number a field, so that no two can be mixed up."""
    numbers = iter(range(1, 100))
    part = _filled(UsagePart, numbers)
    usage = msgspec.structs.replace(_filled(Usage, numbers), parts=(part, UsagePart(kind="x")))
    call = Call(id="i", session="s", usage=usage)
    row = call_row(call, with_text=False)
    assert call_from(row, "s", part_rows(b"k", usage), None) == call


def _filled(kind: type[msgspec.Struct], numbers: object) -> msgspec.Struct:
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        if field.type == int | None:
            values[field.name] = next(numbers)  # type: ignore[call-overload]
        elif field.name == "write_other_ttl":
            values[field.name] = "1h"
        elif field.name == "flags":
            values[field.name] = ("negative_part",)
        elif field.name != "parts":
            values[field.name] = field.name
    return kind(**values)


def test_the_written_form_holds_every_field_of_a_call() -> None:
    in_response = {"stop_reason", "error", "usage", "prompt"}
    assert {*_PLAIN, *_TIMES, *_EXACT} | in_response == set(Call.__struct_fields__)


def test_lists_and_settings_hold_every_field_of_a_prompt() -> None:
    beside = {"tokens", "tokens_origin", "marker"}
    texts = {"canonical", "canonical_bytes"}
    entry = set(Entry.__struct_fields__) - {"prefix", "size"}
    assert entry | beside | texts == set(ContentBlock.__struct_fields__)
    own = set(Settings.__struct_fields__) - {"markers", "tokens", "origins"}
    derived = {"prefix_digests", "marked"}
    assert own | {"blocks"} | derived == set(Prompt.__struct_fields__)

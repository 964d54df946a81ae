from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.jobs.diff import excerpts, mask
from tests.unit.cli.helpers import run

SECRET = "Nobody but Ada Quill knows 4711"


def body(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "model": "claude-sonnet-4-6",
        "system": [{"type": "text", "text": "It is 2026-11-03. " + SECRET}],
        "tools": [{"name": "read", "description": "r", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
    }
    made.update(changes)
    return made


def write(folder: Path, name: str, value: Any) -> str:
    file = folder / name
    file.write_text(json.dumps(value))
    return str(file)


def compare(folder: Path, a: Any, b: Any, *options: str) -> dict[str, Any]:
    first, second = write(folder, "a.json", a), write(folder, "b.json", b)
    result = run(folder, "diff", first, second, "--json", *options)
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["schema"] == "cacheaudit.diff/1"
    return document


def test_equal_requests(tmp_path: Path) -> None:
    marked = body()
    marked["system"] = [{**marked["system"][0], "cache_control": {"type": "ephemeral"}}]
    found = compare(tmp_path, body(), marked)
    assert found["equal"] is True
    assert found["relation"] == "equal"
    assert found["first_change"] is None
    assert found["cost"] is None
    assert {k: found["common"][k] for k in ("tools", "system", "messages")} == {
        "tools": 1,
        "system": 1,
        "messages": 2,
    }


def test_appending_loses_nothing(tmp_path: Path) -> None:
    longer = body(messages=[*body()["messages"], {"role": "user", "content": "three"}])
    found = compare(tmp_path, body(), longer)
    assert (found["relation"], found["equal"], found["first_change"]) == ("extends", False, None)
    back = compare(tmp_path, longer, body())
    assert back["relation"] == "truncates"


def test_a_change_has_place_kind_and_price(tmp_path: Path) -> None:
    later = body(system=[{"type": "text", "text": "It is 2026-11-04. " + SECRET}])
    found = compare(tmp_path, body(), later)
    change = found["first_change"]
    assert found["relation"] == "changed"
    assert (change["level"], change["path"], change["kind"]) == ("system", "system[0]", "edited")
    assert change["byte_offset"] == len("It is 2026-11-0")
    assert found["common"]["messages"] == 2
    # A write of sonnet is 3.75, a read 0.30, for a million tokens.
    tokens = change["tokens_after"]
    assert found["cost"]["amount"] == f"{tokens * 345 / 100_000_000:.8f}".rstrip("0")
    assert found["cost"]["currency"] == "USD"


def test_the_lifetime_of_the_marker_sets_the_price(tmp_path: Path) -> None:
    later = body(system="other")
    later["messages"][-1] = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "two", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        ],
    }
    found = compare(tmp_path, body(), later)
    assert found["cost"]["write_ttl"] == "1h"
    tokens = found["first_change"]["tokens_after"]
    # 6 for a write that lives an hour, 0.30 for a read: 1.9 ordinary input tokens each.
    assert float(found["cost"]["input_equivalents"]) == pytest.approx(tokens * 1.9)


def test_an_unknown_model_has_no_price_but_a_reason(tmp_path: Path) -> None:
    found = compare(tmp_path, body(model="nobody-1"), body(model="nobody-1", system="x"))
    assert found["cost"] is None
    assert "nobody-1" in found["cost_reason"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_text_of_prompts_is_masked_unless_asked_for(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    a = write(tmp_path, "a.json", body())
    b = write(tmp_path, "b.json", body(system=[{"type": "text", "text": SECRET}]))
    shown = run(tmp_path, "diff", a, b, *options)
    assert shown.exit_code == 0
    for word in ("Nobody", "Ada", "Quill", "4711", "2026-11-03"):
        assert word not in shown.stdout
    assert "9999-99-99" in shown.stdout
    assert "Quill" in run(tmp_path, "diff", a, b, "--show-text", *options).stdout


@given(st.text(), st.text())
def test_an_excerpt_marks_what_differs(old: str, new: str) -> None:
    before, after = excerpts(old, new)
    assert before is not None
    assert after is not None
    if old == new:
        assert "⟦⟧" in before
    for text, shown in ((old, before), (new, after)):
        inside = shown.partition("⟦")[2].rpartition("⟧")[0]
        if not any(sign in text for sign in "⟦⟧…"):
            assert inside in text


@given(st.text())
def test_a_mask_keeps_the_shape_and_no_letter(text: str) -> None:
    masked = mask(text)
    assert len(masked) == len(text)
    assert not {c for c in masked if c.isalnum()} - {"x", "X", "9"}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "r.session.jsonl"
    rows = [
        {
            "schema": "cacheaudit.call/1",
            "id": f"call-{number}",
            "session": "s",
            "lane": "main",
            "provider": "anthropic",
            "model": "claude-sonnet-4-6",
            "started_at": f"2026-11-03T10:0{number}:00Z",
            "request": body(system=f"system {number // 2}"),
            "content_tokens": [100, 200, 30, 4],
            "response": {"usage": {"input_tokens": 334, "output_tokens": 1}},
        }
        for number in (1, 2, 3)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_calls_of_a_recording_by_id_and_by_line(tmp_path: Path, recording: Path) -> None:
    by_id = run(tmp_path, "diff", f"{recording}#call-1", f"{recording}#call-2", "--json")
    by_line = run(tmp_path, "diff", f"{recording}#1", f"{recording}#2", "--json")
    first, second = json.loads(by_id.stdout), json.loads(by_line.stdout)
    assert first["first_change"] == second["first_change"]
    assert first["first_change"]["path"] == "system[0]"
    assert first["first_change"]["tokens_after"] == 234
    assert first["first_change"]["tokens_origin"] == "recorded"
    # 234 tokens, each 3.75 - 0.30 for a million.
    assert first["cost"]["amount"] == "0.0008073"
    same = run(tmp_path, "diff", f"{recording}#2", f"{recording}#3", "--json")
    assert json.loads(same.stdout)["equal"] is True


@pytest.mark.parametrize("place", ["#9", "#call-9", ""])
def test_a_call_that_is_not_there(tmp_path: Path, recording: Path, place: str) -> None:
    result = run(tmp_path, "diff", f"{recording}#1", f"{recording}{place}")
    assert result.exit_code == 2
    assert str(recording) in result.stderr


def test_a_recording_without_requests(tmp_path: Path) -> None:
    file = tmp_path / "r.session.jsonl"
    row = {"schema": "cacheaudit.call/1", "id": "a", "started_at": 1e9, "response": {"usage": {}}}
    file.write_text(json.dumps(row) + "\n")
    result = run(tmp_path, "diff", f"{file}#a", f"{file}#a")
    assert result.exit_code == 2
    assert "without its request" in result.stderr


def test_what_is_no_request(tmp_path: Path) -> None:
    a = write(tmp_path, "a.json", body())
    b = write(tmp_path, "b.json", {"messages": "no list"})
    result = run(tmp_path, "diff", a, b)
    assert result.exit_code == 2
    assert "b.json" in result.stderr


CONTINUED = {"type": "continue", "previous_message_id": "m0"}


@pytest.mark.parametrize(
    "short",
    [
        {"model": "claude-opus-5", "thread": CONTINUED, "messages": body()["messages"]},
        {"model": "gpt-6-sol", "previous_response_id": "r0", "input": "next"},
    ],
)
def test_a_request_whose_thread_is_not_there_is_not_compared(
    tmp_path: Path, short: dict[str, Any]
) -> None:
    whole, alone = write(tmp_path, "a.json", body()), write(tmp_path, "b.json", short)
    record = {"schema": "cacheaudit.call/1", "id": "m1", "started_at": 1, "request": short}
    recorded = write(tmp_path, "c.session.jsonl", record)
    for place in (alone, f"{recorded}#m1"):
        for pair in ((whole, place), (place, whole)):
            result = run(tmp_path, "diff", *pair, "--json")
            assert result.exit_code == 2, result.stdout
            assert "what its thread adds" in result.stderr
            assert "r0" in result.stderr or "m0" in result.stderr


def test_a_list_of_bodies(tmp_path: Path) -> None:
    file = write(tmp_path, "all.json", [body(), body(system="x")])
    document = json.loads(run(tmp_path, "diff", f"{file}#1", f"{file}#2", "--json").stdout)
    assert document["first_change"]["path"] == "system[0]"


# file, tools, system and message that are equal; from the description of the recorded data. Two
# pairs differ in a marker only where the description counts raw bytes; no cache sees that.
CAPTURES = [
    ("harvested-append-after-change-s-628f31b605ed-323.jsonl", 503, "changed"),
    ("harvested-replace-edit-s-157bd37224d7-20.jsonl", 5, "extends"),
    ("harvested-splice-insert-mid-s-157bd37224d7-19.jsonl", 2, "extends"),
    ("corpus-compaction.jsonl", 1, "changed"),
    ("corpus-edit.jsonl", 2, "changed"),
    ("corpus-prune.jsonl", 1, "changed"),
    ("corpus-sidecar.jsonl", 0, "changed"),
    ("corpus-splice.jsonl", 2, "changed"),
]


@pytest.mark.shared
@pytest.mark.parametrize(("name", "messages", "relation"), CAPTURES)
def test_recorded_captures(
    tmp_path: Path, shared: Path, name: str, messages: int, relation: str
) -> None:
    file = shared / "data" / "captures" / name
    result = run(tmp_path, "diff", f"{file}#1", f"{file}#2", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["common"]["messages"] == messages
    assert found["relation"] == relation


@pytest.mark.shared
def test_an_added_tool_is_found_although_every_message_is_equal(
    tmp_path: Path, shared: Path
) -> None:
    file = shared / "data" / "captures" / "corpus-tooladd.jsonl"
    found = json.loads(run(tmp_path, "diff", f"{file}#2", f"{file}#3", "--json").stdout)
    assert found["first_change"]["level"] == "tools"
    assert found["first_change"]["kind"] == "added"
    assert found["common"]["messages"] == 3

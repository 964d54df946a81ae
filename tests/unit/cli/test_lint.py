"""``cacheaudit lint``: files in, exit codes and JSON out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.helpers import process, run
from tests.unit.jobs.lint_bodies import HOUR, LONG, MARK, body, text, tool, turn

REFUSED = body(
    tools=[tool("a", cache_control=MARK)], messages=[turn(text("q", cache_control=HOUR))]
)
WASTEFUL = body(messages=[turn(text("q"))])
PATH = "messages[0].content[0].cache_control"


def write(folder: Path, name: str, *values: Any) -> str:
    file = folder / name
    file.write_text("\n".join(json.dumps(value) for value in values))
    return str(file)


def lint(folder: Path, *args: str, code: int = 0) -> dict[str, Any]:
    result = run(folder, "lint", "--json", *args)
    assert result.exit_code == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["schema"] == "cacheaudit.lint/1"
    return document


def test_exit_codes(tmp_path: Path) -> None:
    assert lint(tmp_path, write(tmp_path, "a.json", body()))["problems"] == []
    [wasteful] = lint(tmp_path, write(tmp_path, "b.json", WASTEFUL))["problems"]
    assert (wasteful["rule"], wasteful["level"]) == ("no-marker", "wasteful")
    [refused] = lint(tmp_path, write(tmp_path, "c.json", REFUSED), code=1)["problems"]
    assert (refused["level"], refused["path"]) == ("refused", PATH)
    assert "file" not in refused


def test_several_files_are_named(tmp_path: Path) -> None:
    a, b = write(tmp_path, "a.json", REFUSED), write(tmp_path, "b.json", WASTEFUL)
    found = lint(tmp_path, a, b, code=1)
    assert found["requests"] == 2
    assert [(p["file"], p["rule"]) for p in found["problems"]] == [
        (a, "marker-lifetimes-out-of-order"),
        (b, "no-marker"),
    ]


def test_lines_lists_batches_and_fragments(tmp_path: Path) -> None:
    lines = write(tmp_path, "r.jsonl", {"id": "x", "request": body()}, {"body": REFUSED})
    [item] = lint(tmp_path, lines, code=1)["problems"]
    assert item["file"] == f"{lines}#2"
    assert lint(tmp_path, f"{lines}#1")["problems"] == []
    assert lint(tmp_path, f"{lines}#x")["problems"] == []
    [item] = lint(tmp_path, f"{lines}#2", code=1)["problems"]
    assert "file" not in item
    many = write(tmp_path, "l.json", [body(), REFUSED])
    assert lint(tmp_path, many, code=1)["problems"][0]["file"] == f"{many}#2"
    batch = write(
        tmp_path,
        "batch.json",
        {"requests": [{"custom_id": "a", "params": body()}, {"params": body(max_tokens=0)}]},
    )
    [item] = lint(tmp_path, batch, code=1)["problems"]
    assert item["path"] == "requests[1].params.max_tokens"
    assert item["rule"] == "prewarm-conflict"


def test_recorded_sizes_are_used(tmp_path: Path) -> None:
    request = body(model="claude-opus-4-5")
    short = {
        "schema": "cacheaudit.call/1",
        "id": "a",
        "request": request,
        "content_tokens": [90, 9],
    }
    [item] = lint(tmp_path, write(tmp_path, "a.jsonl", short))["problems"]
    assert item["rule"] == "below-minimum"
    assert "99 tokens (recorded)" in item["message"]


def test_surface_and_date(tmp_path: Path) -> None:
    """A run of tool calls is one position on the Claude API, by its page of September."""
    calls = [{"type": "tool_use", "id": f"t{n}", "name": "a", "input": {}} for n in range(12)]
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": "k"} for n in range(12)]
    results[-1]["cache_control"] = MARK  # type: ignore[assignment]
    wide = body(
        tools=[tool("a")],
        messages=[turn(text("q")), {"role": "assistant", "content": calls}, turn(*results)],
    )
    file = write(tmp_path, "w.json", wide)
    assert lint(tmp_path, file)["problems"] == []
    for option in (("--surface", "bedrock"), ("--at", "2026-08-24")):
        [item] = lint(tmp_path, file, *option)["problems"]
        assert item["rule"] == "turn-beyond-lookback"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("{", "no JSON"),
        ('{"a": 1}', "no request"),
        ("[]", "no request"),
        ('{"messages": [{"role": "user", "content": 7}]}', "messages[0].content"),
        ('{"messages": []}\n{"messages": [', "line 2"),
        ("", "no request"),
        ("[" * 5_000, "nested"),
    ],
)
def test_unreadable_input_is_exit_code_two(tmp_path: Path, content: str, word: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    result = run(tmp_path, "lint", str(file))
    assert result.exit_code == 2
    assert word in result.stderr
    assert "fault of cacheaudit" not in result.stderr


def test_no_such_file(tmp_path: Path) -> None:
    result = run(tmp_path, "lint", str(tmp_path / "nowhere.json"))
    assert result.exit_code == 2
    assert "nowhere.json" in result.stderr


def test_standard_input(tmp_path: Path) -> None:
    done = process(tmp_path, "lint", "-", "--json", input=json.dumps(REFUSED).encode())
    assert done.returncode == 1
    assert json.loads(done.stdout)["problems"][0]["path"] == PATH


def test_text_says_level_place_and_no_prompt(tmp_path: Path) -> None:
    secret = "The current time is 2026-11-03 14:22:31, said Ada Quill."
    request = body(system=[text(secret), text(LONG)])
    result = run(tmp_path, "lint", write(tmp_path, "a.json", request))
    assert result.exit_code == 0
    assert "would never hit  system[0]  volatile-text-before-every-marker" in result.stdout
    assert "Quill" not in result.stdout
    assert "14:22" not in result.stdout
    clean = run(tmp_path, "lint", write(tmp_path, "b.json", body()))
    assert clean.stdout == "No problem found in 1 request.\n"


@pytest.mark.shared
def test_recorded_requests_of_a_real_client_are_not_refused(shared: Path, tmp_path: Path) -> None:
    """They were accepted once, so nothing in them may be called refused."""
    files = sorted((shared / "data" / "captures").glob("*.jsonl"))
    assert len(files) > 5
    for file in files:
        found = lint(tmp_path, str(file))
        assert found["requests"] >= 2
        assert {p["level"] for p in found["problems"]} <= {"never_hits", "wasteful"}

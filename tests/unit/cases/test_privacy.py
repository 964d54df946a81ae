"""Nothing of a prompt, and no key, leaves the files unless it is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cacheaudit.model.redact import without_text, word
from tests.unit.cases.bills import lines, messages_usage
from tests.unit.cli.helpers import run

ROOT = Path(__file__).resolve().parents[3] / "fixtures"
SECRET = "plumsecret words of 4711"
KEY = "sk-ant-api03-QWERTYUIOPasdfghjkl1234567890AA"
TEXT_FIELDS = frozenset(
    {
        "content", "text", "input", "arguments", "description", "system", "prompt", "thinking",
        "summary", "title", "message", "instructions", "output", "completion", "partial_json",
        "string", "error_message", "body", "lastPrompt", "display", "query", "command", "note",
        "status_message", "stdout", "stderr", "reasoning", "signature", "data", "exception",
        "result", "stringValue", "messages", "response", "question", "value",
    }
)  # fmt: skip
NAMED_FIELDS = frozenset({"value", "stringValue", "data", "message", "command", "string"})
SAMPLES = sorted(
    path
    for folder in ("sessions", "wire")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.suffix not in (".md", ".py")
)


def planted(value: Any, field: str = "") -> Any:
    """Put the secret behind every text, and the key into every set of headers."""
    if isinstance(value, dict):
        made = {name: planted(inner, name) for name, inner in value.items()}
        headers = value.get("headers")
        if isinstance(headers, dict):
            made["headers"] = {**headers, "x-api-key": KEY, "Authorization": f"Bearer {KEY}"}
        elif isinstance(headers, list):
            pairs = ("x-api-key", "cookie", "authorization")
            made["headers"] = [*headers, *({"name": name, "value": KEY} for name in pairs)]
        return made
    if isinstance(value, list):
        return [planted(inner, field) for inner in value]
    if not isinstance(value, str) or field not in TEXT_FIELDS:
        return value
    if field in NAMED_FIELDS and " " not in value:
        return value  # an attribute that names something
    try:
        return json.dumps(planted(json.loads(value), field)) if value[:1] in "{[" else _text(value)
    except ValueError:
        return _text(value)


def _text(value: str) -> str:
    if "data: {" in value:
        return re.sub(r"(?<=data: )\{.*\}", lambda m: json.dumps(planted(json.loads(m[0]))), value)
    return value if re.fullmatch(r"[\d.T:Z-]*|\[DONE\]", value) else f"{value} {SECRET}"


def _planted_file(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".yaml", ".yml"):
        return yaml.safe_dump(planted(yaml.safe_load(text)))
    try:
        return json.dumps(planted(json.loads(text)))
    except ValueError:
        pass
    made = []
    for line in text.split("\n"):
        mark = "data: " if line.startswith("data: ") else ""
        try:
            made.append(mark + json.dumps(planted(json.loads(line.removeprefix(mark)))))
        except ValueError:
            made.append(line)
    return "\n".join(made)


def _leaks(what: str, data: bytes) -> list[str]:
    needles = ("plumsecret", KEY[8:30])
    return [f"{what}: {needle}" for needle in needles if needle.encode() in data]


def _same_calls(home: Path, sample: Path, file: Path) -> None:
    """The planted file is read as the sample is, so that nothing is missed for want of reading."""
    totals = []
    for path in (sample, file):
        result = run(home, "usage", str(path), "--json")
        found = json.loads(result.stdout)["totals"] if result.exit_code == 0 else {}
        totals.append(
            [found.get(name) for name in ("calls", "total_input", "cache_read", "output")]
        )
    assert totals[0] == totals[1]


FORMS = [
    lambda file: ["usage", file, "--json", "--by", "session"],
    lambda file: ["audit", file, "--json"],
    lambda file: ["audit", file, "-v"],
    *(
        lambda file, form=form: ["audit", file, "--format", form]
        for form in ("html", "md", "csv", "sarif")
    ),
    lambda file: ["export", file],
    lambda file: ["diff", f"{file}#1", f"{file}#2"],
    lambda file: ["diff", f"{file}#1", f"{file}#2", "--json"],
]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_text_and_no_key_is_shown_or_stored(tmp_path: Path, sample: Path) -> None:
    file = tmp_path / "in" / sample.name
    file.parent.mkdir()
    file.write_text(_planted_file(sample), encoding="utf-8")
    _same_calls(tmp_path, sample, file)
    leaks: list[str] = []
    forms: list[Callable[[str], list[str]]] = FORMS
    for form in forms:
        arguments = form(str(file))
        result = run(tmp_path, *arguments)
        assert "fault of cacheaudit" not in result.output
        leaks += _leaks(" ".join(arguments), result.output.encode())
    url = f"sqlite:///{tmp_path / 'x.db'}"
    leaks += _leaks("import", run(tmp_path, "import", str(file), "--db", url).output.encode())
    for stored in tmp_path.glob("x.db*"):
        leaks += _leaks("store", stored.read_bytes())
    again = run(tmp_path, "export", "--db", url, "--with-text").output
    assert not [*leaks, *_leaks("export --with-text", again.encode())]


@pytest.mark.parametrize("name", ["capture.jsonl", "browser.har", "otlp.jsonl"])
def test_what_is_asked_for_is_kept(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(_planted_file(ROOT / "wire" / name), encoding="utf-8")
    assert "plumsecret" in file.read_text()
    url = f"sqlite:///{tmp_path / 'x.db'}"
    assert run(tmp_path, "import", str(file), "--db", url, "--store-text").exit_code == 0
    exported = run(tmp_path, "export", "--db", url, "--with-text").stdout
    assert "plumsecret" in exported
    assert KEY not in exported
    assert "plumsecret" not in run(tmp_path, "export", "--db", url).stdout
    for stored in tmp_path.glob("x.db*"):
        assert KEY.encode() not in stored.read_bytes()


@pytest.mark.parametrize(
    "column",
    ["question", "error", "note", "stop_reason", "Eingabe", "answer"],
)
@pytest.mark.parametrize(
    "text", [SECRET, "请帮我修复这个登录错误", KEY, "ghp_0123456789abcdefghij"]
)
def test_a_column_with_text_is_not_kept(tmp_path: Path, column: str, text: str) -> None:
    row = {"started_at": "2026-10-05T10:00:00Z", "model": "m", "total_input": 5, "cache_read": 0}
    file = lines(tmp_path / "log.jsonl", [{**row, "output": 1, column: text}])
    url = f"sqlite:///{tmp_path / 'x.db'}"
    run(tmp_path, "import", str(file), "--db", url)
    shown = run(tmp_path, "export", str(file)).stdout + run(tmp_path, "audit", str(file)).stdout
    assert text not in shown
    assert json.dumps(text)[1:-1] not in shown
    for stored in tmp_path.glob("x.db*"):
        assert text.encode() not in stored.read_bytes()


def test_errors_of_a_recording_are_named_and_not_quoted(tmp_path: Path) -> None:
    call = {
        "schema": "cacheaudit.call/1",
        "id": "x",
        "session": "s",
        "started_at": 1_790_000_000,
        "error": {"type": f"said {SECRET}", "status": 400, "message": f"{SECRET} {KEY}"},
        "response": {"usage": messages_usage(1, 0, 0, 1), "stop_reason": f"said {SECRET}"},
    }
    file = lines(tmp_path / "x.session.jsonl", [call])
    url = f"sqlite:///{tmp_path / 'x.db'}"
    run(tmp_path, "import", str(file), "--db", url)
    for data in (
        run(tmp_path, "export", str(file)).output.encode(),
        run(tmp_path, "export", "--db", url).output.encode(),
        *(stored.read_bytes() for stored in tmp_path.glob("x.db*")),
    ):
        assert not _leaks("export", data)


def test_identifiers_stay_as_they_are() -> None:
    kept = ["msg_01ABC", "2026-10-05", "/home/x/a.py", "gpt-5.2", "a" * 128, "", "end_turn"]
    assert without_text(kept) == kept
    assert [word(text) for text in ("end_turn", "a b", "密码")] == ["end_turn", "other", "other"]

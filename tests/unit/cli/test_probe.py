"""The command: what it shows, when it asks, what it never shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.fan_out.cache_server import CacheScript
from tests.unit.agent.servers import KEY, Reply, Script, loopback
from tests.unit.cli.helpers import run


@pytest.fixture
def document(tmp_path: Path) -> Path:
    file = tmp_path / "notes.txt"
    file.write_text("Public notes. " * 800)
    return file


class Listing(CacheScript):
    """Also says which models it has."""

    def answer(self, path: str, head: dict[str, str], body: bytes) -> Reply:
        if path == "/v1/models":
            return Reply({"data": [{"id": "tiny-model"}]})
        return super().answer(path, head, body)


def test_a_local_server_is_asked_without_asking(tmp_path: Path, document: Path) -> None:
    script = Listing()
    with loopback(script) as address:
        result = run(tmp_path, "probe", "--base-url", address, str(document))
    assert result.exit_code == 0, result.output
    assert "Reuse of the prefix: confirmed" in result.stdout
    assert "4 another beginning" in result.stdout
    assert [json.loads(body)["model"] for body in script.sent] == ["tiny-model"] * 4


def test_json_lines(tmp_path: Path, document: Path) -> None:
    with loopback(Listing()) as address:
        result = run(
            tmp_path, "probe", "--base-url", address, "--model", "m", "--json", str(document)
        )
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line.get("case") for line in lines] == [
        "prepare",
        "confirm",
        "new_question",
        "changed_beginning",
        None,
    ]
    assert {line["schema"] for line in lines} == {"cacheaudit.probe/1"}
    assert lines[-1]["conclusion"]["verdict"] == "confirmed"
    assert lines[1]["usage"]["cache_read_input_tokens"] == lines[1]["cache_read"] > 2_000


def test_no_hit_is_exit_code_1(tmp_path: Path, document: Path) -> None:
    script = Script()
    quiet: dict[str, Any] = {"input_tokens": 4, "output_tokens": 1, "cache_read_input_tokens": 0}
    from tests.unit.agent.servers import events

    script._replies = [Reply(frames=events(n, usage=quiet)) for n in (1, 2, 3, 4)]
    with loopback(script) as address:
        result = run(tmp_path, "probe", "--base-url", address, "--model", "m", str(document))
    assert result.exit_code == 1
    assert "not confirmed" in result.stdout
    assert len(script.sent) == 2


def test_fan_out(tmp_path: Path, document: Path) -> None:
    with loopback(CacheScript()) as address:
        result = run(
            tmp_path, "probe", "--fan-out", "--base-url", address, "--model", "m", str(document)
        )
    assert result.exit_code == 0, result.output
    rows = [line for line in result.stdout.splitlines() if "marked" in line]
    assert len(rows) == 4
    assert "wait for the first" in rows[3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--yes"], "ANTHROPIC_API_KEY is not set"),
        (["--base-url", "ftp://x"], "which key"),
        (["--base-url", "http://127.0.0.1:9"], "does not list its models"),
        (["--base-url", "https://api.openai.com/v1", "--ttl", "1h", "--model", "m"], "lifetimes"),
        (["--base-url", "https://gateway.example.com"], "--key-env"),
    ],
)
def test_bad_use(tmp_path: Path, document: Path, arguments: list[str], words: str) -> None:
    env = {"OPENAI_API_KEY": KEY}
    result = run(tmp_path, "probe", *arguments, str(document), env=env)
    assert result.exit_code == 2
    assert words in result.stderr


def test_money_is_not_spent_without_a_word(tmp_path: Path, document: Path) -> None:
    env = {"ANTHROPIC_API_KEY": KEY}
    result = run(tmp_path, "probe", "--model", "claude-opus-5", str(document), env=env)
    assert result.exit_code == 2
    assert "At most 4 requests of about" in result.stderr
    assert "at most by the prices of" in result.stderr
    assert "--yes" in result.stderr
    assert KEY not in result.output


def test_a_short_text_is_refused_before_it_costs(tmp_path: Path) -> None:
    file = tmp_path / "short.txt"
    file.write_text("too short")
    env = {"ANTHROPIC_API_KEY": KEY}
    result = run(tmp_path, "probe", "--yes", "--model", "claude-opus-5", str(file), env=env)
    assert result.exit_code == 2
    assert "keeps nothing under 512" in result.stderr


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "x.bin"
    file.write_bytes(b"abc\xff\xfe")
    result = run(tmp_path, "probe", "--base-url", "http://127.0.0.1:9", "--model", "m", str(file))
    assert result.exit_code == 2
    assert "no UTF-8 text: byte 3" in result.stderr

"""``cacheaudit replay``: its JSON is a contract, its mistakes are explained."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.errors import MissingExtraError, UsageError
from cacheaudit.jobs.replaying.local import LocalServer
from cacheaudit.jobs.replaying.target import Wanted, options
from tests.unit.cli.helpers import run
from tests.unit.replay.builders import SESSIONS
from tests.unit.replay.servers import serving

PROBE = str(SESSIONS / "probe.session.jsonl")
HEALTH = {"clock": "manual", "rules": "anthropic", "model": "tiny"}


def test_the_json_has_the_fields_of_the_contract(engine: str, tmp_path: Path) -> None:
    result = run(tmp_path, "replay", PROBE, "--backend", engine, "--scale", "50", "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["schema"] == "cacheaudit.replay/1"
    assert {"calls", "totals", "rules_version", "backend", "clock", "scale"} <= found.keys()
    assert (found["clock"], found["scale"], found["rules_version"]) == (
        "recorded",
        50,
        "2026-11-30",
    )
    assert found["backend"]["url"] == engine
    for call in found["calls"]:
        assert {"id", "predicted", "reported", "replayed", "why"} <= call.keys()
        sides = [call[name] for name in ("predicted", "reported", "replayed")]
        assert len({(s["cache_read"], s["cache_write"], s["uncached_input"]) for s in sides}) == 1


def test_the_text_says_how_well_all_three_agree(engine: str, tmp_path: Path) -> None:
    result = run(tmp_path, "replay", PROBE, "--backend", engine, "--scale", "50")
    assert result.exit_code == 0, result.stderr
    first = result.stdout.splitlines()[0]
    assert first == "4 calls replayed; 4 of 4 as predicted, 4 of 4 as reported."
    assert "One token sent stands for 50 of the record." in result.stdout
    assert re.search(r"replayed +12,000 +12,000 +160\n", result.stdout)


def test_a_fix_that_the_record_does_not_allow(engine: str, tmp_path: Path) -> None:
    args = ("replay", PROBE, "--backend", engine, "--scale", "50", "--edit", "auto-tool-choice")
    result = run(tmp_path, *args)
    assert result.exit_code == 2
    assert "Error: --edit auto-tool-choice was left out." in result.stderr
    assert "4 calls replayed" in result.stdout


def test_bodies_are_sent_as_recorded(engine: str, tmp_path: Path) -> None:
    result = run(tmp_path, "replay", PROBE, "--backend", engine, "--bodies", "--json")
    found = json.loads(result.stdout)
    assert found["backend"]["content"] == "bodies"
    # 25 bytes of text, 33 of question, two speakers, and the token that begins the answer. The
    # engine divides its minimum by fifty, so that a text of 25 bytes is kept.
    sent = [call["sent"] for call in found["calls"]]
    assert [(parts["cache_write"], parts["uncached_input"]) for parts in sent[:2]] == [
        (25 + 1, 33 + 1 + 1),
        (0, 33 + 1 + 1),
    ]
    assert found["totals"]["reproduced_calls"] == 4


def test_the_engine_is_started_and_ended(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "cacheaudit", "replay", PROBE, "--scale", "20", "--json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["totals"]["reproduced_calls"] == 4
    assert done.stderr == ""


def test_without_the_engine_the_command_says_what_to_install() -> None:
    with pytest.raises(MissingExtraError) as caught:
        LocalServer([], module="not_installed_anywhere.server")
    assert caught.value.message == "The local engine is not installed."
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("Run: pip install 'cacheaudit[local]'")


def test_an_engine_that_does_not_start_says_why() -> None:
    pytest.importorskip("starlette")
    with pytest.raises(UsageError) as caught, LocalServer(["--pages", "none"]):
        pass
    assert caught.value.message == "The local engine did not start."
    assert caught.value.hint is not None
    assert "argument --pages" in caught.value.hint


def test_a_process_that_says_something_else_is_no_server() -> None:
    with pytest.raises(UsageError, match="did not start"), LocalServer([], module="this"):
        pass


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--bodies", "--scale", "2"), "Recorded bodies are sent as they are"),
        (("--bodies", "--edit", "ttl:ttl=1h"), "Recorded bodies are sent as they are"),
        (("--backend", "nowhere"), "is no address of a server"),
        (("--backend", "http://127.0.0.1:9"), "No server answers at http://127.0.0.1:9"),
        (("--backend", "https://example.invalid"), "Nobody is there to confirm."),
        (("--key-env", "NO_SUCH_KEY"), "The variable NO_SUCH_KEY is not set."),
        (("--edit", "nonsense"), "There is no edit 'nonsense'."),
        (("--switch", "nonsense"), "'nonsense' is no switch."),
    ],
    ids=["scaled", "edited", "address", "nobody", "consent", "key", "edit", "switch"],
)
def test_bad_use(tmp_path: Path, args: tuple[str, ...], said: str) -> None:
    result = run(tmp_path, "replay", PROBE, *args)
    assert result.exit_code == 2
    assert said in result.stderr


def test_what_would_go_to_another_machine_is_said_first(tmp_path: Path) -> None:
    result = run(tmp_path, "replay", PROBE, "--backend", "https://example.invalid")
    assert "4 requests with about 24,160 input tokens" in result.stderr


def test_a_server_with_its_own_clock_cannot_replay_pauses(tmp_path: Path) -> None:
    with serving({"/health": (200, {**HEALTH, "clock": "system"})}) as (url, _):
        result = run(tmp_path, "replay", PROBE, "--backend", url)
    assert result.exit_code == 2
    assert "keeps its own time" in result.stderr
    assert "--clock fast" in result.stderr


def test_a_call_that_fails_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    answers = {
        "/health": (200, HEALTH),
        "/v1/messages": (400, {"error": {"type": "invalid_request_error", "message": "no"}}),
    }
    with serving(answers) as (url, seen):
        result = run(tmp_path, "replay", PROBE, "--backend", url, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["totals"]["failed_calls"] == 4
    assert [call["replayed"] for call in found["calls"]] == [None] * 4
    assert found["calls"][0]["why"] == [
        {
            "kind": "failed",
            "text": "the request failed with invalid_request_error (HTTP 400): no",
        }
    ]
    sent = [headers for path, headers, _ in seen if path == "/v1/messages"]
    assert len(sent) == 4
    # The first starts at nine o'clock; its response begins two seconds later.
    assert float(sent[0]["x-cacheaudit-began"]) - float(sent[0]["x-cacheaudit-now"]) == 2
    assert float(sent[3]["x-cacheaudit-now"]) - float(sent[0]["x-cacheaudit-now"]) == 30
    assert len({headers["x-cacheaudit-workspace"] for headers in sent}) == 1


def test_another_maker_s_server_gets_no_headers_of_ours(tmp_path: Path) -> None:
    usage = {"input_tokens": 40, "cache_creation_input_tokens": 6_000, "cache_read_input_tokens": 0}
    with serving({"/v1/messages": (200, {"usage": usage})}) as (url, seen):
        result = run(tmp_path, "replay", PROBE, "--backend", url, "--clock", "fast", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["backend"]["sizes"] == "approximate"
    assert found["calls"][0]["replayed"]["cache_write"] == 6_000
    sent = [(headers, body) for path, headers, body in seen if path == "/v1/messages"]
    assert not any(name.startswith("x-cacheaudit") for name in sent[0][0])
    # Four bytes stand for a token.
    assert len(sent[0][1]["system"][0]["text"]) == 24_000


def test_options_of_the_engine() -> None:
    wanted = Wanted(context_length=99, pages=7, each_block=True)
    found = " ".join(options(wanted, "deepseek"))
    assert "--rules deepseek" in found
    assert "--clock manual" in found
    assert "--context-length 99" in found
    assert "--pages 7" in found
    assert "--each-block" in found
    assert "--token-scale" not in found
    assert "--token-scale 20" in " ".join(options(Wanted(scale=20), "anthropic"))
    assert "--clock system" in " ".join(options(Wanted(clock="fast"), "anthropic"))

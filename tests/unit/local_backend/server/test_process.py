"""The server as a process: one line when it is ready, an end in order, a new start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import httpx2
import pytest

from local_backend.errors import UnknownModelError
from local_backend.server.errors import AddressError
from local_backend.server.launch import load_model, take_address
from local_backend.server.options import KEYS, parse_options
from local_backend.server.settings import Settings
from tests.unit.local_backend.server.running import filled

MODULE = [sys.executable, "-m", "local_backend.server"]
COMMAND = [sys.executable, "-m", "cacheaudit", "serve"]


@contextmanager
def started(
    command: list[str], root: Path, *options: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [*command, "--port", "0", "--pages", "5000", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(command: list[str], root: Path, *options: str, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, **env},
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def test_one_line_with_the_address_and_an_end_in_order(root: Path) -> None:
    with started(COMMAND, root) as (process, address):
        with anthropic.Anthropic(base_url=address, api_key="k") as client:
            assert client.messages.create(**filled({})).usage.output_tokens == 4
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out, errors) == (0, "", "")


def test_answers_are_given_up_when_it_has_to_end(root: Path) -> None:
    with started(MODULE, root, "--pages", "60000") as (process, address):
        client = anthropic.Anthropic(base_url=address, api_key="k", max_retries=0)
        with (
            client,
            client.messages.create(**filled({"max_tokens": 50_000, "stream": True})) as stream,
        ):
            events = iter(stream)
            assert next(events).type == "message_start"
            process.send_signal(signal.SIGTERM)
            with pytest.raises(anthropic.APIStatusError, match="the answer was given up"):
                list(events)
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out, errors) == (0, "", "")


def test_killed_in_an_answer_and_started_again_on_the_same_port(root: Path) -> None:
    with started(MODULE, root) as (process, address):
        client = anthropic.Anthropic(base_url=address, api_key="k", max_retries=0)
        with client.messages.create(**filled({"max_tokens": 4000, "stream": True})) as stream:
            first = next(iter(stream))
            process.kill()
            process.wait(60)
            with pytest.raises(httpx2.TransportError):
                list(stream)
        client.close()
        assert first.type == "message_start"
        before = first.message.usage.input_tokens
    port = address.rsplit(":", 1)[1]
    with started(MODULE, root, "--port", port) as (_, again):
        assert again == address
        with anthropic.Anthropic(base_url=again, api_key="k") as client:
            assert client.messages.create(**filled({})).usage.input_tokens == before
        metrics = urllib.request.urlopen(f"{again}/metrics").read().decode()
        assert 'cacheaudit_kv_pages{group="full",state="protected"} 0' in metrics


def test_a_port_that_is_taken(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, errors = ended(MODULE, root, "--port", str(taken.getsockname()[1]))
    assert (code, out) == (2, "")
    assert "cannot listen on 127.0.0.1" in errors
    assert "--port" in errors


def test_of_two_that_start_at_once_one_has_the_port() -> None:
    """The second is told before it has loaded anything, though neither answers yet."""
    with take_address(Settings(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(AddressError, match=f"cannot listen on 127.0.0.1, port {port}"):
            take_address(Settings(port=port))


def test_what_is_missing_is_named_with_its_command(root: Path) -> None:
    hide = "import sys; sys.modules['{}'] = None; sys.argv = ['serve']; import runpy;"
    run = "runpy.run_module('{}', run_name='__main__')"
    for package in ("starlette", "uvicorn"):
        code = hide.format(package) + run.format("local_backend.server")
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=root
        )
        assert done.returncode == 2
        assert done.stderr == (
            f"Error: '{package}' is not installed; the server needs it.\n"
            "  Run: pip install 'cacheaudit-local[server]'\n"
        )


def test_an_unknown_model() -> None:
    with pytest.raises(UnknownModelError, match="no model and no file 'nobody'; models are: tiny"):
        load_model(Settings(model="nobody"))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("tiny", "tiny"),
        ("models/Some-1.5B.Q4.gguf", "Some-1.5B.Q4"),
        ("gemma3-270m", "gemma3-270m"),
    ],
)
def test_a_model_is_called_by_its_name_or_its_file(model: str, name: str) -> None:
    assert Settings(model=model).name == name


@pytest.mark.parametrize(
    ("host", "keys", "exposed"),
    [
        ("127.0.0.1", (), False),
        ("::1", (), False),
        ("localhost", (), False),
        ("0.0.0.0", (), True),
        ("0.0.0.0", ("k",), False),
        ("example.com", (), True),
    ],
)
def test_an_address_that_others_reach_wants_a_key(
    host: str, keys: tuple[str, ...], exposed: bool
) -> None:
    assert Settings(host=host, api_keys=keys).is_exposed is exposed


def test_options_become_settings() -> None:
    assert parse_options([], {}) == Settings()
    found = parse_options(
        ["--rules", "implicit", "--alias", "a", "--alias", "b", "--any-model", "--each-block",
         "--clock", "manual", "--max-body-mib", "3", "--request-timeout", "0"],
        {KEYS: "one, two,"},
    )  # fmt: skip
    assert (found.rules, found.aliases, found.any_model) == ("implicit", ("a", "b"), True)
    assert (found.collapse_runs, found.clock, found.max_body_bytes) == (False, "manual", 3 << 20)
    assert (found.request_timeout_s, found.api_keys) == (None, ("one", "two"))


@pytest.mark.parametrize(
    "wrong", [["--port", "70000"], ["--pages", "0"], ["--rules", "x"], ["--ping", "-1"], ["--host"]]
)
def test_bad_options_end_with_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_options(wrong, {})
    assert end.value.code == 2
    assert wrong[0] in capsys.readouterr().err

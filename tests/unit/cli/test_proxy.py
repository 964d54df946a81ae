"""The proxy as a command: it says where it is, records, and ends when told to."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cacheaudit.store import open_store
from tests.unit.agent.servers import KEY, MODEL, Script, loopback
from tests.unit.cli.helpers import ROOT, run


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Programs started meanwhile can be interrupted, even if those of this shell cannot."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    db = tmp_path / "p.db"
    script = Script()
    with loopback(script) as upstream, _interruptible(), contextlib.ExitStack() as cleanup:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "cacheaudit", "proxy", "--port", "0"),
                *("--upstream", upstream, "--db", f"sqlite:///{db}", "--session", "s1"),
            ],
            cwd=ROOT,
            env={**os.environ, "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        cleanup.callback(process.kill)
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        body = json.dumps({"model": MODEL, "max_tokens": 1, "messages": []})
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
        connection.request("POST", "/v1/messages", body, {"x-api-key": KEY})
        assert connection.getresponse().read()
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        connection.close()
    assert process.returncode == 0, err
    assert out == ""
    assert f"ANTHROPIC_BASE_URL={address}" in err
    assert "1 call recorded" in err
    assert KEY not in err
    with open_store(str(db)) as store:
        (session,) = store.sessions(["s1"])
    assert session.calls[0].usage is not None
    assert session.calls[0].usage.cache_read == 2000


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run(tmp_path, "proxy", "--port", port, "--db", str(tmp_path / "p.db"))
    assert result.exit_code == 2
    assert f"Cannot listen on port {port}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--route", "nothing"], "is no route"),
        (["--route", "x=ftp://y"], "is no address"),
        (["--upstream", "nobody"], "is no address"),
        (["--db", "nonsense://x"], "Error"),
    ],
)
def test_bad_use(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = run(tmp_path, "proxy", "--port", "0", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr

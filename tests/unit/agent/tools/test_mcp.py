"""Servers of tools, through the official client library: in this process and in their own."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheaudit import ToolDirectory
from cacheaudit.agent.tools.mcp import tool_name
from cacheaudit.errors import ToolError
from tests.unit.agent.tools.mcp_server import make
from tests.unit.agent.tools.sample import plain_tool

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = {"command": sys.executable, "args": ["-m", "tests.unit.agent.tools.mcp_server"]}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def directory() -> Iterator[ToolDirectory]:
    with ToolDirectory(exposure="search") as made:
        yield made


def shown(directory: ToolDirectory, query: str) -> Any:
    session = directory.open()
    body = json.loads(str(session.call("search_tools", {"query": query}).content))
    session.next_batch()
    return session, body


def test_its_tools_are_found_and_called(directory: ToolDirectory) -> None:
    server = directory.connect("shop", make(), wait=True)
    assert (server.state, server.problems) == ("ready", [])
    session, body = shown(directory, "add numbers")
    assert body["tools"][0]["name"] == "shop__add"
    call = {"name": "shop__add", "arguments": {"a": 1, "b": 2}}
    assert session.call("call_tool", call).content == "3"
    wrong = {"name": "shop__add", "arguments": {"a": "x"}}
    assert session.call("call_tool", wrong).error == "invalid_arguments"


def test_what_it_returns_becomes_content(directory: ToolDirectory) -> None:
    directory.connect("shop", make(), wait=True)
    session = directory.open(exposure="direct")
    failed = session.call("shop__fail")
    assert failed.is_error
    assert str(failed.content).startswith("Error executing tool fail")
    picture: Any = session.call("shop__picture").content
    assert picture[0]["type"] == "image"
    assert picture[0]["source"]["media_type"] == "image/png"
    assert session.call(tool_name("shop", "odd name.v1")).content == "odd"


def test_bytes_are_the_same_after_a_reconnect(directory: ToolDirectory) -> None:
    prints = []
    for _ in range(2):
        server = directory.connect("shop", make(), wait=True)
        prints.append(directory.open(exposure="direct").fingerprint)
        server.close()
        directory._servers.clear()
        assert len(directory) == 0
    assert prints[0] == prints[1]


def test_new_tools_come_with_a_refresh_and_change_no_session(directory: ToolDirectory) -> None:
    program = make()
    server = directory.connect("shop", program, wait=True)
    session = directory.open()
    before = session.tools_bytes

    def later(x: int) -> int:
        """Come later."""
        return x

    program.add_tool(later)
    program.remove_tool("add")
    server.refresh()
    assert "shop__later" in directory
    assert "shop__add" not in directory
    assert session.tools_bytes == before
    session.call("search_tools", {"query": "later"})
    session.next_batch()
    call = {"name": "shop__later", "arguments": {"x": 4}}
    assert session.call("call_tool", call).content == "4"


def test_a_server_says_when_its_tools_are_others(directory: ToolDirectory) -> None:
    directory.connect("shop", make(), wait=True)
    session = directory.open(exposure="direct")
    # The subscription is made right after the server is ready.
    for _ in range(200):
        assert session.call("shop__grow").content == "grown"
        if "shop__grown" in directory:
            break
        time.sleep(0.05)
    assert "shop__grown" in directory
    assert "shop__grown" not in session.tools_bytes.decode()


def test_a_server_behind_an_address(directory: ToolDirectory) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    config = uvicorn.Config(make().streamable_http_app(), port=0, log_level="critical")
    web = uvicorn.Server(config)
    thread = threading.Thread(target=web.run, daemon=True)
    thread.start()
    try:
        while not web.started:
            time.sleep(0.01)
        port = web.servers[0].sockets[0].getsockname()[1]
        server = directory.connect("shop", f"http://127.0.0.1:{port}/mcp", wait=True)
        assert (server.state, server.problems) == ("ready", [])
        session = directory.open(exposure="direct")
        assert session.call("shop__add", {"a": 20, "b": 22}).content == "42"
        server.close()
        assert server.state == "closed"
    finally:
        web.should_exit = True
        thread.join(20)


def test_a_server_in_its_own_process_that_is_slow(
    directory: ToolDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    slow = {**PROGRAM, "args": [*PROGRAM["args"], "0.3"], "cwd": str(ROOT)}
    server = directory.connect("shop", slow)
    session, body = shown(directory, "add numbers")
    before = session.tools_bytes
    assert body["tools"] == []
    assert body["still_connecting"] == ["shop"]
    assert server.wait(30) == "ready"
    session.call("search_tools", {"query": "add numbers"})
    session.next_batch()
    call = {"name": "shop__add", "arguments": {"a": 20, "b": 22}}
    assert session.call("call_tool", call).content == "42"
    assert session.tools_bytes == before


def test_one_that_dies_is_started_again(directory: ToolDirectory) -> None:
    program = {**PROGRAM, "cwd": str(ROOT)}
    directory.connect("shop", program, wait=True, timeout=20)
    session = directory.open(exposure="direct")
    _end_child_of_this_process()
    first = session.call("shop__add", {"a": 1, "b": 2})
    if first.is_error:  # the loss may be noticed by the call itself, or before
        assert first.error in ("unavailable", "failed")
        assert session.call("shop__add", {"a": 1, "b": 2}).content == "3"
    else:
        assert first.content == "3"


def test_one_that_cannot_be_reached_is_told(directory: ToolDirectory) -> None:
    server = directory.connect("gone", {"command": "/no/such/program"}, wait=True)
    assert server.state == "failed"
    assert server.problems
    _, body = shown(directory, "anything")
    assert body["not_reachable"] == ["gone"]


def test_one_that_never_answers_is_given_up(directory: ToolDirectory) -> None:
    mute = {"command": sys.executable, "args": ["-c", "import time; time.sleep(30)"]}
    server = directory.connect("mute", mute, timeout=0.3)
    assert server.wait(20) == "failed"
    assert server.problems == ["no answer within 0.3 s"]


def test_a_call_is_given_up(directory: ToolDirectory) -> None:
    directory.connect("shop", {**PROGRAM, "cwd": str(ROOT)}, wait=True, timeout=20)
    tool = directory.get("shop__slow")
    assert tool is not None
    directory.replace_source("mcp:shop", [])
    directory.add(msgspec.structs.replace(tool, timeout=0.2))
    outcome = directory.open(exposure="direct").call("shop__slow", {"seconds": 5})
    assert outcome.error == "timed_out"


def test_names_that_are_taken(directory: ToolDirectory) -> None:
    directory.add(plain_tool("shop__add", "ours"))
    server = directory.connect("shop", make(), wait=True)
    assert server.problems == ["another tool is called shop__add"]
    assert directory.get("shop__add").description == "ours"  # type: ignore[union-attr]
    with pytest.raises(ToolError, match="called 'shop' already"):
        directory.connect("shop", make())
    with pytest.raises(ToolError, match="no name for a server"):
        directory.connect("a b", make())


def test_names_are_made_to_fit_and_kept_apart() -> None:
    assert tool_name("s", "read") == "s__read"
    odd = {tool_name("s", name) for name in ("a.b", "a b", "a/b", "x" * 200, "x" * 201)}
    assert len(odd) == 5
    assert all(len(name) <= 128 for name in odd)


def _end_child_of_this_process() -> None:
    """End the server as an operator would; the test's own children only."""
    found: list[int] = []
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    mine = [pid for pid in found if b"mcp_server" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert mine
    for pid in mine:
        os.kill(pid, signal.SIGKILL)

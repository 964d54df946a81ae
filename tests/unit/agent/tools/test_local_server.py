"""A long session on a real cache: each request reads the one before, whatever tools do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from cacheaudit import OutputBudget, OutputFilter, ToolDirectory
from cacheaudit.agent.tools.runner import attach, tool_runner
from tests.unit.agent.tools.sample import plain_tool, reply, use

TURNS = 100
MARK = {"type": "ephemeral"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    pytest.importorskip("torch")
    running = pytest.importorskip("tests.unit.local_backend.server.running").running
    with running() as server:
        yield server.url


def directory_of(count: int) -> ToolDirectory:
    tools = [plain_tool(f"svc{n % 40}_op{n}", f"Performs operation {n}.") for n in range(count)]
    return ToolDirectory(tools, outputs=OutputFilter(OutputBudget(max_tokens=200)))


def fail(_: dict[str, Any]) -> None:
    raise ConnectionError("gone")


def scripted(number: int, names: list[str]) -> list[dict[str, Any]]:
    """Return what the model does in a turn; the tiny model itself has no sense for tools."""
    if number % 2 == 0:
        return [use("search_tools", {"query": names[number // 2], "limit": 1}, number)]
    return [use("call_tool", {"name": names[number // 2], "arguments": {}}, number)]


def ask(client: anthropic.Anthropic, messages: list[Any], tools: list[Any]) -> tuple[int, int]:
    """Send a conversation with a marker at its end; returns tokens read and the whole input."""
    *before, last = messages
    content = last["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    marked = {**last, "content": [*blocks[:-1], {**blocks[-1], "cache_control": MARK}]}
    usage = client.messages.create(
        model="tiny", max_tokens=1, messages=[*before, marked], tools=tools
    ).usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return read, read + written + usage.input_tokens


def session_of(url: str, turns: int, *, direct: bool) -> list[tuple[int, int]]:
    """Play a session in which tools come, change, go and fail after every turn."""
    seen: list[tuple[int, int]] = []
    with (
        directory_of(20 if direct else 1_000) as directory,
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as bare,
    ):
        names = [tool.name for tool in directory.tools()]
        session = directory.open()
        client = bare if direct else attach(session, bare)
        messages: list[Any] = [{"role": "user", "content": f"Work through it. {direct}"}]
        for number in range(turns):
            # What most agents do: whatever tools there are at this moment.
            now = [tool.definition() for tool in directory.tools()]
            seen.append(ask(client, messages, now if direct else session.tools()))
            said = reply(*scripted(number, names))
            messages += [said, *session.answer(said)]
            directory.add(plain_tool(f"late_{number}", "Came late."))
            directory.remove(names[-1 - number % len(names)])
            failing = directory.get(names[number // 2 % len(names)])
            if failing is not None and number % 5 == 0:
                directory.add(failing.definition(), fail, replace=True)
    return seen


def test_every_request_reads_the_whole_of_the_one_before(url: str) -> None:
    seen = session_of(url, TURNS, direct=False)
    assert seen[0][0] == 0
    for (_, before), (read, whole) in itertools.pairwise(seen):
        # The last token or two let the model speak and stand behind the marker.
        assert before - 2 <= read <= before < whole
    share = sum(read for read, _ in seen) / sum(whole for _, whole in seen)
    assert share > 0.97


def test_a_list_of_whatever_there_is_reads_next_to_nothing(url: str) -> None:
    """The other way round, on the same server: the first tools are all that stays."""
    seen = session_of(url, 8, direct=True)
    assert sum(read for read, _ in seen[1:]) < 0.5 * sum(before for _, before in seen[:-1])


def test_the_sdks_tool_runner_with_whatever_a_model_writes(url: str) -> None:
    """The tiny model has to call a tool and writes valid nonsense; each call is answered."""
    with (
        directory_of(50) as directory,
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as sdk,
    ):
        session = directory.open()
        runner = tool_runner(
            session,
            sdk,
            model="tiny",
            max_tokens=200,
            max_iterations=4,
            thread=False,
            tool_choice={"type": "any"},
            messages=[{"role": "user", "content": "Work."}],
        )
        answers: list[Any] = [runner.generate_tool_call_response() for _ in runner]
        assert len(answers) == 4
        for answer in answers:
            for block in answer["content"]:
                assert block["type"] == "tool_result"
                assert json.loads(block["content"])["do"]
        assert session.tools_bytes == directory.open().tools_bytes

"""Scripts call tools; only what they say comes back."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import pytest

from cacheaudit import CodeLimits, ToolDirectory, ToolOutput
from cacheaudit._lazy import need
from cacheaudit.agent.codemode import sandbox
from cacheaudit.agent.codemode.codemode import CodeMode
from cacheaudit.agent.codemode.functions import Functions
from cacheaudit.agent.codemode.values import Values
from cacheaudit.agent.tools.runner import tool_runner
from cacheaudit.errors import ConfigError, MissingExtraError, OutputError
from tests.unit.agent.codemode.scripts import Counted, code_mode
from tests.unit.agent.servers import KEY, MODEL, Reply, Script, loopback, message
from tests.unit.agent.tools.sample import log_query, plain_tool, use


@pytest.fixture(scope="module")
def counted() -> Counted:
    return Counted()


@pytest.fixture(scope="module")
def code(counted: Counted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodeMode]:
    def shout(times: int) -> ToolOutput:
        """Shout."""
        return ToolOutput(text="hey " * times, exit_status=0)

    def whole() -> ToolOutput:
        """Return more than text."""
        return ToolOutput(text="for people", value={"for": "scripts"})

    directory, made = code_mode(
        counted.read,
        log_query,
        shout,
        whole,
        plain_tool("print", "A name of Python's.", a={"type": "integer"}),
        plain_tool("odd-name", "", **{"not a name": {"type": "integer"}}),
        folder=tmp_path_factory.mktemp("outputs"),
    )
    with directory:
        yield made


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("1 + 1", "2"),
        ("x = 3", "(no output)"),
        ("text('a')\ntext({'b': [1, None]})\nprint('c')", 'a\n{"b": [1, null]}\nc\n'),
        ("text('a', 1, [None])", "a 1 [null]\n"),
        ("(await read(7))['number']", "7"),
        ("await read(7, 0.5)", '{"number": 7, "share": 0.5}'),
        ("await read(7)\nNone", "(no output)"),
        ("text((await read(7, share=2))['share'])\n'end'", "2.0\nend"),
        ("r = await log_query('run_1')\nr.upper()", "RUN_1: 20 LINES"),
        ("return 5", "5"),
        ("x = 2\nreturn {\n  'x': x,\n}", '{"x": 2}'),
        ("```python\n1 + 2\n```", "3"),
        ("await print_(a=4)", '{"a": 4}'),
        ("await odd_name(**{'not a name': 1})", '{"not a name": 1}'),
        ("len(await shout(50_000))", "200000"),
        ("(await whole())['for']", "scripts"),
        ("import json, re, math\njson.dumps([math.pi > 3, re.sub('a', 'b', 'a')])", '[true, "b"]'),
        (
            "import asyncio\nawait asyncio.gather(asyncio.sleep(0.01, 'a'), asyncio.sleep(0))",
            '["a", null]',
        ),
        ("import time\ntime.sleep(0.01)\n'slept'", "slept"),
        ("import re\nre.search('b', 'abc').group()", "b"),
        ("class P:\n  def __init__(self): self.x = 1\nP().x", "1"),
    ],
)
def test_only_what_a_script_says_is_shown(code: CodeMode, script: str, shown: str) -> None:
    result = code.run(script)
    assert (result.shown.text, result.error) == (shown, None)


def test_tools_are_awaited_together(code: CodeMode, counted: Counted) -> None:
    counted.most = 0
    result = code.run(
        "import asyncio\nrs = await asyncio.gather(*[read(n) for n in range(10)])\n"
        "[r['number'] for r in rs]"
    )
    assert json.loads(result.shown.text) == list(range(10))
    assert counted.most == 10
    assert len(result.calls) == 10
    assert {(call.tool, call.error) for call in result.calls} == {("read", None)}


def test_a_failed_call_can_be_caught(code: CodeMode) -> None:
    result = code.run(
        "import asyncio\n"
        "async def one(n):\n  try:\n    return await read(n)\n"
        "  except RuntimeError as error:\n    return error\n"
        "rs = await asyncio.gather(one(1), one(-1))\n"
        "text(rs[0]['number'])\ntext(str(rs[1]))\n"
        "try:\n  await read(load('none'))\n"
        "except ValueError as error:\n  text(str(error))"
    )
    assert result.shown.text.split("\n") == [
        "1",
        "read: failed: LookupError: no record -1",
        "read: invalid_arguments: /number: None is not of type 'integer'",
        "",
    ]
    assert [call.error for call in result.calls] == [None, "failed", "invalid_arguments"]


def test_output_and_calls_before_a_failure_remain(code: CodeMode, counted: Counted) -> None:
    before = len(counted.calls)
    result = code.run("text('found it')\nawait read(1)\nawait read(2)\ntext(1 / 0)\ntext('never')")
    assert result.error == "failed"
    lines = result.shown.text.split("\n")
    assert lines[0] == "found it"
    assert lines[1].startswith("[failed] Traceback")
    assert "ZeroDivisionError: division by zero" in lines
    assert "never" not in result.output
    assert lines[-1] == "Calls that had succeeded and are not undone: read 2."
    assert counted.calls[before:] == [1, 2]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("await read('a')", 'Expected `int`, found `Literal["a"]`'),
        ("await read()", "No argument provided for required parameter `number`"),
        ("await read(1, sahre=2)", "`sahre` does not match any known parameter"),
        ("r = read(1)\ntext(r)", "found `CoroutineType[Any, Any, Any]`"),
        ("await raed(1)", "raed: did you mean read?"),
        ("import socket", "Cannot resolve imported module `socket`"),
        ("def f(:", "invalid-syntax"),
        ("x = 1\nif x:\n  return 2", "`return` statement outside of a function"),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    code: CodeMode, counted: Counted, script: str, told: str
) -> None:
    before = len(counted.calls)
    result = code.run(f"await read(1)\ntext('ran')\n{script}")
    assert result.error == "type_errors"
    assert told in result.shown.text
    assert "Nothing was run." in result.shown.text
    assert (result.output, len(counted.calls)) == ("", before)


def test_values_are_kept_for_later_scripts_of_the_session(code: CodeMode) -> None:
    code.run("store('k', {'a': [1, 2]})")
    assert code.run("load('k')['a']").shown.text == "[1, 2]"
    assert code.run("k = 1").error is None
    assert code.run("load('gone', 'default')").shown.text == "default"
    assert "keeps JSON values only" in code.run("store('f', float('nan'))").shown.text
    other = CodeMode(code._directory)
    assert other.run("load('k')").shown.text == "(no output)"


def test_values_have_limits() -> None:
    directory, code = code_mode(value_bytes=100, values_bytes=250)
    with directory:
        assert "100" in code.run("store('a', 'x' * 200)").shown.text
        assert code.run("store('a', 'x' * 90)\nstore('b', 'x' * 90)").error is None
        assert "all values together" in code.run("store('c', 'x' * 90)").shown.text
        assert code.run("store('a', 'y' * 90)\nlen(load('a'))").shown.text == "90"


def test_what_a_tool_returns_has_a_limit() -> None:
    def long(size: int) -> str:
        """Return a long text."""
        return "x" * size

    def raw(size: int) -> bytes:
        """Return many bytes."""
        return b"x" * size

    directory, code = code_mode(long, raw, result_bytes=1_000)
    with directory:
        assert code.run("len(await long(1_000))").shown.text == "1000"
        assert code.run("len(await raw(1_000))").shown.text == "1000"
        told = code.run("await long(1_001)").shown.text
        assert "ValueError: long returned 1001 characters, too many for a script\n" in told
        told = code.run("await raw(1_001)").shown.text
        assert "ValueError: raw returned 1001 bytes, too many for a script\n" in told


def test_tools_are_found_and_described_in_a_script(code: CodeMode) -> None:
    found = json.loads(code.run("search_tools('a record')").shown.text)
    assert found[0] == {"name": "read", "function": "read", "description": "Read a record."}
    told = code.run("describe_tool('odd-name')").shown.text
    assert told.startswith("async def odd_name(**arguments: Any) -> Any\n")
    assert '"not a name"' in told
    assert "alike: read" in code.run("describe_tool('record')").shown.text


def test_full_texts_are_kept_outside(code: CodeMode) -> None:
    result = code.run(
        "h = save_output('\\n'.join(f'line {n}' for n in range(1, 5001)))\n"
        "text(search_output(h, 'line 4000$'))\n"
        "text(read_output(h, 17, 1))\n"
        "h"
    )
    lines = result.shown.text.split("\n")
    handle = lines[-1]
    assert lines == [
        f"[1 of 5000 rows of {handle} match]",
        "4000: line 4000",
        f"[rows 17-17 of 5000 of {handle}; go on with offset=18]",
        "line 17",
        handle,
    ]
    assert "no handle" in code.run("read_output('../../etc/passwd')").shown.text


def test_a_search_takes_no_longer_than_the_script_may(tmp_path: Path) -> None:
    directory, _ = code_mode(folder=tmp_path)
    limits, loop = CodeLimits(seconds=0.5), asyncio.new_event_loop()
    with directory:
        assert directory.outputs.store is not None
        handle = directory.outputs.store.put("a" * 64 + "!").handle
        search = Functions(directory, limits, Values(limits), loop).all()["search_output"]
        with pytest.raises(OutputError, match=r"longer than 0\.[1-4]"):
            search((handle, "(a+)+$"), {})
    loop.close()


def test_without_a_store_its_helpers_are_not_there() -> None:
    directory, code = code_mode()
    with directory:
        assert "save_output" not in code.tool.description
        assert code.run("save_output('a')").error == "type_errors"


def test_large_output_is_cut_and_kept(tmp_path: Path) -> None:
    directory, code = code_mode(folder=tmp_path, most=300)
    with directory:
        result = code.run("for n in range(20_000): print(f'row {n}')\n1 / 0")
        assert result.shown.tokens_after <= 300
        assert "ZeroDivisionError" in result.shown.text
        assert result.shown.handle is not None
        assert directory.outputs.store is not None
        assert directory.outputs.store.text(result.shown.handle) == result.output
        assert result.output.endswith("row 19999\n")


def test_coroutines_run_in_the_loop_of_the_caller() -> None:
    where: list[Any] = []

    async def here() -> str:
        """Say where."""
        where.append((asyncio.get_running_loop(), threading.current_thread()))
        return "here"

    async def main() -> None:
        assert (await code.arun("await here()")).shown.text == "here"
        assert where == [(asyncio.get_running_loop(), threading.current_thread())]

    directory, code = code_mode(here)
    with directory:
        asyncio.run(main())


def test_permission_and_time_hold_in_scripts_too() -> None:
    async def wait() -> None:
        """Wait."""
        await asyncio.sleep(60)

    directory = ToolDirectory(
        [wait, log_query],
        exposure="codemode",
        permit=lambda tool, arguments: tool.name == "wait",
        timeout=0.1,
    )
    with directory:
        code = CodeMode(directory)
        caught = "try:\n  await {}\nexcept {} as error:\n  text(str(error))"
        denied = code.run(caught.format("log_query('r')", "PermissionError"))
        assert denied.shown.text == "log_query: not_permitted: not allowed here\n"
        late = code.run(caught.format("wait()", "TimeoutError"))
        assert late.shown.text == "wait: timed_out: no result within 0.1 s\n"


def test_the_description_stays_what_it_was() -> None:
    directory, code = code_mode(log_query)
    with directory:
        session = directory.open()
        before = session.tools_bytes
        assert "async def log_query(run_id: str, lines: int = ...) -> Any" in before.decode()
        directory.add(plain_tool("later", "Came late.", n={"type": "integer"}))
        assert session.tools_bytes == before
        assert session.call("run_code", {"script": "await later(n=1)"}).content == '{"n": 1}'
        assert "Came late" not in code.tool.description
        directory.add(msgspec.structs.replace(plain_tool("remote"), source="mcp:x"))
        assert "remote()" not in CodeMode(directory).tool.description
        assert "Came late" in CodeMode(directory).tool.description


def test_the_list_of_tools_has_a_budget() -> None:
    tools = [plain_tool(f"tool_{n:03}", "word " * 30) for n in range(200)]
    small, large = (
        code_mode(*tools, catalog_tokens=most)[1].tool.description for most in (200, 2_000)
    )
    assert 0 < small.count("async def tool_") < large.count("async def tool_") < 200


@pytest.mark.parametrize("arguments", [{}, {"script": 3}, {"script": " "}, None])
def test_what_is_no_script_is_told(code: CodeMode, arguments: Any) -> None:
    outcome = asyncio.run(code.acall(arguments))
    assert outcome.error == "invalid_arguments"


def test_without_the_sandbox_there_are_no_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "need", lambda module, extra: need(f"{module}_gone", extra))
    directory = ToolDirectory([log_query], exposure="codemode")
    with pytest.raises(MissingExtraError) as caught:
        directory.open()
    assert str(caught.value) == (
        "'pydantic_monty_gone' is not installed. Run: pip install 'cacheaudit[codemode]'"
    )


def test_no_limit_can_be_left_out() -> None:
    with pytest.raises(ConfigError, match="memory"):
        CodeLimits(memory=0)


def test_in_the_sdks_tool_runner() -> None:
    script = "r = await log_query('run_42', 3)\ntext(r)"
    asked = message(content=[use("run_code", {"script": script})], stop_reason="tool_use")
    server = Script(Reply(asked))
    params: dict[str, Any] = {"model": MODEL, "max_tokens": 99}
    params["messages"] = [{"role": "user", "content": "go"}]
    directory, _ = code_mode(log_query)
    with directory, loopback(server) as url:
        sdk = anthropic.Anthropic(api_key=KEY, base_url=url)
        tool_runner(directory.open(), sdk, thread=False, **params).until_done()
    sent = [json.loads(body) for body in server.sent]
    result = sent[1]["messages"][-1]["content"][0]
    assert result["content"] == "run_42: 3 lines\n"
    assert sent[0]["tools"] == sent[1]["tools"]

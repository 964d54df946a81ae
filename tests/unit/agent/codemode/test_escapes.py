"""Whatever a script tries ends in an error within its limits; this process goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cacheaudit.agent.codemode.codemode import CodeMode
from tests.unit.agent.codemode.scripts import Counted, code_mode

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def counted() -> Counted:
    return Counted()


@pytest.fixture(scope="module")
def code(counted: Counted) -> Iterator[CodeMode]:
    def quick(number: int) -> int:
        """Return a number."""
        return number

    directory, made = code_mode(
        counted.read,
        quick,
        memory=64 << 20,
        compute_seconds=1.0,
        seconds=3.0,
        calls=200,
        helper_calls=2_000,
        output_bytes=1 << 20,
        result_bytes=1 << 20,
    )
    with directory:
        yield made


ESCAPES = [
    ("import socket", "type_errors", "Cannot resolve imported module"),
    ("import subprocess", "type_errors", "Cannot resolve imported module"),
    ("import ctypes", "type_errors", "Cannot resolve imported module"),
    ("import urllib.request", "type_errors", "Cannot resolve imported module"),
    ("import cacheaudit", "type_errors", "Cannot resolve imported module"),
    ("import os\nos.system('id')", "failed", "has no attribute 'system'"),
    ("import os\nos.fork()", "failed", "has no attribute 'fork'"),
    ("import os\nos.listdir('/')", "failed", "PermissionError"),
    ("import os\nprint(os.environ['HOME'])", "failed", "not supported"),
    ("import pathlib\npathlib.Path('/etc/passwd').read_text()", "failed", "PermissionError"),
    ("import pathlib\npathlib.Path('x').write_text('x')", "failed", "PermissionError"),
    ("open('/etc/passwd').read()", None, ""),
    ("eval('__import__(\"os\")')", None, "NameError"),
    ("().__class__.__base__.__subclasses__()", None, ""),
    ("read.__globals__", None, ""),
    ("read.__code__", None, ""),
    ("text.__self__", None, ""),
    ("getattr(text, '__glo' + 'bals__')", None, ""),
    ("[] .append.__self__.__class__", None, ""),
    ("while True: pass", "failed", "TimeoutError"),
    ("def f(): return f()\nf()", "failed", "RecursionError"),
    ("x = 'a' * 10**9", "failed", "MemoryError"),
    ("x = [0] * 10**9", "failed", "MemoryError"),
    ("x = 10 ** 10 ** 8", "failed", ""),
    ("x = []\nwhile True: x.append('a' * 10_000)", "failed", "MemoryError"),
    ("d = {}\nwhile True: d[len(d)] = d.copy()", "failed", ""),
    ("import re\nre.match(r'(a+)+$', 'a' * 60 + '!')\nwhile True: pass", "failed", "TimeoutError"),
    ("import time\ntime.sleep(100)", "failed", "TimeoutError: 100 s of sleep are more"),
    ("import asyncio\nawait asyncio.sleep(1e9)", "failed", "TimeoutError: 1e+09 s of sleep"),
    ("while True: text('x' * 1_000)", "failed", "output limit"),
    ("while True: print('x' * 1_000)", "failed", ""),
    ("while True:\n  try: text('x' * 10_000)\n  except Exception: pass", "failed", ""),
    ("while True:\n  try: await quick(1)\n  except Exception: pass", "failed", ""),
    ("for n in range(10_000): await quick(n)", "failed", "may call tools 200 times"),
    ("import asyncio\nawait asyncio.gather(*[quick(n) for n in range(10_000)])", "failed", "200"),
    ("for n in range(10_000): load('x')", "failed", "may call its helpers 2000 times"),
    ("x = " + "(" * 50_000 + ")" * 50_000, None, ""),
    ("x = " + "-" * 500_000 + "1", "syntax_error", "longer than 200000 characters"),
    ("x = " + "-" * 100_000 + "1", None, ""),
    ("\0", None, ""),
    ("import sys\nsys.exit(3)", None, ""),
    ("raise SystemExit(3)", "failed", ""),
    ("raise KeyboardInterrupt", "failed", ""),
    ("a = []\na.append(a)\nawait quick(a)", None, ""),
    ("a = []\nfor n in range(10_000): a = [a]\ntext(a)", None, ""),
    ("import asyncio\nawait asyncio.open_connection('127.0.0.1', 80)", None, "open_connection"),
    ("import asyncio\nasyncio.create_subprocess_exec('id')", None, "create_subprocess_exec"),
    ("open('/proc/self/environ').read()", None, "PermissionError"),
    ("import re\nre.search(r'(a*)*\\1b', 'a' * 5_000)", "failed", "backtracking"),
    ("import re\nre.compile('(' * 5_000 + ')' * 5_000)", "failed", "too deeply nested"),
    ("import re\nre.compile('(((a{1000}){1000}){1000})')", "failed", "PatternError"),
    ("x = '%1000000000d' % 1", "failed", "MemoryError"),
    ("x = 1 << (1 << 40)", "failed", "MemoryError"),
    ("import itertools\nx = list(itertools.repeat(1))", "failed", "MemoryError"),
    ("import asyncio\nwhile True: await asyncio.sleep(0)", "failed", "RuntimeError"),
    ("raise ValueError('x' * 20_000_000)", "failed", "ValueError"),
    ("excerpt('a\\n' * 1_000_000)", "failed", "excerpt(): 2000000 characters are too many"),
    ("search_tools('ab ' * 5_000_000)\n1 / 0", "failed", "ZeroDivisionError"),
    ("text('\\ud800' * 3)\n1 / 0", "failed", "ZeroDivisionError"),
]


ANY_ERROR = ("type_errors", "syntax_error", "failed")


@pytest.mark.parametrize(
    ("script", "error", "told"), ESCAPES, ids=[f"{n}" for n in range(len(ESCAPES))]
)
def test_it_ends_in_an_error(code: CodeMode, script: str, error: str | None, told: str) -> None:
    result = code.run(script)
    assert result.error == error if error else result.error in ANY_ERROR
    assert told in result.shown.text
    assert result.shown.tokens_after <= 4_000
    assert "root:" not in result.shown.text
    assert len(result.output) <= (1 << 20)
    assert code.run("6 * 7").shown.text == "42", "the next script runs"


def test_calls_beyond_the_limit_do_not_reach_tools(code: CodeMode, counted: Counted) -> None:
    counted.calls.clear()
    code.run(
        "import asyncio\nrs = await asyncio.gather(*[read(n) for n in range(500)],"
        " return_exceptions=True)\nlen(rs)"
    )
    assert len(counted.calls) <= 200


def test_a_script_that_waits_too_long_is_ended(counted: Counted) -> None:
    directory, code = code_mode(counted.read, seconds=0.5)
    with directory:
        result = code.run("text('begun')\nwhile True: await read(1)")
        assert result.error == "timed_out"
        assert result.shown.text.startswith(
            "begun\n[timed_out] the script did not end within 0.5 s"
        )
        assert code.run("6 * 7").shown.text == "42"


def test_a_worker_that_dies_is_replaced() -> None:
    def strike() -> None:
        """End the worker in the middle of a script, as the system might."""
        for task in Path(f"/proc/{os.getpid()}/task").iterdir():
            for pid in (task / "children").read_text().split():
                if b"monty" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)

    directory, code = code_mode(strike)
    with directory:
        assert code.run("6 * 7").shown.text == "42"
        result = code.run("text('before')\nawait strike()\ntext('after')")
        assert result.error == "worker_died"
        lines = result.shown.text.split("\n")
        assert lines[0] == "before"
        assert "after" not in result.output
        assert lines[-1] == "Calls that had succeeded and are not undone: strike 1."
        assert code.run("6 * 7").shown.text == "42"


PROGRAM = """
from tests.unit.agent.codemode.scripts import Counted, code_mode
directory, code = code_mode(Counted().read, seconds=0.3, compute_seconds=0.2)
print(code.run("(await read(1))['number']").shown.text)
print(code.run("while True: pass").error)
print(code.run("while True: await read(1)").error)
"""


def test_a_program_that_closes_nothing_ends_well() -> None:
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.stdout, done.stderr, done.returncode) == ("1\nfailed\ntimed_out\n", "", 0)


ENDING = """
import threading, time
from tests.unit.agent.codemode.scripts import Counted, code_mode
counted = Counted()
directory, code = code_mode(counted.read)
script = "await read(1)\\nwhile True: pass"
threading.Thread(target=lambda: code.run(script), daemon=True).start()
while not counted.calls or counted.running:
    time.sleep(0.01)
print(*code._sandbox._busy)
"""


def test_a_program_that_ends_takes_its_workers_along() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ENDING],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    (pid,) = done.stdout.split()
    for _ in range(100):
        if not Path(f"/proc/{pid}/cmdline").exists() or _is_dead(int(pid)):
            return
        time.sleep(0.05)
    raise AssertionError("the worker still runs")


FORKING = """
import os, sys
from tests.unit.agent.codemode.scripts import code_mode
from tests.unit.agent.tools.sample import log_query
directory, code = code_mode(log_query)
print(code.run("6 * 7").shown.text, flush=True)
child = os.fork()
if not child:
    print(code.run("6 * 7").message, flush=True)
    print(directory.open(exposure="direct").call("log_query", {"run_id": "r"}).content, flush=True)
    sys.exit(0)
os.waitpid(child, 0)
print(code.run("6 * 7").shown.text)
"""


def test_a_forked_process_is_told_and_its_parent_unhurt() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "42",
        "scripts do not run in a forked process; start it with the method 'spawn'",
        "r: 20 lines",
        "42",
    ]
    assert done.returncode == 0


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

"""Ends of programs, sudden ends, forks, and several processes on one file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cacheaudit import CacheAudit
from cacheaudit.store import open_store
from tests.unit.agent.servers import MODEL, Script, client

ROOT = Path(__file__).resolve().parents[3]
ASK = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
HEAD = """
import os, sys, time
from cacheaudit import CacheAudit
from tests.unit.agent.servers import MODEL, Script, client
ASK = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
audit = CacheAudit(sys.argv[1], "observe")
wrapped = audit.wrap(client(Script()))
"""


def start(db: Path, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + code, str(db)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err == ""
    return out


def counts(db: Path) -> dict[str, int]:
    with open_store(str(db)) as store:
        return {session.id: len(session.calls) for session in store.sessions()}


def test_a_program_that_just_ends_loses_nothing(tmp_path: Path) -> None:
    db = tmp_path / "usage.db"
    code = "with audit.session('s'):\n    for _ in range(7): wrapped.messages.create(**ASK)\n"
    finished(start(db, code))
    assert counts(db) == {"s": 7}


def test_a_program_that_ends_in_an_exception_loses_nothing(tmp_path: Path) -> None:
    db = tmp_path / "usage.db"
    code = "with audit.session('s'):\n    wrapped.messages.create(**ASK)\n    raise SystemExit(3)\n"
    process = start(db, code)
    process.communicate(timeout=120)
    assert process.returncode == 3
    assert counts(db) == {"s": 1}


def test_a_stream_open_at_the_end_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    db = tmp_path / "usage.db"
    code = (
        "with audit.session('s'):\n"
        "    stream = wrapped.messages.create(**ASK, stream=True)\n"
        "    it = iter(stream); next(it)\n"
    )
    finished(start(db, code))
    with open_store(str(db)) as store:
        (session,) = store.sessions()
    assert session.calls[0].usage is not None
    assert session.calls[0].usage.cache_read == 2000


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_program_loses_at_most_what_waited(tmp_path: Path) -> None:
    db = tmp_path / "usage.db"
    code = (
        "with audit.session('s'):\n"
        "    for _ in range(5): wrapped.messages.create(**ASK)\n"
        "    audit.flush()\n"
        "    for _ in range(3): wrapped.messages.create(**ASK)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = start(db, code)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate(timeout=60)
    assert 5 <= counts(db)["s"] <= 8


def test_several_processes_write_to_one_file(tmp_path: Path) -> None:
    db = tmp_path / "usage.db"
    code = (
        "with audit.session('p' + str(os.getpid())):\n"
        "    for _ in range(25): wrapped.messages.create(**ASK)\n"
        "assert audit.flush(60), audit.state\n"
        "assert audit.state.faults == {}, audit.state\n"
    )
    processes = [start(db, code) for _ in range(4)]
    for process in processes:
        finished(process)
    assert counts(db) == {f"p{process.pid}": 25 for process in processes}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_records_its_own_calls_and_none_of_its_parents(tmp_path: Path) -> None:
    db = tmp_path / "usage.db"
    code = """
import threading
from cacheaudit.agent import writer
with audit.session('parent'):
    for _ in range(10): wrapped.messages.create(**ASK)   # some still wait when the fork comes
    stream = wrapped.messages.create(**ASK, stream=True)
    it = iter(stream); next(it)
pid = os.fork()
if pid == 0:
    with audit.session('child'):
        for _ in range(4): wrapped.messages.create(**ASK)
    list(it)                                             # the parent's stream, read by the child
    sys.exit(0 if audit.close(60) else 4)
with audit.session('parent'):
    wrapped.messages.create(**ASK)
assert os.waitpid(pid, 0)[1] == 0
list(it)
assert audit.close(60)
assert audit.state.faults == {}, audit.state
"""
    finished(start(db, code))
    assert counts(db) == {"parent": 12, "child": 4}


def test_workers_of_a_forked_pool_are_recorded(tmp_path: Path) -> None:
    db = tmp_path / "usage.db"
    code = """
import multiprocessing

def work(number):
    with audit.session(f'w{number}'):
        wrapped.messages.create(**ASK)

context = multiprocessing.get_context('fork')
workers = [context.Process(target=work, args=(n,)) for n in range(3)]
for worker in workers: worker.start()
for worker in workers: worker.join()
assert [worker.exitcode for worker in workers] == [0, 0, 0]
"""
    finished(start(db, code))
    assert counts(db) == {"w0": 1, "w1": 1, "w2": 1}


def test_importing_the_package_stays_light() -> None:
    code = """
import sys
import cacheaudit
heavy = {'sqlalchemy', 'alembic', 'rich', 'pydantic', 'anthropic', 'httpx', 'httpx2', 'openai'}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert not [m for m in sys.modules if m.startswith('cacheaudit.')
            and m not in ('cacheaudit._version',)], sys.modules
from cacheaudit import CacheAudit, wrap
audit = CacheAudit('never-made.db')
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_audits_that_are_gone_are_let_go(tmp_path: Path) -> None:
    import gc
    import weakref

    audit = CacheAudit(tmp_path / "usage.db", "observe")
    audit.wrap(client(Script())).messages.create(**ASK)
    assert audit.close()
    gone = weakref.ref(audit)
    del audit
    deadline = time.monotonic() + 30
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
    assert gone() is None

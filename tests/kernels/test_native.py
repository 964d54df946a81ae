"""Compiling, finding, refusing and sharing the library; threads, forks and idleness."""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from local_backend.kernels import threads as policy
from local_backend.kernels.cpu import _build, _native
from local_backend.kernels.errors import KernelError
from local_backend.kernels.functional import linear, pack_weight

RUN = """
import torch
from local_backend.kernels.functional import pack_weight, linear
from local_backend.kernels.threads import native_status
x = torch.ones(2, 3)
assert linear(x, pack_weight(torch.ones(4, 3))).tolist() == [[3.0] * 4] * 2
print(native_status())
"""


def has_compiler() -> bool:
    return _native.native().library is not None


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no compiler on this machine")


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, _build.FOLDER: str(folder), **more}


def run(root: Path, folder: Path, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN],
        cwd=root,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def fake_compiler(folder: Path, script: str) -> str:
    """A compiler that is a shell script."""
    path = folder / "fakecc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def quick_compiler(folder: Path) -> str:
    """The real compiler, told not to optimise."""
    return fake_compiler(folder, f'exec {_build._compiler(os.environ)} "$@" -O0')


def test_without_a_compiler_everything_still_works(root: Path, tmp_path: Path) -> None:
    told = run(root, tmp_path, CC="no-such-compiler")
    assert told == "not compiled: no C compiler (no-such-compiler) is on the path"


def test_with_a_broken_compiler_everything_still_works(root: Path, tmp_path: Path) -> None:
    broken = fake_compiler(tmp_path, 'echo "x.c:1: error: cannot" >&2; exit 1')
    told = run(root, tmp_path / "cache", CC=broken)
    assert told.startswith("not compiled:")
    assert "x.c:1: error: cannot" in told
    assert list((tmp_path / "cache").iterdir()) == []


def test_can_be_switched_off(root: Path, tmp_path: Path) -> None:
    assert run(root, tmp_path, CACHEAUDIT_NATIVE="off") == "not compiled: CACHEAUDIT_NATIVE is off"


def test_words_that_the_switches_do_not_know_are_errors(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="CACHEAUDIT_NATIVE is 'on'; it may be: auto, no-amx"):
        _native.load({_native.MODE: "on"})
    if has_compiler():
        with pytest.raises(KernelError, match="CACHEAUDIT_THREADS is 'two'"):
            _native.load({**os.environ, _native.THREADS: "two"})


@needs_compiler
def test_compiled_once_for_a_digest_and_again_when_the_compiler_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(_build, "SOURCES", tmp_path / "sources")
    _build.SOURCES.mkdir()
    (_build.SOURCES / "one.c").write_text("int one(void) { return 1; }\n")
    real = _build._compiler(os.environ)
    script = f'[ "$1" = --version ] || echo run >> {log}; exec {real} "$@"'
    env = environment(tmp_path / "cache", CC=fake_compiler(tmp_path, script))
    first = _build.build(env, portable=True)
    assert _build.build(env, portable=True) == first
    assert log.read_text() == "run\n"
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert _build.build(environment(tmp_path / "cache"), portable=True) != first


@needs_compiler
def test_sources_and_flags_are_part_of_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = _build._compiler(os.environ)
    before = _build._digest(compiler, ("-O3",))
    assert _build._digest(compiler, ("-O2",)) != before
    for path in _build.SOURCES.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    monkeypatch.setattr(_build, "SOURCES", tmp_path)
    assert _build._digest(compiler, ("-O3",)) == before
    with (tmp_path / "fused.c").open("a") as stream:
        stream.write("/* changed */\n")
    assert _build._digest(compiler, ("-O3",)) != before
    monkeypatch.setattr(_build, "_processor", lambda: "another processor")
    assert _build._digest(compiler, ("-O3",)) != before


@needs_compiler
def test_several_processes_may_compile_at_the_same_time(root: Path, tmp_path: Path) -> None:
    quick = quick_compiler(tmp_path)
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RUN],
            cwd=root,
            env=environment(tmp_path / "cache", CACHEAUDIT_NATIVE="portable", CC=quick),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    told = [process.communicate()[0].strip() for process in started]
    assert all(line.startswith("compiled, vectors") for line in told), told
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".so"]


@needs_compiler
def test_a_library_that_was_cut_short_is_compiled_again(root: Path, tmp_path: Path) -> None:
    folder, quick = tmp_path / "cache", quick_compiler(tmp_path)
    path = _build.build(environment(folder, CC=quick), portable=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:20_000])
    assert run(root, folder, CACHEAUDIT_NATIVE="portable", CC=quick).startswith("compiled")
    assert len(path.read_bytes()) == len(whole)


@needs_compiler
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    found = _native.load(environment(tmp_path))
    assert found.library is None
    assert "others could write" in found.reason


def test_a_folder_that_cannot_be_made_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = _native.load(environment(tmp_path / "file" / "below"))
    assert found.library is None
    assert found.reason


def test_calls_without_a_library_are_errors() -> None:
    missing = _native.Native(None, "a reason")
    with pytest.raises(KernelError, match="missing: a reason"):
        missing.call("ck_linear", _native.LinearArguments())
    with pytest.raises(KernelError, match="missing: a reason"):
        missing.packed_bytes(1, 1, 0)
    assert missing.threads() == 1


def test_number_of_threads_is_checked_and_kept(threads: Callable[[int], None]) -> None:
    for wrong in ((0, 0), (1, -1)):
        with pytest.raises(ValueError, match="must be at least"):
            policy.set_threads(*wrong)
    policy.set_threads(3, 0)
    assert policy.threads() == (3 if has_compiler() else 1)


def work() -> torch.Tensor:
    x = torch.full((64, 576), 0.5)
    return linear(x, pack_weight(torch.ones(960, 576)))


@needs_compiler
@pytest.mark.parametrize("spin_us", [0, 50])
def test_idle_threads_sleep(threads: Callable[[int], None], spin_us: int) -> None:
    policy.set_threads(4, spin_us)
    for _ in range(20):
        assert float(work().min()) == 288
    time.sleep(0.02)
    before = time.process_time()
    time.sleep(0.4)
    assert time.process_time() - before < 0.1  # three spinning threads would take 1.2 s


@needs_compiler
def test_threads_of_python_may_call_at_the_same_time(threads: Callable[[int], None]) -> None:
    threads(3)
    right, wrong = work(), []

    def repeat() -> None:
        wrong.extend(1 for _ in range(30) if not torch.equal(work(), right))

    running = [threading.Thread(target=repeat) for _ in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong


def _child(pipe: object) -> None:
    pipe.send(float(work().min()))  # type: ignore[attr-defined]


@needs_compiler
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_has_threads_of_its_own(threads: Callable[[int], None]) -> None:
    threads(3)
    assert float(work().min()) == 288
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_child, args=(there,))
    child.start()
    assert here.poll(60)
    assert here.recv() == 288
    child.join()
    assert child.exitcode == 0
    assert float(work().min()) == 288

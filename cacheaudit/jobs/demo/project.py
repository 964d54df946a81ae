"""A small project with broken modules, and the tools that a coding agent works on it with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

_PATIENCE: Final = 20.0
_ROWS: Final = 14


class Issue(msgspec.Struct, frozen=True):
    """One thing to repair.

    Attributes:
        number: From 1.
        name: Module.
        wrong: Expression that is there.
        right: Expression that should be there.
        solvable: Whether the script knows the repair; one task in twelve fails, as in life.
    """

    number: int
    name: str
    wrong: str
    right: str
    solvable: bool = True

    @property
    def source(self) -> str:
        """Path of the module."""
        return f"{self.name}.py"

    @property
    def test(self) -> str:
        """Path of its test."""
        return f"test_{self.name}.py"

    def module(self, expression: str) -> str:
        """Write the module with an expression in it."""
        return (
            f'"""Part {self.number} of the demo."""\n\n\n'
            f"def {self.name}(values):\n    return {expression}\n"
        )


_KINDS: Final = (
    ("total", "sum(values) + 1", "sum(values)", "6"),
    ("largest", "min(values)", "max(values)", "3"),
    ("mean", "sum(values) / 2", "sum(values) / len(values)", "2.0"),
    ("ordered", "sorted(values)[:-1]", "sorted(values)", "[1, 2, 3]"),
)
_FAILING: Final = 11


def issues(count: int) -> list[Issue]:
    """Make so many of them."""
    found = []
    for number in range(1, count + 1):
        name, wrong, right, _ = _KINDS[(number - 1) % len(_KINDS)]
        is_solvable = number % 12 != _FAILING
        found.append(Issue(number, f"{name}_{number}", wrong, right, is_solvable))
    return found


class Project:
    """The files of one side, and tools on them. Nothing outside the folder can be reached.

    Args:
        folder: Where they are made.
        work: What is to be repaired.
        wait: Lets time pass while tests stand in a queue, in seconds.
    """

    def __init__(self, folder: Path, work: list[Issue], wait: Callable[[float], None]) -> None:
        self._folder = folder.resolve()
        self._wait = wait
        self._folder.mkdir(parents=True, exist_ok=True)
        self.queue_seconds = 0.0
        for issue in work:
            expected = _KINDS[(issue.number - 1) % len(_KINDS)][3]
            (self._folder / issue.source).write_text(issue.module(issue.wrong))
            (self._folder / issue.test).write_text(
                f"from {issue.name} import {issue.name}\n\n"
                f"found = {issue.name}([3, 1, 2])\n"
                f'assert found == {expected}, f"{issue.name}: {{found!r}} is not {expected}"\n'
                f'print("1 passed")\n'
            )
            for job in ("lint", "build", "unit"):
                (self._folder / f"{issue.name}.{job}.log").write_text(_log(issue, job, expected))

    def read_log(self, name: str) -> str:
        """Read the log of a job of the last night.

        Args:
            name: Module and job, such as total_1.unit.
        """
        return self._path(f"{name}.log").read_text()

    def read_file(self, path: str) -> str:
        """Read a file of the project.

        Args:
            path: Where it stands.
        """
        return self._path(path).read_text()

    def write_file(self, path: str, text: str) -> str:
        """Replace a file of the project.

        Args:
            path: Where it stands.
            text: Its new text.
        """
        self._path(path).write_text(text)
        return f"wrote {len(text)} characters"

    def run_tests(self, path: str) -> str:
        """Run a test file and return what it said.

        Args:
            path: Where it stands.
        """
        self._wait(self.queue_seconds)
        status, said = self.check(path)
        return f"{said.strip().splitlines()[-1] if said.strip() else ''}\nexit status {status}"

    def check(self, path: str) -> tuple[int, str]:
        """Run a test file: exit status, and what it said."""
        done = subprocess.run(  # noqa: S603 - our own interpreter and the demo's own file
            [sys.executable, "-B", self._path(path).name],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def tools(self) -> list[Callable[..., str]]:
        """The functions that the agent gets."""
        return [self.read_log, self.read_file, self.write_file, self.run_tests]

    def _path(self, name: str) -> Path:
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder):
            raise ValueError(f"{name!r} lies outside the project")
        return path


def _log(issue: Issue, job: str, expected: str) -> str:
    rows = [
        f"[{job}] step {row:02}: checked {issue.name}.py part {row * 7 % 31}, nothing to say"
        for row in range(_ROWS)
    ]
    if job == "unit":
        rows.insert(9, f"[unit] FAIL {issue.test}: {issue.name}([3, 1, 2]) is not {expected}")
        rows.append("[unit] exit status 1")
    return "\n".join(rows)

"""The command line that works a result out again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from cacheaudit.jobs.inputs import Inputs
from cacheaudit.model.clock import iso

_PROGRAM: Final = "cacheaudit"
_PASSWORD: Final = re.compile(r"(?<=://)([^:/@?]*):[^@/]*@")
_SECRET: Final = re.compile(r"([?&][^=&]*(?:passw|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)


class Commands:
    """Writes command lines about the same inputs, with paths as the user gave them.

    Args:
        inputs: What was read.
        more: Options and their values that every ``simulate`` of it takes.
    """

    def __init__(self, inputs: Inputs, more: Sequence[str] = ()) -> None:
        self._inputs = inputs
        self._more = tuple(more)

    def audit(self, *, show_text: bool = False) -> str:
        """Audit the inputs."""
        shown = ["--show-text"] if show_text else []
        chosen = self._inputs.selection.words()
        quick = ["--quick"] if self._inputs.quick else []
        files = [word for file in self._inputs.replayed for word in ("--replayed", str(file))]
        options = [*self._period(), *self._switches(), *chosen, *quick, *files, *shown]
        return self._line("audit", options)

    def backtest(self, policy: str) -> str:
        """Try a lifetime setting on the inputs."""
        return self._line("backtest", [*self._period(), "--policy", policy])

    def simulate(self, edits: Iterable[str]) -> str | None:
        """Simulate edits of the inputs; ``None`` where ``simulate`` cannot be given them."""
        inputs = self._inputs
        if not inputs.paths or inputs.since is not None or inputs.until is not None:
            return None
        options = [word for edit in edits for word in ("--edit", edit)]
        return self._line("simulate", [*options, *self._switches(), *self._more])

    def _switches(self) -> list[str]:
        changed = self._inputs.switches.changed().items()
        return [word for name, value in changed for word in ("--switch", f"{name}={value}")]

    def _period(self) -> list[str]:
        inputs = self._inputs
        words: list[str] = []
        if inputs.since is not None:
            words += ["--since", iso(inputs.since)]
        if inputs.until is not None:
            words += ["--until", iso(inputs.until)]
        return words

    def _line(self, name: str, options: Sequence[str]) -> str:
        inputs = self._inputs
        words = [*options, *(word for file in inputs.prices for word in ("--prices", str(file)))]
        if inputs.db is not None:
            words += ["--db", without_password(inputs.db)]
        paths = [str(path) for path in inputs.paths]
        if any(path.startswith("-") for path in paths):
            return shlex.join([_PROGRAM, name, *words, "--", *paths])
        return shlex.join([_PROGRAM, name, *paths, *words])


def without_password(url: str) -> str:
    """Hide the secrets of a database's address."""
    return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))

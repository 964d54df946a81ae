"""Other tools that read the same transcripts: how to get them, run them and read their totals."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PYTHON = ("cachemiss==0.2.0", "kvleak==0.12.0")
_NODE = ("ccusage@20.0.24", "@tokscale/core@1.4.3")
_HERE = Path(__file__).resolve().parent

Totals = dict[str, int]


class NotAvailableError(Exception):
    """The tools cannot be had here."""


@dataclass(frozen=True)
class Tool:
    """A command to measure.

    Attributes:
        name: As printed.
        does: ``totals``, ``audit``, or ``nothing`` for reading alone.
        command: What to run.
        totals: Reads its totals out of its JSON.
        environment: Variables that tell it where the corpus is.
    """

    name: str
    does: str
    command: tuple[str, ...]
    totals: Callable[[Any], Totals]
    environment: Mapping[str, str] = field(default_factory=dict)


def ours(python: str, corpus: Path) -> list[Tool]:
    """Return our own two commands."""
    program = str(Path(python).with_name("cacheaudit"))
    return [
        Tool(f"cacheaudit {verb}", does, (program, verb, str(corpus), "--json"), _our_totals)
        for verb, does in (("usage", "totals"), ("audit", "audit"))
    ]


def reading(python: str, corpus: Path) -> Tool:
    """Return what every tool has to do at least: read the files."""
    command = (python, "-I", "-S", str(_HERE / "reader.py"), str(corpus / "projects"))
    return Tool("reading alone", "nothing", command, lambda found: dict(found))


def peers(cache: Path, corpus: Path, home: Path) -> list[Tool]:
    """Install the other tools below ``cache`` where they are missing, and return their commands.

    Args:
        cache: Keeps the installed tools.
        corpus: What they read; need not be there yet.
        home: A folder of one's own, which becomes the home folder whose ``.claude`` is the corpus.

    Raises:
        NotAvailableError: They are not there and cannot be fetched.
    """
    _install_python(cache)
    _install_node(cache)
    home.mkdir(parents=True, exist_ok=True)
    (home / ".claude").symlink_to(corpus)
    projects = str(corpus / "projects")
    bin_ = cache / "python" / "bin"
    modules = cache / "node" / "node_modules"
    node = str(shutil.which("node"))
    return [
        Tool(
            "ccusage 20.0.24",
            "totals",
            (str(modules / ".bin" / "ccusage"), "claude", "daily", "--offline", "--json"),
            _ccusage_totals,
            {"CLAUDE_CONFIG_DIR": str(corpus)},
        ),
        Tool(
            "tokscale core 1.4.3",
            "totals",
            (node, str(_HERE / "tokscale.js"), str(modules / "@tokscale" / "core"), str(home)),
            lambda found: dict(found),
        ),
        Tool(
            "cachemiss 0.2.0",
            "audit",
            (str(bin_ / "cachemiss"), "--root", projects, "ledger", "--since", "all", "--json"),
            _cachemiss_totals,
        ),
        Tool(
            "kvleak 0.12.0",
            "audit",
            (str(bin_ / "kvleak"), "audit", "--path", projects, "--json"),
            _kvleak_totals,
        ),
    ]


def _our_totals(found: Any) -> Totals:
    totals = found["totals"]
    return {
        "calls": totals["calls"],
        "uncached_input": totals["uncached_input"],
        "cache_read": totals["cache_read"],
        "cache_write_5m": totals["cache_write"]["5m"],
        "cache_write_1h": totals["cache_write"]["1h"],
        "output": totals["output"],
    }


def _ccusage_totals(found: Any) -> Totals:
    totals = found["totals"]
    return {
        "uncached_input": totals["inputTokens"],
        "cache_read": totals["cacheReadTokens"],
        "output": totals["outputTokens"],
    }


def _cachemiss_totals(found: Any) -> Totals:
    return {
        "calls": found["calls"],
        "uncached_input": found["input_tokens"],
        "cache_read": found["cache_read"],
        "output": found["output_tokens"],
    }


def _kvleak_totals(found: Any) -> Totals:
    return {
        "calls": found["steps"],
        "uncached_input": found["input"],
        "cache_read": found["read"],
        "cache_write_5m": found["write_5m"],
        "cache_write_1h": found["write_1h"],
        "output": found["output"],
    }


def _install_python(cache: Path) -> None:
    folder = cache / "python"
    if (folder / "installed").exists():
        return
    venv.create(folder, with_pip=False, clear=True)
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install")
    _fetch((*pip, "--quiet", "--disable-pip-version-check", *_PYTHON))
    (folder / "installed").touch()


def _install_node(cache: Path) -> None:
    folder = cache / "node"
    if (folder / "installed").exists():
        return
    if shutil.which("npm") is None:
        raise NotAvailableError("npm is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    options = ("--no-audit", "--no-fund", "--silent", "--prefix", str(folder))
    _fetch(("npm", "install", *options, *_NODE))
    (folder / "installed").touch()


def _fetch(command: tuple[str, ...]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NotAvailableError(
            f"{command[0]} could not fetch the other tools: {done.stderr[-300:]}"
        )

"""Runs the command line in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner, Result

from cacheaudit.cli import main
from cacheaudit.cli._machine import Machine
from cacheaudit.model.clock import FixedClock

ROOT = Path(__file__).resolve().parents[3]
# 2026-11-30T00:00:00Z
NOW = 1_795_996_800.0
LOG = """\
id,session,model,provider,started_at,total_input,cache_write,cache_read,output,cache_write_ttl
r1,s1,claude-sonnet-4-6,anthropic,2026-11-03T10:00:00Z,8500,8500,0,300,5m
r2,s1,claude-sonnet-4-6,anthropic,2026-11-03T10:00:30Z,10000,1500,8500,300,5m
r3,s1,claude-sonnet-4-6,anthropic,2026-11-03T10:10:00Z,11500,11500,0,300,5m
r4,s1,claude-sonnet-4-6,anthropic,2026-11-04T10:00:00Z,13000,13000,0,300,5m
"""


def run(home: Path, *args: str, env: dict[str, str] | None = None) -> Result:
    """Run a command with a home of its own and a clock that stands still."""
    environment = {"HOME": str(home), **(env or {})}
    machine = Machine(environment, home, FixedClock(NOW))
    return CliRunner().invoke(main, list(args), obj=machine, prog_name="cacheaudit", env=env)


def process(
    home: Path, *args: str, env: dict[str, str] | None = None, **options: object
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as users do."""
    environment = {**os.environ, "HOME": str(home), **(env or {})}
    command: Sequence[str] = [sys.executable, "-m", "cacheaudit", *args]
    settings: dict[str, object] = {"capture_output": True, "timeout": 120, **options}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, **settings)  # type: ignore[call-overload, no-any-return]


def log(folder: Path, text: str = LOG) -> Path:
    """Write a small usage log."""
    file = folder / "log.csv"
    file.write_text(text)
    return file

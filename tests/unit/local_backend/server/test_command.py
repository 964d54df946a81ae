"""``cacheaudit serve`` where the engine is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HIDDEN = (
    "import sys; sys.modules['local_backend'] = None; sys.argv = ['cacheaudit', 'serve', {}];"
    "from cacheaudit.cli import main; main()"
)


def run(root: Path, option: str) -> tuple[int, str, str]:
    code = HIDDEN.format(repr(option))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    return done.returncode, done.stdout, done.stderr


def test_the_command_that_installs_it_is_named(root: Path) -> None:
    assert run(root, "--port") == (
        2,
        "",
        "Error: The local engine is not installed.\n  Run: pip install 'cacheaudit[local]'\n",
    )


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_works_all_the_same(root: Path, option: str) -> None:
    code, out, errors = run(root, option)
    assert (code, errors) == (0, "")
    assert "Serve a local model" in out


def test_the_auditor_does_not_import_the_engine(root: Path) -> None:
    code = (
        "import sys; from cacheaudit.cli import main, serve;"
        "print([m for m in sys.modules if m.startswith(('local_backend', 'torch'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "[]", done.stderr

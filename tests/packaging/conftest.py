"""Builds both wheels once, however many test processes there are, and makes environments."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.packaging.helpers import build

ROOT = Path(__file__).resolve().parents[2]
_NO_REGISTRY = re.compile(
    r"No matching distribution|Could not find a version|Temporary failure|Name or service|"
    r"Connection (refused|error)|Max retries|ReadTimeout|ProxyError",
    re.IGNORECASE,
)


class Environment:
    """A fresh virtual environment without pip; packages are put in from outside."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.folder = folder
        self.python = folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Where its packages lie."""
        (found,) = self.folder.glob("lib/python3*/site-packages")
        return found

    def install(self, *arguments: str | Path) -> None:
        """Install from files or the registry; without a registry the test is skipped, not in CI."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet"]
        done = subprocess.run(
            [*command, "--disable-pip-version-check", *map(str, arguments)],
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            return
        if _NO_REGISTRY.search(done.stderr) and not os.environ.get("CI"):
            pytest.skip("no package registry can be reached from here")
        pytest.fail(f"pip install {arguments} failed:\n{done.stderr}")

    def borrow(self) -> None:
        """Let it find what is installed here, behind its own packages: no registry is asked."""
        ours = sysconfig.get_path("purelib")
        (self.packages / "borrowed.pth").write_text(f"{ours}\n")

    def run(
        self, *command: str | Path, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, away from the checkout."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        return subprocess.run(
            [str(part) for part in command],
            cwd=cwd or self.folder,
            env=environment,
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels, built from the checkout."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wheels"
    with _locked(folder.with_suffix(".lock")):
        if not folder.exists():
            part = folder.with_suffix(".part")
            for source in (ROOT, ROOT / "local_backend"):
                build(source, part, "--wheel")
            part.rename(folder)
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@pytest.fixture
def new_environment(tmp_path: Path) -> Callable[[str], Environment]:
    """Makes an environment of the given name."""
    return lambda name: Environment(tmp_path / name)

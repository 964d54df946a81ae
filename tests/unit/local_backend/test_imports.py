"""What importing the engine loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LIGHT = (
    "local_backend",
    "local_backend.models",
    "local_backend.models.registry",
    "local_backend.models.packages",
    "local_backend.layers",
    "local_backend.tokenizer.from_file",
    "local_backend.tokenizer.byte_level",
    "local_backend.tokenizer.template",
)


def test_no_numeric_library_before_a_model_is_loaded(root: Path) -> None:
    code = (
        f"import importlib, sys; [importlib.import_module(name) for name in {LIGHT!r}];"
        "print([m for m in ('torch', 'numpy', 'gguf', 'jinja2', 'regex') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_without_torch_the_command_is_named(root: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None;"
        "from local_backend.models.registry import load;"
        "from local_backend.errors import MissingPackageError\n"
        "try: load('tiny')\n"
        "except MissingPackageError as error: print(error.message, '|', error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        "'torch' is not installed; running a model needs it."
        " | Run: pip install 'cacheaudit-local[torch]'"
    )


@pytest.mark.parametrize(
    ("module", "package"),
    [("jinja2.sandbox", "jinja2"), ("gguf.quants", "gguf"), ("regex", "regex")],
)
def test_what_is_missing_is_named_by_its_package(root: Path, module: str, package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None;"
        "from local_backend._lazy import need\n"
        f"try: need({module!r}, 'this')\n"
        "except Exception as error: print(error.message, '|', error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == (
        f"'{package}' is not installed; this needs it. | Run: pip install 'cacheaudit[local]'"
    )

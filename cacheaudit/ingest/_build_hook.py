"""Compiles the optional scanner while a wheel is built; it runs in the build alone.

Only hatchling and the standard library are there then, so nothing of cacheaudit is imported.
Without the scanner the wheel is pure Python and does the same, more slowly.
"""

from __future__ import annotations

import importlib.machinery
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from typing_extensions import override
else:
    _T = TypeVar("_T")

    def override(method: _T) -> _T:
        """Mark a method that replaces one of the base class."""
        return method


SOURCE = "cacheaudit/ingest/_lines.c"
LIBRARY = "cacheaudit/ingest/_lines.abi3.so"
PURE = "CACHEAUDIT_PURE"
_INTERPRETER = "cp311-abi3"
_NO = frozenset({"", "0", "false", "no", "off"})
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-DNDEBUG")
_LIMITED = "-DPy_LIMITED_API=0x030b0000"
_LIMIT_S = 60


class NotBuiltError(Exception):
    """Why there is no scanner, in one line."""


class ScannerBuildHook(BuildHookInterface[Any]):
    """Puts the compiled scanner into a wheel, or beside its source for an editable install.

    A wheel takes it from a temporary folder: what lies in the checkout neither gets into a wheel
    nor is changed by building one.
    """

    _folder: tempfile.TemporaryDirectory[str] | None = None

    @override
    def clean(self, versions: list[str]) -> None:  # noqa: ARG002 - the arguments are hatchling's
        """Remove what an editable install left in the checkout."""
        (Path(self.root) / LIBRARY).unlink(missing_ok=True)

    @override
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; where that fails, say so and leave the wheel pure.

        Args:
            version: ``standard`` or ``editable``.
            build_data: What hatchling makes the wheel of; the scanner and the tag are entered.
        """
        source, library = Path(self.root) / SOURCE, Path(self.root) / LIBRARY
        editable = version == "editable"
        self._folder = tempfile.TemporaryDirectory(prefix="cacheaudit-")
        made = Path(self._folder.name) / library.name
        try:
            compile_scanner(source, made, os.environ)
            if editable:
                _put(made, library)
        except NotBuiltError as why:
            if editable:
                # One of an older source must not stay in use.
                library.unlink(missing_ok=True)
            self.app.display_warning(
                f"cacheaudit: no compiled scanner ({why}); everything works, transcripts are read"
                " more slowly"
            )
            return
        if not editable:
            platform = self.build_config.builder.get_best_matching_tag().rpartition("-")[2]
            build_data["tag"] = f"{_INTERPRETER}-{platform}"
            build_data["pure_python"] = False
            build_data["force_include"][str(made)] = LIBRARY

    @override
    def finalize(
        self,
        version: str,  # noqa: ARG002
        build_data: dict[str, Any],  # noqa: ARG002
        artifact_path: str,  # noqa: ARG002
    ) -> None:
        """Remove the temporary folder."""
        if self._folder is not None:
            self._folder.cleanup()


def compile_scanner(source: Path, library: Path, environment: Mapping[str, str]) -> None:
    """Compile the C file for every CPython from 3.11 on.

    Args:
        source: The C file.
        library: Where the module is written.
        environment: Where ``CACHEAUDIT_PURE``, ``CC``, ``CFLAGS``, ``LDFLAGS`` and the path are
            looked up.

    Raises:
        NotBuiltError: It is not wanted, cannot be used by this Python, or cannot be compiled.
    """
    if environment.get(PURE, "").strip().lower() not in _NO:
        raise NotBuiltError(f"{PURE} is set")
    if ".abi3.so" not in importlib.machinery.EXTENSION_SUFFIXES:
        raise NotBuiltError("this Python has no stable ABI for it")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        raise NotBuiltError(f"the headers of Python are not in {str(headers)!r}")
    link = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    command = [
        *(*_compiler(environment), *_FLAGS, _LIMITED, *_words(environment, "CFLAGS")),
        *("-I", str(headers), str(source), *link, "-o", str(library)),
        *_words(environment, "LDFLAGS"),
        *(_words(environment, "ARCHFLAGS") if sys.platform == "darwin" else ()),
    ]
    try:
        done = subprocess.run(  # noqa: S603 - the compiler that the user chose, our own file
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotBuiltError(f"{command[0]}: {error}") from None
    if done.returncode:
        told = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        why = next((line for line in told if "error" in line), told[-1])
        raise NotBuiltError(f"{command[0]} failed: {why}")


def _compiler(environment: Mapping[str, str]) -> list[str]:
    """The compiler that is asked for, else the one Python was built with, else any."""
    chosen = environment.get("CC", "").strip()
    own = sysconfig.get_config_var("CC") or ""
    for candidate in (chosen,) if chosen else (own, *_COMPILERS):
        words = shlex.split(candidate)
        if words and shutil.which(words[0], path=environment.get("PATH")):
            return words
    raise NotBuiltError(f"no C compiler ({chosen or ', '.join(_COMPILERS)}) is on the path")


def _words(environment: Mapping[str, str], name: str) -> list[str]:
    return shlex.split(environment.get(name, ""))


def _put(made: Path, library: Path) -> None:
    """Replace the module in one step: programs may have the old one loaded."""
    part = library.with_name(f"{library.name}.{os.getpid()}")
    try:
        shutil.copyfile(made, part)
        part.replace(library)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise NotBuiltError(f"{str(library)!r} cannot be written: {error.strerror}") from None

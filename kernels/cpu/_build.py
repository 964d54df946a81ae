"""Compiles the C files once for a processor, a compiler and a version of the files."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

SOURCES = Path(__file__).with_name("native")
FOLDER = "CACHEAUDIT_KERNEL_CACHE"
COMPILERS = ("gcc", "cc", "clang")
_COMMON = (
    *("-O3", "-std=gnu11", "-fPIC", "-shared", "-pthread"),
    # Products and sums are fused where the code says so: results must not hang on inlining.
    *("-ffp-contract=off", "-fno-math-errno", "-Wno-psabi"),
)
# In this order; an old assembler may not know the matrix unit.
_TUNED = (("-march=native",), ("-march=native", "-DCK_NO_AMX"))
_LIMIT_S = 300
_SEAL = 16


class BuildError(Exception):
    """Why there is no library; callers fall back and say so."""


def build(environment: Mapping[str, str], *, portable: bool = False) -> Path:
    """Return the compiled library, from the cache where it is there.

    Args:
        environment: Where ``CC``, ``CACHEAUDIT_KERNEL_CACHE`` and the home folder are looked up.
        portable: Whether to do without the instructions of this processor.

    Raises:
        BuildError: There is no compiler, it failed, or nothing can be written.
    """
    compiler = _compiler(environment)
    folder = _folder(environment)
    attempts = [()] if portable else [*_TUNED, ()]
    failure = ""
    for flags in attempts:
        library = folder / f"kernels-{_digest(compiler, (*_COMMON, *flags))}.so"
        if _is_whole(library):
            return library
        failure = _compile(compiler, (*_COMMON, *flags), library)
        if not failure:
            return library
    raise BuildError(f"{compiler} failed: {failure}")


def _compiler(environment: Mapping[str, str]) -> str:
    chosen = environment.get("CC", "").strip()
    for name in (chosen,) if chosen else COMPILERS:
        if found := shutil.which(name, path=environment.get("PATH")):
            return found
    raise BuildError(f"no C compiler ({chosen or ', '.join(COMPILERS)}) is on the path")


def _folder(environment: Mapping[str, str]) -> Path:
    """The cache folder, made if need be; code is run from it, so nobody else may write there."""
    if given := environment.get(FOLDER):
        folder = Path(given)
    else:
        base = environment.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "cacheaudit" / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise BuildError(f"the folder {str(folder)!r} cannot be made: {error.strerror}") from None
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BuildError(
            f"others could write to {str(folder)!r}; set {FOLDER} to a folder of yours"
        )
    return folder


def _digest(compiler: str, flags: Sequence[str]) -> str:
    """Everything that decides what the compiler makes, in a few letters."""
    parts = [compiler, _version(compiler), platform.machine(), _processor(), *flags]
    for path in sorted(SOURCES.iterdir()):
        parts += [path.name, path.read_text("utf-8")]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=10).hexdigest()


@functools.cache
def _version(compiler: str) -> str:
    done = subprocess.run(  # noqa: S603 - the compiler that the user chose
        [compiler, "--version"], capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    return done.stdout


@functools.cache
def _processor() -> str:
    """Model and abilities of the processor: a shared folder may serve several machines."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        told = [line for line in lines if line.startswith(("flags", "model name", "Features"))]
        return "\n".join(sorted(set(told)))
    return platform.processor()


def _seal(made: bytes) -> bytes:
    """What is appended to a library: loading one that a crash cut short would end the process."""
    return hashlib.blake2b(made, digest_size=_SEAL).digest()


def _is_whole(library: Path) -> bool:
    try:
        found = library.read_bytes()
    except OSError:
        return False
    return len(found) > _SEAL and _seal(found[:-_SEAL]) == found[-_SEAL:]


def _compile(compiler: str, flags: Sequence[str], library: Path) -> str:
    """Compile to a name of its own and put it in place in one step; return what went wrong."""
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    try:
        handle, name = tempfile.mkstemp(dir=library.parent, prefix=".part-", suffix=".so")
    except OSError as error:
        raise BuildError(
            f"{str(library.parent)!r} cannot be written: {error.strerror}; set {FOLDER}"
        ) from None
    os.close(handle)
    part = Path(name)
    try:
        done = subprocess.run(  # noqa: S603 - the compiler that the user chose, our own files
            [compiler, *flags, "-o", name, *sources, "-lm"],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if done.returncode:
            told = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return next((line for line in told if "error" in line), told[-1])
        made = part.read_bytes()
        part.write_bytes(made + _seal(made))
        part.replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        part.unlink(missing_ok=True)
    return ""

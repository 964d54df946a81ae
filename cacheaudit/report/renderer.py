"""What a renderer is, and how one is found. One file each in ``cacheaudit.report.renderers``."""

from __future__ import annotations

import importlib
import pkgutil
from typing import BinaryIO, Protocol

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.report import renderers as package
from cacheaudit.report.result import AuditResult, UsageResult


class View(msgspec.Struct, frozen=True, kw_only=True):
    """How a result is to be shown.

    Attributes:
        width: Columns of the terminal.
        color: Whether terminal colours may be used.
        verbose: Whether everything is shown that is shortened otherwise.
        encoding: Encoding of a terminal's text.
    """

    width: int = 100
    color: bool = False
    verbose: bool = False
    encoding: str = "utf-8"


class Renderer(Protocol):
    """Writes a result to a binary stream, piece by piece where it can be long."""

    name: str
    suffix: str

    def audit(self, result: AuditResult, out: BinaryIO, view: View) -> None:
        """Write the result of an audit."""
        ...

    def usage(self, result: UsageResult, out: BinaryIO, view: View) -> None:
        """Write totals.

        Raises:
            UsageError: The format has no form for totals.
        """
        ...


def names() -> tuple[str, ...]:
    """Return the names of all formats, without importing one."""
    found = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    return tuple(name for name in found if not name.startswith("_"))


def renderer(name: str) -> Renderer:
    """Import one renderer.

    Raises:
        UsageError: There is none of that name.
    """
    if name not in names():
        raise UsageError(f"There is no format {name!r}.", f"Known formats: {', '.join(names())}.")
    module = importlib.import_module(f"{package.__name__}.{name}")
    found: Renderer = module.RENDERER
    return found


def not_for_usage(name: str) -> UsageError:
    """Make the error of a format that only an audit has."""
    return UsageError(
        f"{name!r} has no form for totals alone.",
        f"Use text, json, csv or md, or run: cacheaudit audit --format {name}",
    )

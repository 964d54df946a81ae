"""Reads what a docstring says of a function and of its arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

_SECTION: Final = re.compile(
    r"^(?:Args|Arguments|Parameters|Params|Keyword Arg(?:ument)?s|Attributes|Returns?|Yields?"
    r"|Raises|Warns|Warnings?|Examples?|Notes?|References|See Also|Todo):\s*$"
)
_ARGUMENTS: Final = frozenset(
    {"Args:", "Arguments:", "Parameters:", "Params:", "Keyword Args:", "Keyword Arguments:"}
)
_GOOGLE: Final = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_FIELD: Final = re.compile(r"^:param\s+(?:\S+\s+)?(\w+)\s*:\s*(.*)$")
_ANY_FIELD: Final = re.compile(r"^:\w+[^:]*:")


def describe(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description of a function and one for each argument that has one.

    Sections for arguments are read as Google and reStructuredText write them; sections on what is
    returned or raised are left out.
    """
    lines = inspect.cleandoc(function.__doc__ or "").splitlines()
    text: list[str] = []
    arguments: dict[str, str] = {}
    current = ""
    for section, line in _with_sections(lines):
        field = _FIELD.match(line)
        if field:
            current = field[1]
            arguments[current] = field[2].strip()
        elif _ANY_FIELD.match(line):
            current = ""
        elif section is None and current and line.startswith(" "):
            arguments[current] += f" {line.strip()}"
        elif section is None:
            current = ""
            text.append(line)
        elif section in _ARGUMENTS:
            current = _argument(line, current, arguments)
    return "\n".join(text).strip(), arguments


def _with_sections(lines: list[str]) -> Iterator[tuple[str | None, str]]:
    section: str | None = None
    for line in lines:
        if _SECTION.match(line):
            section = line.strip()
            continue
        if section is not None and line and not line.startswith(" "):
            section = None
        yield section, line


def _argument(line: str, current: str, arguments: dict[str, str]) -> str:
    """Read a line of the arguments' section; returns the argument that it belongs to."""
    if not line.strip():
        return current
    depth = len(line) - len(line.lstrip())
    found = _GOOGLE.match(line.strip()) if depth <= 4 else None
    if found:
        arguments[found[1]] = found[2].strip()
        return found[1]
    if current:
        arguments[current] = f"{arguments[current]} {line.strip()}".strip()
    return current

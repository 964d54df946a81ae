"""Tells type errors that are mistakes from those where the checker knows less than the interpreter.

A script that would work must not be refused for the sake of its types: what a match or a gathered
exception might be is left to the run. What is certain is told before anything happens: calls of
tools that do not fit, names and modules that do not exist, a forgotten await, broken syntax.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection, Iterator
from typing import Final

_LINE: Final = re.compile(r"^[^\s:]+:\d+:\d+: \w+\[([\w-]+)\] (.*)$")
_ALWAYS: Final = frozenset({"invalid-syntax", "unresolved-import", "unused-awaitable"})
_CALLS: Final = frozenset(
    {
        "invalid-argument-type",
        "missing-argument",
        "unknown-argument",
        "too-many-positional-arguments",
        "parameter-already-assigned",
    }
)
_QUOTED: Final = re.compile(r"`(\w+)`")


def serious(message: str, functions: Collection[str]) -> bool:
    """Tell whether one of the checker's findings is a mistake for certain.

    Args:
        message: What the checker said, one finding a line.
        functions: Names of tools and helpers.
    """
    findings = list(_findings(message))
    return not findings or any(_is_mistake(code, text, functions) for code, text in findings)


def _findings(message: str) -> Iterator[tuple[str, str]]:
    for line in message.splitlines():
        found = _LINE.match(line)
        if found:
            yield found[1], found[2]


def _is_mistake(code: str, text: str, functions: Collection[str]) -> bool:
    if code in _ALWAYS or "CoroutineType" in text:
        return True
    names = _QUOTED.findall(text)
    if code == "unresolved-reference":
        # The checker's own library lacks some names that the interpreter has.
        return not (names and hasattr(builtins, names[0]))
    return code in _CALLS and any(name in functions for name in names)

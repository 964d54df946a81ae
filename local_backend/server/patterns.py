"""Texts that fit a regular expression, made from it instead of searched for.

Trying guesses would let an expression that backtracks stop the server; this takes time that grows
with the text it makes.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MOST_CHARACTERS = 10_000
_DEEPEST = 50
# The standard library keeps its parser of expressions in a module of its own.
_parser = importlib.import_module("re._parser")
_CATEGORIES: Mapping[str, str] = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_NOT_DIGIT": "abcdefghij",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_SPACE": "abcdefghij",
    "CATEGORY_WORD": "abcdefghij_0123456789",
    "CATEGORY_NOT_WORD": "-",
}
_ANY = "abcdefghijklmnopqrstuvwxyz0123456789-_ "
# Any of these can make what was written before wrong.
_BEYOND = ("ASSERT", "ASSERT_NOT", "GROUPREF_EXISTS")


class CannotFitError(Exception):
    """The expression is none, needs to look around, or makes too long a text."""


class _Maker:
    """Writes one text. Numbers from ``draw`` choose among alternatives and characters."""

    def __init__(self, draw: int, more: int) -> None:
        self.text = ""
        self._draw = draw
        self._more = more
        self._groups: dict[int, str] = {}

    def write(self, tree: Any, depth: int) -> None:
        if depth > _DEEPEST:
            raise CannotFitError
        for operation, value in tree:
            self._do(str(operation), value, depth + 1)
            if len(self.text) > MOST_CHARACTERS:
                raise CannotFitError

    def _do(self, operation: str, value: Any, depth: int) -> None:
        if operation in _BEYOND:
            raise CannotFitError
        if operation == "LITERAL":
            self.text += chr(value)
        elif operation == "NOT_LITERAL":
            self.text += self._one([c for c in _ANY if ord(c) != value])
        elif operation == "ANY":
            self.text += self._one(_ANY)
        elif operation == "IN":
            self.text += self._one(_members(value))
        elif operation == "BRANCH":
            self.write(value[1][self._number(len(value[1]))], depth)
        elif operation == "SUBPATTERN":
            self._group(value[0], value[3], depth)
        elif operation == "ATOMIC_GROUP":
            self.write(value, depth)
        elif operation == "GROUPREF":
            self.text += self._groups.get(value, "")
        elif operation.endswith("REPEAT"):
            least, most, tree = value
            self._repeat(int(least), int(most), tree, depth)
        # What is left are places, such as the beginning, and they have no text.

    def _group(self, number: int | None, tree: Any, depth: int) -> None:
        begin = len(self.text)
        self.write(tree, depth)
        if number is not None:
            self._groups[number] = self.text[begin:]

    def _repeat(self, least: int, most: int, tree: Any, depth: int) -> None:
        count = 0
        while count < least or (count < most and self._more > 0):
            before = len(self.text)
            self.write(tree, depth)
            if count >= least:
                self._more -= max(1, len(self.text) - before)
            elif len(self.text) == before:
                return  # repeating nothing changes nothing
            count += 1

    def _one(self, characters: Sequence[str]) -> str:
        if not characters:
            raise CannotFitError
        return characters[self._number(len(characters))]

    def _number(self, count: int) -> int:
        self._draw, found = divmod(self._draw, count)
        return found


def fitting(pattern: str, draw: int, least: int = 0) -> str:
    """A text in which a regular expression is found.

    Args:
        pattern: The expression.
        draw: Any number; others give other texts.
        least: Characters wanted. Where repetitions allow no more, it is shorter.

    Raises:
        CannotFitError: None could be made.
    """
    try:
        tree = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        raise CannotFitError from None
    short = _made(tree, draw, 0)
    return short if len(short) >= least else _made(tree, draw, least - len(short))


def _made(tree: Any, draw: int, more: int) -> str:
    maker = _Maker(draw, more)
    maker.write(tree, 0)
    return maker.text


def _members(items: Any) -> list[str]:
    """Some characters of a class."""
    kinds = [(str(kind), value) for kind, value in items]
    if kinds and kinds[0][0] == "NEGATE":
        return [c for c in _ANY if not any(_is_in(ord(c), *kind) for kind in kinds[1:])]
    found: list[str] = []
    for kind, value in kinds:
        found += _SOME[kind](value)
    return found


def _is_in(code: int, kind: str, value: Any) -> bool:
    if kind == "LITERAL":
        return bool(code == value)
    if kind == "RANGE":
        return bool(value[0] <= code <= value[1])
    return re.match(_CLASSES[str(value)], chr(code)) is not None


_CLASSES: Mapping[str, str] = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_SOME: Mapping[str, Callable[[Any], list[str]]] = {
    "LITERAL": lambda value: [chr(value)],
    "RANGE": lambda value: [chr(c) for c in range(value[0], min(value[1], value[0] + 40) + 1)],
    "CATEGORY": lambda value: list(_CATEGORIES[str(value)]),
}

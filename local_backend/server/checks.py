"""Takes values out of parsed JSON; what is wrong is told with its place."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from local_backend.server.errors import InvalidRequestError


def join(path: str, key: str | int) -> str:
    """The path of something inside something."""
    return f"{path}.{key}" if path else str(key)


class Fields:
    """The fields of one object.

    Args:
        value: What should be an object.
        path: Where it stands.

    Raises:
        InvalidRequestError: It is no object.
    """

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise InvalidRequestError(path, "must be an object")
        self.raw: Mapping[str, Any] = value
        self.path = path

    def at(self, key: str | int) -> str:
        """The path of a field."""
        return join(self.path, key)

    def refuse(self, key: str, reason: str) -> InvalidRequestError:
        """An error about a field."""
        return InvalidRequestError(self.at(key), reason)

    def only(self, known: Collection[str]) -> None:
        """Refuse fields that nobody knows."""
        for key in self.raw:
            if key not in known:
                raise self.refuse(key, "is not a known field")

    def get(self, key: str) -> Any:
        """A field as it is; None where it is absent."""
        return self.raw.get(key)

    def text(self, key: str, *, empty: bool = False) -> str:
        """A string that must be there."""
        found = self.optional_text(key)
        if found is None:
            raise self.refuse(key, "is required")
        if not found and not empty:
            raise self.refuse(key, "must not be empty")
        return found

    def optional_text(self, key: str) -> str | None:
        """A string that may be missing."""
        found = self.raw.get(key)
        if found is not None and not isinstance(found, str):
            raise self.refuse(key, "must be a string")
        return found

    def flag(self, key: str) -> bool:
        """True or false; false where it is missing."""
        found = self.raw.get(key)
        if found is None:
            return False
        if not isinstance(found, bool):
            raise self.refuse(key, "must be true or false")
        return found

    def integer(self, key: str, least: int, most: int | None = None) -> int | None:
        """A whole number in bounds, or None where it is missing."""
        found = self.raw.get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int):
            raise self.refuse(key, "must be a whole number")
        if found < least or (most is not None and found > most):
            raise self.refuse(key, _bounds(least, most))
        return found

    def number(self, key: str, least: float, most: float) -> float | None:
        """A number in bounds, or None where it is missing."""
        found = self.raw.get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.refuse(key, "must be a number")
        if not math.isfinite(found) or not least <= found <= most:
            raise self.refuse(key, _bounds(least, most))
        return float(found)

    def choice(self, key: str, allowed: Collection[str]) -> str | None:
        """One of several strings, or None where it is missing."""
        found = self.optional_text(key)
        if found is not None and found not in allowed:
            raise self.refuse(key, f"must be one of {', '.join(allowed)}")
        return found

    def child(self, key: str) -> Fields | None:
        """An object inside, or None where it is missing."""
        found = self.raw.get(key)
        return None if found is None else Fields(found, self.at(key))

    def items(self, key: str) -> Iterator[tuple[str, Any]]:
        """The items of a list with their paths; none where it is missing."""
        found = self.raw.get(key)
        if found is None:
            return
        if not isinstance(found, list):
            raise self.refuse(key, "must be a list")
        for index, item in enumerate(found):
            yield join(self.at(key), index), item

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty where it is missing."""
        found = []
        for path, item in self.items(key):
            if not isinstance(item, str):
                raise InvalidRequestError(path, "must be a string")
            found.append(item)
        return tuple(found)


def _bounds(least: float, most: float | None) -> str:
    return f"must be at least {least}" if most is None else f"must be from {least} to {most}"

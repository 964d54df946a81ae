"""Gathers what a script says, up to a limit."""

from __future__ import annotations

import json
from typing import Any

from cacheaudit.agent.tools.call_tool import plain


class Printed:
    """Output of one script, in its order.

    Args:
        most: Bytes, UTF-8; beyond, whoever writes is told by an exception.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._parts: list[str] = []
        self.full = False

    def write(self, text: str) -> None:
        """Add text.

        Raises:
            MemoryError: It exceeds the limit; what fits is kept.
        """
        data = text.encode("utf-8", "replace")
        room = self._most - self._size
        if len(data) > room:
            self.full = True
            self._parts.append(data[: max(0, room)].decode("utf-8", "ignore"))
            self._size = self._most
            raise MemoryError(f"output limit exceeded: {self._most} bytes")
        self._size += len(data)
        self._parts.append(text)

    def line(self, *values: Any) -> None:
        """Add values as ``text()`` does: text as it is, all else as JSON, then a new line."""
        self.write(" ".join(map(as_text, values)) + "\n")

    def whole(self) -> str:
        """Return all that was said."""
        return "".join(self._parts)


def as_text(value: Any) -> str:
    """Write a value of a script for the model."""
    if isinstance(value, str):
        return value
    return json.dumps(plain(value), ensure_ascii=False, default=str)

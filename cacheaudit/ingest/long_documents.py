"""Records of a JSON document that is too long to be held at once, one after the other.

Memory is that of the longest record. Nothing is decoded here: a record is found by its brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

_CHUNK: Final = 1 << 20
# A string, with the colon that makes it a key; a bracket; a string that does not end.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(\s*:)?|[{}\[\]]|"', re.DOTALL)
# A key is known by its colon, so that what stands close to the end of a piece waits for the next.
_MARGIN: Final = 64
_QUOTE, _LIST, _OPEN = ord('"'), ord("["), (ord("{"), ord("["))


class NoListError(Exception):
    """The document keeps its records under none of the keys."""


class CutOffError(Exception):
    """The document ends inside its list."""


def listed(stream: BinaryIO, keys: Sequence[str]) -> Iterator[bytes]:
    """Yield every element of the list that a document keeps its records in.

    Args:
        stream: The document in UTF-8.
        keys: Keys on the way to the list, outermost first; those that are not there are passed
            over. A document that is a list needs none.

    Yields:
        Objects, lists and strings as they are written; numbers and other words are passed over.

    Raises:
        NoListError: There is no such list.
        CutOffError: It does not end.
    """
    search = _Search([b'"' + key.encode() + b'"' for key in keys])
    data, at, is_end = b"", 0, False
    while not is_end:
        more = stream.read(max(_CHUNK, len(data) - at))
        is_end = not more
        data, at = data[at:] + more, 0
        begin = 0 if search.is_in_element else -1
        for found in _TOKEN.finditer(data, search.seen):
            is_open = found.end() - found.start() == 1 and data[found.start()] == _QUOTE
            if is_open or (not is_end and found.end() + _MARGIN > len(data)):
                break
            begin, element = search.take(data, found, begin)
            if element is not None:
                yield element
            if search.is_over:
                return
            search.seen = found.end()
        at = begin if begin >= 0 else search.seen
        search.seen -= at
    raise NoListError if search.inside is None else CutOffError


class _Search:
    """Where a walk over the tokens of a document stands."""

    def __init__(self, keys: list[bytes]) -> None:
        self.inside: int | None = None  # depth inside the list, once it was found
        self.is_in_element = False
        self.is_over = False
        self.seen = 0
        self._keys, self._depth, self._level = keys, 0, 1
        self._armed = True  # the next bracket opens what is looked for

    def take(self, data: bytes, found: re.Match[bytes], begin: int) -> tuple[int, bytes | None]:
        """Take a token; returns where the element begins that is open, and the one that ended."""
        first = data[found.start()]
        if self.inside is None:
            self._look(first, found)
            return -1, None
        if first == _QUOTE:
            alone = self._depth == self.inside and not self.is_in_element
            return begin, found[0] if alone else None
        if first in _OPEN:
            if self._depth == self.inside:
                begin, self.is_in_element = found.start(), True
            self._depth += 1
            return begin, None
        if self._depth == self.inside:
            self.is_over = True
            return -1, None
        self._depth -= 1
        if self._depth > self.inside:
            return begin, None
        self.is_in_element = False
        return -1, data[begin : found.end()]

    def _look(self, first: int, found: re.Match[bytes]) -> None:
        """Take a token in front of the list."""
        if first == _QUOTE:
            name = found[0].partition(b'"')[2].partition(b'"')[0]
            key = b'"' + name + b'"'
            is_key = found[1] is not None and self._depth == self._level and key in self._keys
            if is_key:
                self._keys = self._keys[self._keys.index(key) + 1 :]
            self._armed = is_key
        elif first in _OPEN:
            self._depth += 1
            if self._armed and first == _LIST:
                self.inside = self._depth
            elif self._armed:
                self._level = self._depth
            self._armed = False
        else:
            self._depth -= 1
            self._armed = False

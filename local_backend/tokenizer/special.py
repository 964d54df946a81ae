"""Finds names of tokens in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

# Characters that a name is looked up by before its full text is compared.
_HEAD = 2


class NameFinder:
    """Cuts a text at the names of tokens, from left to right, the longest name first.

    Args:
        names: Id of each name.
    """

    def __init__(self, names: Mapping[str, int]) -> None:
        self._names = {name: token for name, token in names.items() if name}
        lengths: dict[str, set[int]] = {}
        for name in self._names:
            lengths.setdefault(name[:_HEAD], set()).add(len(name))
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}
        firsts = sorted({name[0] for name in self._names})
        self._first = re.compile(f"[{''.join(map(re.escape, firsts))}]") if firsts else None

    def __call__(self, text: str) -> Iterator[str | int]:
        """Yield ids where there are names, and the text between them."""
        start = at = 0
        while self._first is not None and (match := self._first.search(text, at)):
            at = match.start()
            name = self._longest(text, at)
            if not name:
                at += 1
                continue
            if start < at:
                yield text[start:at]
            yield self._names[name]
            start = at = at + len(name)
        if start < len(text):
            yield text[start:]

    def _longest(self, text: str, at: int) -> str:
        heads = (text[at : at + size] for size in range(_HEAD, 0, -1))
        for head in heads:
            for length in self._lengths.get(head, ()):
                if (name := text[at : at + length]) in self._names:
                    return name
        return ""

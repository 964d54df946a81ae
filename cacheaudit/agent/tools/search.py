"""Finds tools by words: BM25 over names, arguments, descriptions and tags."""

from __future__ import annotations

import bisect
import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from cacheaudit.agent.tools.tool import Tool

K1: Final = 1.2
B: Final = 0.75
NAME_WEIGHT: Final = 3
_FEWEST: Final = 4
_LONGEST_QUERY: Final = 2_000
_MOST_ALIKE: Final = 8
_ALIKE: Final = 0.5
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")


def words(text: str) -> list[str]:
    """Split text into terms: ``readTestLogs`` and ``read_test_logs`` are read, test, log."""
    return [_stem(word.lower()) for word in _WORD.findall(text)]


@lru_cache(maxsize=8192)
def _stem(word: str) -> str:
    """Take off a plural, nothing else: further endings change too many meanings."""
    if len(word) > _FEWEST and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) >= _FEWEST and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def terms_of(tool: Tool) -> Counter[str]:
    """Count the terms of a tool; each one of its name counts three times."""
    terms = Counter({term: NAME_WEIGHT * n for term, n in Counter(words(tool.name)).items()})
    terms.update(words(tool.description))
    terms.update(words(" ".join(tool.tags)))
    properties = tool.input_schema.get("properties")
    if isinstance(properties, dict):
        for name, schema in properties.items():
            terms.update(words(str(name)))
            if isinstance(schema, dict):
                terms.update(words(str(schema.get("description") or "")))
    return terms


class ToolIndex:
    """An inverted index that grows and shrinks tool by tool."""

    def __init__(self) -> None:
        self._postings: dict[str, dict[str, int]] = {}
        self._terms: dict[str, Counter[str]] = {}
        self._lengths: dict[str, int] = {}
        self._total = 0
        self._vocabulary: list[str] | None = None
        self._norms: dict[str, float] | None = None

    def add(self, tool: Tool) -> None:
        """Add a tool, in place of one of the same name."""
        self.remove(tool.name)
        terms = terms_of(tool)
        for term, count in terms.items():
            self._postings.setdefault(term, {})[tool.name] = count
        self._terms[tool.name] = terms
        self._lengths[tool.name] = terms.total()
        self._total += terms.total()
        self._vocabulary = self._norms = None

    def remove(self, name: str) -> None:
        """Remove a tool; nothing happens where it is not there."""
        terms = self._terms.pop(name, None)
        if terms is None:
            return
        self._total -= self._lengths.pop(name)
        for term in terms:
            postings = self._postings[term]
            del postings[name]
            if not postings:
                del self._postings[term]
        self._vocabulary = self._norms = None

    def search(self, query: str, limit: int) -> list[tuple[str, float]]:
        """Rank tools.

        Args:
            query: Words, or the name of a tool; words behind its first 2,000 characters do not
                count, since scripts can write queries of any length.
            limit: Most to return.

        Returns:
            Names and scores, the best first; the name decides between equals. A tool whose name is
            the query comes first in any case.
        """
        scores: dict[str, float] = {}
        for term, weight in self._weighed(dict.fromkeys(words(query[:_LONGEST_QUERY]))):
            self._score(term, weight, scores)
        exact = query.strip()
        if exact in self._terms:
            scores[exact] = math.inf
        return heapq.nsmallest(limit, scores.items(), key=lambda item: (-item[1], item[0]))

    def _score(self, term: str, weight: float, scores: dict[str, float]) -> None:
        postings = self._postings[term]
        count = len(self._terms)
        rarity = math.log(1 + (count - len(postings) + 0.5) / (len(postings) + 0.5)) * weight
        factor = rarity * (K1 + 1)
        norms, get = self._normed(), scores.get
        for name, times in postings.items():
            scores[name] = get(name, 0.0) + factor * times / (times + norms[name])

    def _normed(self) -> dict[str, float]:
        """Return what the length of each tool's text adds to the divisor."""
        if self._norms is None:
            step = K1 * B * len(self._terms) / max(1, self._total)
            base = K1 * (1 - B)
            self._norms = {name: base + step * n for name, n in self._lengths.items()}
        return self._norms

    def _weighed(self, terms: Iterable[str]) -> Iterable[tuple[str, float]]:
        """Give known terms full weight; for an unknown one those that begin alike."""
        for term in terms:
            if term in self._postings:
                yield term, 1.0
            elif len(term) >= _FEWEST:
                for alike in self._alike(term):
                    yield alike, _ALIKE

    def _alike(self, term: str) -> list[str]:
        """Return known terms that share the beginning: ``authentication`` for ``authenticate``."""
        if self._vocabulary is None:
            self._vocabulary = sorted(self._postings)
        stem = term[: max(_FEWEST, len(term) * 2 // 3)]
        start = bisect.bisect_left(self._vocabulary, stem)
        found = self._vocabulary[start : start + _MOST_ALIKE]
        return [alike for alike in found if alike.startswith(stem)]

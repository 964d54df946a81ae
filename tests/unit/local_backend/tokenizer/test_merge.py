"""Joining pieces: both ways of doing it beside the plainest one."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from local_backend.tokenizer import merge as module
from local_backend.tokenizer.merge import merge


def plainest(pieces: list[str], ranks: dict[str, int]) -> list[str]:
    while True:
        found = [
            (ranks[a + b], i)
            for i, (a, b) in enumerate(itertools.pairwise(pieces))
            if a + b in ranks
        ]
        if not found:
            return pieces
        _, i = min(found)
        pieces = [*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :]]


@settings(max_examples=200)
@given(
    text=st.text(alphabet="abc", max_size=80),
    ranks=st.dictionaries(st.text(alphabet="abc", min_size=2, max_size=5), st.integers(0, 9)),
)
def test_short_and_long_runs_are_joined_alike(text: str, ranks: dict[str, int]) -> None:
    right = plainest(list(text), ranks)

    def rank(a: str, b: str) -> float | None:
        return ranks.get(a + b)

    assert merge(list(text), rank) == right
    if len(text) >= 2:
        assert module._by_scan(list(text), rank) == right
        assert module._by_heap(list(text), rank) == right


def test_of_equal_ranks_the_left_pair_goes_first() -> None:
    for count in (3, 5, 41):
        joined = merge(["a"] * count, lambda a, b: 0 if a + b == "aa" else None)
        assert joined == ["aa"] * (count // 2) + ["a"]

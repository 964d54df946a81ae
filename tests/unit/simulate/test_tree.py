"""The tree of prefixes against a list of all requests."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.model.prompt import digest
from cacheaudit.simulate.tree import PrefixTree


def chained(names: str) -> list[bytes]:
    found, state = [], b""
    for name in names:
        state = digest(state + name.encode())
        found.append(state)
    return found


class Remembered:
    """Every prefix by itself: until when it is kept and from when it can be read."""

    def __init__(self) -> None:
        self.kept: dict[str, list[float]] = {}

    def find(self, names: str, at: float) -> int:
        best = 0
        for length in range(1, len(names) + 1):
            until, since = self.kept.get(names[:length], (0.0, 0.0))
            if since <= at < until:
                best = length
        return best

    def add(self, names: str, at: float, until: float, readable: float) -> None:
        for length in range(1, len(names) + 1):
            old = self.kept.get(names[:length])
            if old is None or old[0] <= at:
                self.kept[names[:length]] = [until, readable]
            else:
                old[0] = max(old[0], until)


STEPS = st.lists(
    st.tuples(
        st.text("ab", min_size=1, max_size=8),
        st.sampled_from([0.0, 1.0, 4.0, 5.0, 10.0, 11.0]),
        st.sampled_from([10.0, 10.0, 20.0]),
        st.sampled_from([0.0, 2.0, 6.0]),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=500, deadline=None)
@given(STEPS)
def test_it_finds_what_a_list_of_all_prefixes_finds(
    steps: list[tuple[str, float, float, float]],
) -> None:
    tree, known, at = PrefixTree(), Remembered(), 0.0
    for number, (names, gap, life, wait) in enumerate(steps):
        at += gap
        digests = chained(names)
        assert tree.find(digests, at).depth == known.find(names, at), number
        tree.add(digests, at, at + life, at + wait, str(number))
        known.add(names, at, at + life, at + wait)


def test_it_says_who_brought_the_prefix_and_why_not_more() -> None:
    tree = PrefixTree()
    tree.add(chained("ab"), 0.0, 10.0, 1.0, "first")
    tree.add(chained("abcd"), 5.0, 15.0, 6.0, "second")
    assert tree.find(chained("abcdef"), 7.0).writer == "second"
    early = tree.find(chained("abcdef"), 5.5)
    assert (early.depth, early.writer, early.notes) == (2, "first", ("not_yet_readable",))
    assert tree.find(chained("abx"), 20.0).notes == ("expired",)


def test_a_lane_that_grows_is_one_run() -> None:
    tree = PrefixTree()
    for length in range(1, 200):
        tree.add(chained("a" * length), float(length), length + 10.0, length + 0.5, str(length))
    assert len({id(run) for run in tree._runs.values()}) == 1

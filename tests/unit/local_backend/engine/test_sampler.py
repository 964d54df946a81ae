"""The numbers that tokens are drawn with, and what is kept of the scores."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from local_backend.engine.api import Sampling  # noqa: E402
from local_backend.engine.sampler import choose, draw, uniform  # noqa: E402

SCORES = st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 0.5, 2.0, 4.0]), min_size=1, max_size=12)


def naive(scores: list[float], sampling: Sampling, place: int) -> int:
    """The same by plain lists."""
    ranked = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    ranked = ranked[: sampling.top_k]
    top = max(scores)
    weight = {token: math.exp((scores[token] - top) / sampling.temperature) for token in ranked}
    total = math.fsum(weight.values())
    kept, before = [], 0.0
    for token in ranked:
        if before < sampling.top_p * total:
            kept.append(token)
        before += weight[token]
    mark = uniform(sampling.seed, place) * math.fsum(weight[token] for token in kept)
    for token in sorted(kept):
        mark -= weight[token]
        if mark < 0:
            return token
    return max(kept)


@given(
    scores=SCORES,
    sampling=st.builds(
        Sampling,
        temperature=st.sampled_from([0.2, 0.7, 1.0, 5.0]),
        top_k=st.sampled_from([None, 1, 2, 5, 100]),
        top_p=st.sampled_from([1.0, 0.93, 0.41, 1e-9]),
        seed=st.integers(-5, 2**70),
    ),
    place=st.integers(0, 100),
)
def test_draws_as_plain_lists_do(scores: list[float], sampling: Sampling, place: int) -> None:
    assert draw(torch.tensor(scores).double(), sampling, place) == naive(scores, sampling, place)


@pytest.mark.parametrize("top_p", [0.3001, 0.9001, 0.9991])
@pytest.mark.parametrize("spread", [0.0, 0.1, 4.0])
def test_long_rows_are_drawn_as_short_ones(top_p: float, spread: float) -> None:
    """Where the likeliest have the mass, and where they have not; many are equal."""
    torch.manual_seed(0)
    scores = (torch.randn(3000) * spread * 2).round().double() / 2
    for place in range(20):
        sampling = Sampling(temperature=0.9, top_p=top_p, seed=1)
        assert draw(scores, sampling, place) == naive(scores.tolist(), sampling, place)


def test_numbers_are_even_and_follow_from_seed_and_place_alone() -> None:
    found = [uniform(7, place) for place in range(4000)]
    assert found == [uniform(7, place) for place in range(4000)]
    assert all(0.0 <= number < 1.0 for number in found)
    assert len(set(found)) == 4000
    # Ten drawers of 400: the sum of squared deviations stays below the 99.99 % point (9 degrees).
    drawers = [sum(int(number * 10) == index for number in found) for index in range(10)]
    assert sum((count - 400) ** 2 / 400 for count in drawers) < 33.7
    assert uniform(7, 0) != uniform(8, 0)
    assert uniform(1, 11) != uniform(11, 1)


def test_drawn_tokens_have_the_probabilities_of_the_scores() -> None:
    scores = torch.tensor([0.0, math.log(2.0), -math.inf, math.log(5.0)])
    found = [draw(scores, Sampling(temperature=1.0, seed=3), place) for place in range(4000)]
    counts = [found.count(token) for token in range(4)]
    assert counts[2] == 0
    for count, share in ((counts[0], 1 / 8), (counts[1], 2 / 8), (counts[3], 5 / 8)):
        # Four standard deviations.
        assert abs(count - 4000 * share) < 4 * math.sqrt(4000 * share * (1 - share))


def test_greedy_takes_the_first_of_equals() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0, 0.0], [5.0, 5.0, 5.0, 5.0]])
    assert choose(scores, [(Sampling(), 0), (Sampling(seed=9), 4)]) == [1, 0]


def test_tokens_stay_until_they_have_the_mass() -> None:
    """Four are equally likely: the first two have half of the mass, and that is enough."""
    found = {draw(torch.zeros(4), Sampling(temperature=1.0, top_p=0.5), i) for i in range(60)}
    assert found == {0, 1}


@pytest.mark.parametrize("temperature", [1e-3, 1e-9, 1e-40, 5e-324])
def test_very_cold_is_greedy(temperature: float) -> None:
    scores = torch.tensor([1e4, -1e4, 1.1e4, 1.09e4])
    assert {draw(scores, Sampling(temperature=temperature), place) for place in range(50)} == {2}


def test_a_row_is_drawn_alike_in_any_company() -> None:
    torch.manual_seed(0)
    scores = torch.randn(9, 300)
    wanted = [(Sampling(temperature=0.5 * (i % 3), top_p=0.9, seed=i), i) for i in range(9)]
    alone = [choose(scores[i : i + 1], wanted[i : i + 1])[0] for i in range(9)]
    assert choose(scores, wanted) == alone


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_scores_that_are_no_numbers_give_no_token(temperature: float) -> None:
    rows = torch.tensor([[0.0, math.nan, 1.0], [-math.inf] * 3, [0.0, 2.0, 1.0], [math.inf, 0, 0]])
    found = choose(rows, [(Sampling(temperature=temperature, top_k=1), 0)] * 4)
    assert found == [None, None, 1, None]


def test_common_numbers_couple_two_answers() -> None:
    """Equal seeds: where two distributions hardly differ, the draws hardly do."""
    torch.manual_seed(1)
    one = torch.randn(50)
    other = one + 0.01 * torch.randn(50)
    wanted = [Sampling(temperature=1.0, seed=5)] * 300
    pairs = [(draw(one, w, place), draw(other, w, place)) for place, w in enumerate(wanted)]
    assert sum(a == b for a, b in pairs) > 270

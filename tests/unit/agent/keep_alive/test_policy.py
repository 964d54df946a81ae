"""When a refresh is worth its price: exact figures, bounds that hold whatever happens."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.agent.keep_alive.economy import Stakes
from cacheaudit.agent.keep_alive.gaps import Gaps, pauses
from cacheaudit.agent.keep_alive.policy import Situation, best_plan, decide
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.errors import ConfigError
from cacheaudit.simulate.edits.keep_alive import pings_worth

MILLION = 1_000_000
RUNNING = KeepAlive(mode="running")
IDLE = KeepAlive(mode="idle")


def stakes(
    tokens: int = 36_150,
    prices: tuple[str, str, str] = ("5", "0.5", "6.25"),
    ttl: float = 300.0,
    lost: int | None = None,
    **more: object,
) -> Stakes:
    uncached, read, write = (Decimal(text) / MILLION for text in prices)
    return Stakes(
        ttl=ttl,
        every=float(int(min(0.9 * ttl, ttl - 10))),
        read_tokens=tokens,
        lost_tokens=tokens if lost is None else lost,
        read=read,
        write=write,
        uncached=uncached,
        output=Decimal(25) / MILLION,
        **more,  # type: ignore[arg-type]
    )


def situation(known: Stakes, phase: str = "running", number: int = 0, **more: object) -> Situation:
    """Describe the moment at which the refresh after ``number`` others is due."""
    fields = {
        "elapsed": known.every * (number + 1),
        "lives_until": known.every * number + known.ttl,
        "refreshes": number,
        **more,
    }
    return Situation(stakes=known, phase=phase, **fields)  # type: ignore[arg-type]


def certain(known: Stakes, number: int = 0) -> Gaps:
    """Pauses that end right after the entry would expire without the next refresh."""
    gaps = Gaps(0.0, weight=0.0)
    gaps.add(known.every * number + known.ttl + 1)
    return gaps


def test_the_refresh_of_the_exercise_saves_what_the_atlas_says() -> None:
    # In ordinary input tokens: a write counts 1.25, a read 0.1.
    known = stakes(36_150, ("1000000", "100000", "1250000"))
    assert known.refresh_cost == Decimal("3615.0")
    assert known.miss_cost == Decimal("41572.5")
    # Row 6 starts at 02:20; the next request comes at 07:55, while its tool ran 335 s.
    assert 140 + known.every == 6 * 60 + 50
    gaps = Gaps(0.0, weight=0.0)
    gaps.add(335.0)
    probability, savings, planned = best_plan(situation(known), RUNNING, gaps)
    assert (probability, savings, planned) == (1.0, Decimal("37957.5"), 1)
    free = KeepAlive(mode="running", budget_per_day=None)
    assert decide(situation(known), free, gaps).action == "warm"


@pytest.mark.parametrize(
    ("prices", "ttl", "most"),
    [
        (("5", "0.5", "6.25"), 300.0, 11),
        (("5", "0.5", "10"), 3600.0, 18),
        (("4", "0.2", "5"), 300.0, 23),
        (("4", "0.2", "8"), 3600.0, 38),
        (("8", "0.2", "10"), 300.0, 48),
    ],
)
def test_the_bound_follows_lifetime_and_model(
    prices: tuple[str, str, str], ttl: float, most: int
) -> None:
    known = stakes(100_000, prices, ttl)
    assert known.affordable == most
    uncached, read, write = map(Decimal, prices)
    assert known.affordable == pings_worth(write / uncached, read / uncached)


@pytest.mark.parametrize(
    ("prices", "tokens"),
    [
        (("5", "0.5", "6.25"), 9_524),
        (("4", "0.2", "5"), 10_870),
        (("2", "0.2", "2.5"), 23_810),
        (("8", "0.2", "10"), 5_209),
    ],
)
def test_a_tool_that_surely_ends_is_waited_for_from_the_size_at_which_it_pays(
    prices: tuple[str, str, str], tokens: int
) -> None:
    at, below = stakes(tokens, prices), stakes(tokens - 1, prices)
    assert decide(situation(at), RUNNING, certain(at)).action == "warm"
    refused = decide(situation(below), RUNNING, certain(below))
    assert (refused.action, refused.reason) == ("stop", "not_worth_it")


def test_lifetimes_of_an_hour_are_priced_as_such() -> None:
    short, long = stakes(20_000), stakes(20_000, ("5", "0.5", "10"), 3600.0)
    assert long.miss_cost - short.miss_cost == 20_000 * Decimal("3.75") / MILLION


def test_an_entry_of_an_hour_can_be_refreshed_between_runs() -> None:
    known = stakes(400_000, ("5", "0.5", "10"), 3600.0)
    assert known.every == 3_240
    found = decide(situation(known, "idle"), IDLE, Gaps(0.15))
    assert (found.action, found.reason) == ("warm", "worth_it")
    capped = msgspec.structs.replace(IDLE, idle_cap=1_800.0)
    assert decide(situation(known, "idle"), capped, Gaps(0.15)).reason == "cap"


@pytest.mark.parametrize(
    ("phase", "number", "settings", "reason"),
    [
        ("running", 12, RUNNING, "worth_it"),
        ("running", 13, RUNNING, "cap"),
        ("idle", 5, IDLE, "worth_it"),
        ("idle", 6, IDLE, "cap"),
        ("idle", 0, RUNNING, "not_running"),
        ("running", 2, KeepAlive(mode="running", most_refreshes=2), "refreshes_spent"),
        ("running", 0, KeepAlive(mode="running", budget_per_day=Decimal("0.01")), "budget"),
        ("running", 0, KeepAlive(), "not_running"),
    ],
)
def test_caps(phase: str, number: int, settings: KeepAlive, reason: str) -> None:
    # One hour while running: the 13th refresh would come at 3,780 s; 30 minutes between runs.
    known = stakes(1_000_000, ("8", "0.2", "10"))
    found = decide(situation(known, phase, number), settings, certain(known, number))
    assert found.reason == reason


def test_a_late_timer_stops() -> None:
    known = stakes()
    assert known.grace == 15
    due = known.every
    just = situation(known, elapsed=due + 15, late=15.0)
    over = situation(known, elapsed=due + 15.1, late=15.1)
    assert decide(just, RUNNING, certain(known)).action == "warm"
    assert decide(over, RUNNING, certain(known)).reason == "late"


def test_only_what_would_be_written_again_is_at_stake() -> None:
    known = stakes(100_000, lost=20_000)
    assert known.refresh_cost == 100_000 * Decimal("0.5") / MILLION
    assert known.miss_cost == 20_000 * Decimal("5.75") / MILLION
    assert known.affordable == 2


def test_history_outweighs_the_prior() -> None:
    known = stakes(200_000)
    never, always = Gaps(0.15), Gaps(0.15)
    for _ in range(100):
        never.add(50_000.0)
        always.add(400.0)
    assert decide(situation(known, "idle"), IDLE, never).reason == "not_worth_it"
    found = decide(situation(known, "idle"), IDLE, always)
    assert found.action == "warm"
    assert found.probability > 0.9


def test_pauses_that_still_last_are_not_taken_for_ended() -> None:
    gaps = Gaps(0.5, weight=0.0)
    gaps.add(400.0, ended=False)
    gaps.add(350.0)
    gaps.add(5_000.0)
    # Of the two that can be judged, one ended between 300 and 600 s.
    assert gaps.ends_within(300, 600, 270) == 0.5


def test_pauses_of_a_lane() -> None:
    line = [(0.0, True), (10.0, False), (400.0, True)]
    assert list(pauses(line, 460.0)) == [
        (10.0, True, True),
        (390.0, False, True),
        (60.0, True, False),
    ]


lengths = st.lists(st.tuples(st.floats(0, 90_000), st.booleans()), max_size=40)
points = st.lists(st.floats(0, 20_000), min_size=2, max_size=12).map(sorted)


@given(lengths, points, st.floats(0, 1), st.floats(0, 50))
def test_survival_falls_and_stays_a_probability(
    known: list[tuple[float, bool]], at: list[float], prior: float, weight: float
) -> None:
    gaps = Gaps(prior, weight)
    for seconds, ended in known:
        gaps.add(seconds, ended=ended)
    found = gaps.survival(at, 270)
    assert found[0] == 1
    assert all(-1e-12 <= b <= a + 1e-12 for a, b in pairwise(found))


prices = st.tuples(
    st.integers(1, 2_000), st.integers(1, 5_000), st.integers(1, 3_000_000)
)  # read, write above it, tokens


@given(prices, st.floats(0, 100_000), lengths)
def test_no_series_costs_more_than_twice_what_foresight_would(
    drawn: tuple[int, int, int], gap: float, known: list[tuple[float, bool]]
) -> None:
    """Play one pause: whatever was learned, the ski-rental bound holds."""
    read, above, tokens = drawn
    rates = (str(read + above), str(Decimal(read) / 100), str(Decimal(read) / 100 + above))
    at_stake = stakes(tokens, rates)
    settings = KeepAlive(
        mode="running", min_savings=Decimal(0), running_cap=1e9, budget_per_day=None
    )
    gaps = Gaps(0.9)
    for seconds, ended in known:
        gaps.add(seconds, ended=ended)
    spent, number, lives = Decimal(0), 0, at_stake.ttl
    while number < 200:
        now = situation(at_stake, number=number)
        if now.elapsed >= gap or decide(now, settings, gaps).action == "stop":
            break
        number += 1
        spent += at_stake.refresh_cost
        lives = now.elapsed + at_stake.ttl
    if number == 200:
        return
    a_read = at_stake.read_tokens * at_stake.read
    a_write = at_stake.read_tokens * at_stake.write
    paid = spent + (a_read if gap <= lives else a_write)
    needed = max(0, -(-int(gap - at_stake.ttl) // int(at_stake.every)))
    best = min(a_write, needed * at_stake.refresh_cost + a_read)
    assert paid <= 2 * max(best, a_read) or paid <= 2 * a_write
    assert spent <= at_stake.miss_cost


@given(prices, st.sampled_from(["running", "idle"]), st.integers(0, 30), lengths)
def test_a_decision_to_refresh_always_expects_to_save(
    drawn: tuple[int, int, int], phase: str, number: int, known: list[tuple[float, bool]]
) -> None:
    read, above, tokens = drawn
    at_stake = stakes(tokens, (str(read), str(read), str(read + above)))
    gaps = Gaps(0.5)
    for seconds, ended in known:
        gaps.add(seconds, ended=ended)
    found = decide(situation(at_stake, phase, number), IDLE, gaps)
    if found.action == "warm":
        assert found.expected_savings >= IDLE.min_savings
        assert found.refresh_cost < found.miss_cost
        assert 0 <= found.probability <= 1 + 1e-9
        assert 1 <= found.planned <= at_stake.affordable - number


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "always"},
        {"idle_prior": 1.5},
        {"min_savings": Decimal(-1)},
        {"running_cap": -1.0},
        {"refresh_after": 0.0},
        {"refresh_after": 43_200.0},
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="keep_alive"):
        KeepAlive(**settings)  # type: ignore[arg-type]

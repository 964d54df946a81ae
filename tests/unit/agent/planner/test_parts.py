"""The planner's parts, each against a plain account of what it should do."""

from __future__ import annotations

import copy
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.planner import layout as layouts
from cacheaudit.agent.planner.account import Account, gain
from cacheaudit.agent.planner.forecast import CacheRules, Forecast, forecast, keep
from cacheaudit.agent.planner.gaps import Gaps, Odds, pauses_of
from cacheaudit.agent.planner.layout import lay_out, texts_of
from cacheaudit.agent.planner.lifetime import Rates, choose, expected
from cacheaudit.agent.planner.memory import Memory
from cacheaudit.agent.planner.places import with_lifetimes
from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.agent.planner.shelf import Shelf
from cacheaudit.agent.planner.spots import Candidate
from cacheaudit.agent.planner.target import rates_of, target_of
from cacheaudit.errors import ConfigError
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers import facts
from tests.unit.agent.planner.bodies import bodies, sessions, text
from tests.unit.agent.planner.play import MODEL, START, Cache, Played, call_of, outgoing

RULES = facts.rules("anthropic", MODEL)
OPUS = Rates(Decimal("0.1"), {"5m": Decimal("1.25"), "1h": Decimal(2)}, Decimal("0.000005"))
D = Decimal


# ── layout ───────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=30)
@given(bodies(marked=True), bodies(marked=True), st.sampled_from([MODEL, "claude-haiku-4-5"]))
def test_taking_over_gives_what_cutting_anew_gives(
    one: dict[str, Any], two: dict[str, Any], model: str
) -> None:
    rules = facts.rules("anthropic", model)
    assert rules is not None
    mixed = {**two, "messages": one["messages"] + two["messages"], "tools": one.get("tools", [])}
    for later in (two, mixed, copy.deepcopy(one)):
        before = lay_out(one, rules, b"home")
        fresh = lay_out(later, rules, b"home")
        taken = lay_out(later, rules, b"home", before, texts_of(later, [before]))
        for name in layouts.Layout.__struct_fields__:
            assert getattr(taken, name) == getattr(fresh, name), name


@settings(max_examples=40)
@given(sessions())
def test_prefixes_are_the_same_exactly_where_the_simulator_says_so(items: list[Played]) -> None:
    assert RULES is not None
    pairs: dict[bytes, bytes] = {}
    for number, item in enumerate(items):
        mine = lay_out(item.body, RULES, b"")
        prompt = call_of(number, item, item.body).prompt
        assert prompt is not None
        assert len(mine.keys) == len(prompt.prefix_digests)
        for key, digest in zip(mine.keys, prompt.prefix_digests, strict=True):
            assert pairs.setdefault(key, digest) == digest
    assert len(set(pairs.values())) == len(pairs)


def test_what_is_repeated_is_neither_written_nor_digested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert RULES is not None
    said = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": text(3_000, n)}
        for n in range(60)
    ]
    body = {"model": MODEL, "system": text(20_000, 1), "messages": said}
    before = lay_out(body, RULES, b"")
    later = copy.deepcopy({**body, "messages": [*said, {"role": "user", "content": "more"}]})
    written: list[Any] = []
    digested: list[bytes] = []
    encode, digest = layouts.encode, layouts._digest
    monkeypatch.setattr(layouts, "encode", lambda v: (written.append(v), encode(v))[1])
    monkeypatch.setattr(layouts, "_digest", lambda d: (digested.append(d), digest(d))[1])
    after = lay_out(later, RULES, b"", before, texts_of(later, [before]))
    assert [v["content"] for v in written if "role" in v] == ["more"]
    assert len(digested) <= 6
    assert after.keys[: len(before.keys)] == before.keys


# ── forecast ─────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=30)
@given(sessions(), st.randoms(use_true_random=False))
def test_a_forecast_never_promises_more_than_the_simulator_reads(
    items: list[Played], chance: random.Random
) -> None:
    """Random markers: the simulator, which counts runs as one position, reads that or more."""
    assert RULES is not None
    rules = CacheRules(512, 20, 4, {"5m": 300.0, "1h": 3600.0}, "5m", server_writes=True)
    shelf, cache = Shelf(), Cache()
    for number, item in enumerate(items):
        lay = lay_out(item.body, RULES, b"")
        places = [n for n, block in enumerate(lay.blocks) if block.markable]
        chosen = sorted(chance.sample(places, min(len(places), chance.randint(0, 4))))
        long = chance.randint(0, len(chosen))
        marks = [(index, "1h" if n < long else "5m") for n, index in enumerate(chosen)]
        sent = copy.deepcopy(item.body)
        for index, ttl in marks:
            block = lay.blocks[index]
            mark(sent, block.level, block.outer, block.inner, ttl)
        found = forecast(lay, marks, shelf, item.at, rules)
        outcome = cache.step(call_of(number, item, sent))
        assert found.read <= outcome.read
        if found.read == outcome.read:
            assert found.writes == outcome.writes
        owner = str(number)
        shelf.begun(keep(found, lay, shelf, item.at, rules, owner), owner)


def mark(body: dict[str, Any], level: str, outer: int, inner: int, ttl: str) -> None:
    value = {"type": "ephemeral", "ttl": ttl}
    if level != "messages":
        body[level][outer]["cache_control"] = value
        return
    message = body["messages"][outer]
    if isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    message["content"][inner]["cache_control"] = value


def test_entries_are_readable_once_the_answer_has_begun_and_until_they_expire() -> None:
    shelf = Shelf(kept=2)
    shelf.put(b"a", "5m", 300, 100, "x")
    assert shelf.alive(b"a", 101) is None
    shelf.begun((b"a",), "y")
    assert shelf.alive(b"a", 101) is None
    shelf.begun((b"a",), "x")
    assert shelf.alive(b"a", 399.9) is not None
    assert shelf.alive(b"a", 400) is None
    shelf.put(b"b", "1h", 3600, 100, "x")
    assert shelf.alive(b"b", 161) is not None  # nobody said so, but a minute has passed
    shelf.renew(b"b", 2_000, {"1h": 3600.0})
    assert shelf.alive(b"b", 5_599) is not None
    shelf.put(b"c", "5m", 300, 100, "x")
    assert len(shelf) == 2
    shelf.lost((b"b",))
    assert shelf.alive(b"b", 2_001) is None


# ── lifetimes ────────────────────────────────────────────────────────────────────────────────────


def odds(short: str, long: str, late: str, never: str) -> Odds:
    return Odds(D(short), D(long), D(late), D(never))


@pytest.mark.parametrize(
    ("shares", "ttl", "price"),
    [
        # 0.9 of 10 requests read at 0.1: 1.25 + 9 x 0.1
        (("0.9", "0", "0", "0.1"), "5m", "2.15"),
        (("0.9", "0", "0", "0.1"), "1h", "2.9"),
        (("0.9", "0", "0", "0.1"), "none", "10"),
        # Every pause between the two lifetimes: written each time, or read each time.
        (("0", "0.9", "0", "0.1"), "5m", "12.5"),
        (("0", "0.9", "0", "0.1"), "1h", "2.9"),
        # Never again: the premium is lost.
        (("0", "0", "0", "1"), "5m", "1.25"),
        (("0", "0", "0", "1"), "none", "1"),
    ],
)
def test_expected_prices(shares: tuple[str, str, str, str], ttl: str, price: str) -> None:
    assert expected(odds(*shares), OPUS, ttl) == D(price)


def test_expected_prices_against_drawn_sessions() -> None:
    """The closed form is the mean over many sessions that end by chance."""
    shares, chance = ("0.6", "0.2", "0.05", "0.15"), random.Random(5)
    drawn = [D(0), D(0)]
    rounds = 6_000
    for _ in range(rounds):
        for n, ttl in enumerate(("5m", "1h")):
            drawn[n] += OPUS.writes[ttl]
        while (kind := chance.choices("slax", [60, 20, 5, 15])[0]) != "x":
            drawn[0] += OPUS.read if kind == "s" else OPUS.writes["5m"]
            drawn[1] += OPUS.read if kind in "sl" else OPUS.writes["1h"]
    for n, ttl in enumerate(("5m", "1h")):
        assert abs(drawn[n] / rounds / expected(odds(*shares), OPUS, ttl) - 1) < D("0.03")


@pytest.mark.parametrize(
    ("shares", "ttl"),
    [
        (("0.97", "0.01", "0.01", "0.01"), "5m"),
        (("0.7", "0.2", "0.05", "0.05"), "1h"),
        (("0.05", "0.05", "0", "0.9"), "none"),
        (("0.1", "0", "0.6", "0.3"), "none"),
    ],
)
def test_the_cheapest_is_chosen_and_explained(shares: tuple[str, str, str, str], ttl: str) -> None:
    found = choose(odds(*shares), OPUS, 40_000)
    assert found.ttl == ttl
    assert found.prices.keys() == {"5m", "1h", "none"}
    assert all(isinstance(price, Decimal) for price in found.prices.values())
    assert found.prices[ttl] == min(found.prices.values())
    assert found.prices["5m"] == found.expected["5m"] * 40_000 * D("0.000005")


def test_a_lifetime_set_by_hand_is_only_weighed_against_none() -> None:
    assert choose(odds("0.7", "0.2", "0.05", "0.05"), OPUS, 1, "5m").ttl == "5m"
    assert choose(odds("0.0", "0.0", "0.0", "1"), OPUS, 1, "1h").ttl == "none"


@pytest.mark.parametrize(
    ("model", "read", "unit"),
    [
        ("claude-opus-5", "0.1", "0.000005"),
        ("claude-opus-5-5", "0.05", "0.000004"),
        ("claude-fable-5-2", "0.025", "0.000008"),
    ],
)
def test_the_models_own_rates_count(model: str, read: str, unit: str) -> None:
    target = target_of({"model": model}, "https://api.anthropic.com/v1/messages", START)
    assert target is not None
    rates = rates_of(PriceBook(), target, START, 50_000)
    assert (rates.read, rates.unit) == (D(read), D(unit))
    assert rates.writes["5m"] == D("1.25")
    assert rates.writes["1h"] == D(2)


# ── pauses ───────────────────────────────────────────────────────────────────────────────────────


def test_pauses_are_counted_from_start_to_start() -> None:
    gaps = Gaps()
    for at in (0, 10, 300, 610, 4_300, 9_000):
        gaps.sent("a", "first" if at == 0 else "later", at)
    # 10 | 290, 310, 3,690, 4,700
    first, later = gaps.odds("first", 9_001), gaps.odds("later", 9_001)
    assert (first.seen, later.seen) == (1, 4)
    assert first.short == D(14 + 1) / 21
    assert (later.short, later.long, later.late) == (D(17) / 24, D(2) / 24, D(3) / 24)
    # An hour later the last one is taken not to come back.
    assert gaps.odds("later", 12_601).never == D(3) / 25


def test_what_others_saw_is_the_prior_of_a_session() -> None:
    wide = Gaps()
    mine = Gaps(wide)
    for _ in range(80):
        wide.add("later", 600)
    before = mine.odds("later", 0)
    assert before.seen == 0
    assert before.long == D(1 + 80) / 100
    for gaps in (mine, wide):
        gaps.add("later", 10)
    after = mine.odds("later", 0)
    assert after.short == (D(16) * 6 / 100 + 1) / 7
    assert sum((after.short, after.long, after.late, after.never)) == pytest.approx(1)


def test_pauses_of_a_store() -> None:
    rows = [
        ("s", "a", 10.0, None),
        ("s", "b", 0.0, None),
        ("s", "a", 0.0, "x"),
        ("s", "a", 99.0, None),
    ]
    assert list(pauses_of(rows, 200.0)) == [("first", 10.0), ("later", 89.0)]
    assert list(pauses_of(rows, 5_000.0)) == [
        ("first", 10.0), ("later", 89.0), ("later", None), ("first", None),
    ]  # fmt: skip


# ── the account ──────────────────────────────────────────────────────────────────────────────────


def test_who_is_ahead_stays_ahead_and_who_is_not_loses_little() -> None:
    account = Account(D("0.1"))
    assert account.allows(D(-1_000_000))  # the first write
    account.book(D(-250), 1_000)
    assert account.floor == D(-350)
    assert account.allows(D(-100))
    assert not account.allows(D(-101))
    account.book(D(900), 1_000)
    assert account.balance == 650
    assert account.allows(D(-650))
    assert not account.allows(D(-651))
    account.correct(D(-900))
    assert account.floor == D(-450)
    assert Account(D(0), strict=False).allows(D(-10))


def test_what_markers_save_is_counted_against_none() -> None:
    found = Forecast(3, 1_000, {"5m": 400, "1h": 100}, 1_600)
    assert gain(found, OPUS) == D("0.9") * 1_000 - D("0.25") * 400 - 100


# ── lifetimes in order, bounds, settings ─────────────────────────────────────────────────────────


RULE = CacheRules(seconds={"5m": 300.0, "1h": 3600.0})


@settings(max_examples=80)
@given(
    st.dictionaries(st.integers(0, 12), st.sampled_from(["5m", "1h"]), max_size=4),
    st.sets(st.integers(0, 12), max_size=4),
    st.sampled_from(["5m", "1h", "none"]),
    st.sampled_from(["5m", "1h", "none"]),
)
def test_lifetimes_only_become_shorter(
    own: dict[int, str], ours: set[int], front: str, talk: str
) -> None:
    places = [Candidate("system" if index < 4 else "tail", index) for index in ours]
    before = sorted(own.items())
    found = with_lifetimes(places, before, {"front": front, "talk": talk}, RULE)
    order = [RULE.seconds[ttl] for _, ttl in before]
    if order != sorted(order, reverse=True):
        assert found is None
        return
    if found is None:
        return
    marks, roles = found
    seconds = [RULE.seconds[ttl] for _, ttl in marks]
    assert seconds == sorted(seconds, reverse=True)
    assert dict(marks).items() >= own.items()
    assert set(roles) == set(dict(marks)) - set(own)


def test_memory_is_bounded() -> None:
    memory = Memory(PlanPolicy(), sessions=3, limit=50_000)
    assert RULES is not None
    for number in range(6):
        session = memory.session(str(number))
        for lane in range(20):
            body = {"model": MODEL, "messages": [{"role": "user", "content": text(9_000, lane)}]}
            line = session.line(f"lane-{lane}", [], "f")
            line.layout = lay_out(body, RULES, b"")
            memory.trim()
        assert len(session.lines) == 12
    kept = [memory.known(str(number)) for number in range(6)]
    assert [session is not None for session in kept] == [False] * 3 + [True] * 3
    assert sum(session.weight for session in kept if session is not None) <= 50_000


def test_lines_without_a_name_are_told_by_their_beginning() -> None:
    planner = BreakpointPlanner()
    for number in range(3):
        for who in ("main", "title"):
            said = [{"role": "user", "content": who + text(3_000, 1)}]
            for turn in range(number if who == "main" else 0):
                said += [
                    {"role": "assistant", "content": "ok"},
                    {"role": "user", "content": text(2_000, turn)},
                ]
            planner.plan(outgoing({"model": MODEL, "messages": said}, number, START + number))
    session = planner._memory.known("s")
    assert session is not None
    assert [line.requests for line in session.lines.values()] == [3, 3]


@pytest.mark.parametrize("settings", [{"ttl": "2h"}, {"risk": D(2)}, {"risk": D(-1)}])
def test_settings_without_a_meaning_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PlanPolicy(**settings)

"""The Claude machine: every documented example, then a naive second implementation as judge."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.simulate.claude import ClaudeMachine, ClaudeRules
from cacheaudit.simulate.request import Mark, Outcome
from tests.unit.simulate.builders import blocks, request
from tests.unit.simulate.naive import Block, Law, NaiveCache, Wish, as_dict

RULES = ClaudeRules(minimum=0)


def run(*requests: Any, rules: ClaudeRules = RULES) -> list[Outcome]:
    machine = ClaudeMachine()
    return [machine.step(one, rules) for one in requests]


def reads(*requests: Any, rules: ClaudeRules = RULES) -> list[int]:
    return [outcome.read for outcome in run(*requests, rules=rules)]


# ── lookback ─────────────────────────────────────────────────────────────────────────────────────


def test_the_documented_lookback_example() -> None:
    """Markers on 10, 15, 35: the third looks at 35 to 16 and misses the entry at 15."""
    found = run(
        request(blocks(10), [9], at=0),
        request(blocks(15), [14], at=10),
        request(blocks(35), [34], at=20),
    )
    assert [o.read for o in found] == [0, 1000, 0]
    assert [o.written for o in found] == [1000, 500, 3500]


def test_an_entry_out_of_reach_is_said_to_be() -> None:
    machine, rules = ClaudeMachine(), ClaudeRules(minimum=0)
    machine.step(request(blocks(10), [9]), rules)
    near = machine.step(request(blocks(29), [28], at=10), rules)
    assert (near.read, near.notes) == (1_000, ())
    far = machine.step(request(blocks(50), [49], at=20), rules)
    assert (far.read, far.notes) == (0, ("beyond_lookback",))
    gone = machine.step(request(blocks(80), [79], at=900), rules)
    assert (gone.read, gone.notes) == (0, ())


def test_content_that_changed_is_not_out_of_reach() -> None:
    machine, rules = ClaudeMachine(), ClaudeRules(minimum=0)
    machine.step(request(blocks(40), [39]), rules)
    other = machine.step(request(["x", *blocks(60)], [60], at=10), rules)
    assert (other.read, other.notes) == (0, ())


def test_an_earlier_marker_reads_less_than_what_is_out_of_reach() -> None:
    machine, rules = ClaudeMachine(), ClaudeRules(minimum=0)
    machine.step(request(blocks(30), [4, 29]), rules)
    short = machine.step(request(blocks(60), [4, 59], at=10), rules)
    assert (short.read, short.notes) == (500, ("beyond_lookback",))


def test_a_second_marker_starts_its_own_lookback() -> None:
    assert reads(request(blocks(15), [14], at=0), request(blocks(35), [14, 34], at=10)) == [0, 1500]


@pytest.mark.parametrize(("place", "read"), [(15, 0), (16, 1600)])
def test_the_marked_content_block_is_the_first_of_twenty(place: int, read: int) -> None:
    first = request(blocks(place), [place - 1], at=0)
    assert reads(first, request(blocks(35), [34], at=10))[1] == read


@pytest.mark.parametrize(("pairs", "hits"), [(9, True), (10, False)])
def test_sequential_pairs_of_call_and_result(pairs: int, hits: bool) -> None:
    names = blocks(1 + 2 * pairs)
    kinds = ["text", *["tool_use", "tool_result"] * pairs]
    found = reads(request(names[:1], [0], at=0), request(names, [2 * pairs], at=10, kinds=kinds))
    assert (found[1] == 100) is hits


def test_parallel_calls_and_their_results_are_two_positions() -> None:
    names = blocks(31)
    kinds = ["text", *["tool_use"] * 15, *["tool_result"] * 15]
    requests = [request(names[:1], [0], at=0), request(names, [30], at=10, kinds=kinds)]
    assert reads(*requests) == [0, 100]
    assert reads(*requests, rules=ClaudeRules(minimum=0, collapse_runs=False)) == [0, 0]


def test_an_entry_may_end_inside_a_run() -> None:
    names = blocks(40)
    kinds = ["text", *["tool_result"] * 39]
    assert reads(
        request(names[:5], [4], at=0, kinds=kinds[:5]), request(names, [39], at=10, kinds=kinds)
    ) == [0, 500]


# ── what is written ──────────────────────────────────────────────────────────────────────────────


def test_a_marker_behind_changing_content_writes_every_time_and_never_reads() -> None:
    asked = [request([*blocks(5), f"now{n}"], [5], at=10 * n) for n in range(3)]
    assert [(o.read, o.written) for o in run(*asked)] == [(0, 600)] * 3


def test_a_marker_before_changing_content_reads_from_the_second_request_on() -> None:
    asked = [request([*blocks(5), f"now{n}"], [4], at=10 * n) for n in range(3)]
    assert [(o.read, o.written, o.uncached) for o in run(*asked)] == [
        (0, 500, 100),
        (500, 0, 100),
        (500, 0, 100),
    ]


def test_mixed_lifetimes_are_billed_by_the_documented_rule() -> None:
    """Usage example of the page: 1,800 read, 100 written for an hour, 148 for five minutes."""
    found = run(
        request(["a"], [(0, "1h")], at=0, tokens=[1800]),
        request(
            ["a", "b", "c", "d"],
            [(1, "1h"), (2, "5m")],
            at=10,
            tokens=[1800, 100, 148, 2048],
        ),
    )
    assert found[1].read == 1800
    assert found[1].writes == {"1h": 100, "5m": 148}
    assert found[1].uncached == 2048


def test_a_prewarm_writes_and_bills_its_prefix() -> None:
    """The page's figures: 5,120 written, 8 uncached."""
    found = run(
        request(["s", "p"], [0], tokens=[5120, 8], is_prewarm=True),
        request(["s", "q"], [0], at=20, tokens=[5120, 30]),
    )
    assert (found[0].writes, found[0].uncached) == ({"5m": 5120}, 8)
    assert found[1].read == 5120


def test_without_a_marker_nothing_is_read_or_written() -> None:
    found = run(request(["a"], [0], at=0), request(["a", "b"], [], at=10))
    assert (found[1].read, found[1].written, found[1].uncached) == (0, 0, 200)
    assert found[1].notes == ("no_marker",)


# ── time ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("start", "hits"), [(299, True), (300, False), (301, False)])
def test_generation_counts_against_the_lifetime(start: float, hits: bool) -> None:
    """The first request generates for 240 s; the clock has run since its start."""
    first = request(["a"], [0], at=0, first=2, end=240)
    assert (reads(first, request(["a"], [0], at=start))[1] == 100) is hits


def test_a_refresh_at_four_minutes_carries_the_entry_past_eight() -> None:
    """Published measurement: refresh at 240 s, read at 482 s hits, without refresh it does not."""
    asked = [request(["a"], [0], at=at) for at in (0, 240, 482)]
    assert reads(*asked) == [0, 100, 100]
    assert reads(asked[0], asked[2]) == [0, 0]


def test_a_read_renews_for_the_lifetime_that_was_written() -> None:
    asked = [
        request(["a"], [(0, "1h")], at=0),
        request(["a"], [(0, "5m")], at=3000),
        request(["a"], [(0, "5m")], at=6500),
    ]
    assert reads(*asked) == [0, 100, 100]


def test_a_long_prefix_keeps_the_shorter_ones_that_it_marks() -> None:
    long = [request(["s", "m"], [0, 1], at=at) for at in (0, 200, 400)]
    last = request(["s", "x"], [0, 1], at=650)
    assert reads(*long, last)[-1] == 100
    strict = ClaudeRules(minimum=0, refresh_marked=False, write_below_hit=False)
    assert reads(*long, last, rules=strict)[-1] == 0


def test_requests_of_the_same_moment_cannot_read_each_other() -> None:
    asked = [request(["a", f"own{n}"], [0, 1], at=10, first=12, identity=str(n)) for n in range(3)]
    later = request(["a", "own0"], [0, 1], at=13)
    assert [(o.read, o.written) for o in run(*asked, later)] == [(0, 200)] * 3 + [(200, 0)]


def test_an_entry_can_be_read_once_the_first_response_begins() -> None:
    first = request(["a"], [0], at=0, first=3, end=60)
    early, late = request(["a"], [0], at=2.9), request(["a"], [0], at=3)
    assert reads(first, early) == [0, 0]
    assert reads(first, late) == [0, 100]


def test_a_delay_until_writes_are_visible_is_a_switch() -> None:
    """Public report: at once the second call misses, after two seconds it hits."""
    delayed = ClaudeRules(minimum=0, visible_after=2.0)
    first = request(["a"], [0], at=0, first=1)
    assert reads(first, request(["a"], [0], at=1.5), rules=delayed)[1] == 0
    assert reads(first, request(["a"], [0], at=3.0), rules=delayed)[1] == 100
    assert reads(first, request(["a"], [0], at=1.5))[1] == 100


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────


def test_each_account_has_its_own_cache() -> None:
    """Requests alternate over A, B, C, A: the fourth reads what A had last."""
    asked = [
        request(blocks(n + 1), [n], at=10 * n, scope=scope)
        for n, scope in enumerate(("A", "B", "C", "A"))
    ]
    assert reads(*asked) == [0, 0, 0, 100]


def test_a_variant_has_its_own_cache_and_is_found_again() -> None:
    """Adaptive thinking, none, adaptive: nothing is read in between, all of it after."""
    asked = [
        request(blocks(n + 1), [n], at=10 * n, variant=v) for n, v in enumerate(("on", "", "on"))
    ]
    assert reads(*asked) == [0, 0, 100]


def test_lifetimes_share_entries_unless_switched() -> None:
    asked = [request(["a"], [(0, "5m")], at=0), request(["a"], [(0, "1h")], at=10)]
    assert reads(*asked) == [0, 100]
    assert reads(*asked, rules=ClaudeRules(minimum=0, ttl_in_key=True)) == [0, 0]


def test_reading_may_lengthen_an_entry_where_switched() -> None:
    asked = [
        request(["a"], [(0, "5m")], at=0),
        request(["a"], [(0, "1h")], at=10),
        request(["a"], [(0, "1h")], at=2000),
    ]
    assert reads(*asked)[2] == 0
    assert reads(*asked, rules=ClaudeRules(minimum=0, read_upgrades=True))[2] == 100


# ── refusals and sizes ───────────────────────────────────────────────────────────────────────────


def test_a_fifth_marker_is_refused_the_automatic_one_included() -> None:
    four = [Mark(n) for n in range(4)]
    five = [*four, Mark(5, automatic=True)]
    assert run(request(blocks(6), placed=tuple(four)))[0].refused is None
    assert "4 are allowed" in str(run(request(blocks(6), placed=tuple(five)))[0].refused)


def test_a_longer_lifetime_behind_a_shorter_one_is_refused() -> None:
    assert run(request(blocks(2), [(0, "5m"), (1, "1h")]))[0].refused is not None
    assert run(request(blocks(2), [(0, None), (1, "1h")]))[0].refused is not None
    assert run(request(blocks(2), [(0, "1h"), (1, "5m")]))[0].refused is None


def test_a_refused_request_leaves_the_cache_alone() -> None:
    bad = request(["a", "b"], [(0, "5m"), (1, "1h")], at=0)
    assert reads(bad, request(["a"], [0], at=10))[1] == 0


def test_the_automatic_marker_steps_back_to_what_can_be_marked() -> None:
    asked = request(["a", "t"], placed=(Mark(1, automatic=True),), kinds=["text", "thinking"], at=0)
    found = run(asked, request(["a", "t", "u"], placed=(Mark(2, automatic=True),), at=10))
    assert (found[0].written, found[0].uncached) == (100, 100)
    assert found[1].read == 100


def test_an_automatic_marker_on_a_marked_content_block() -> None:
    same = request(["a"], placed=(Mark(0), Mark(0, "5m", automatic=True)))
    other = request(["a"], placed=(Mark(0), Mark(0, "1h", automatic=True)))
    assert run(same)[0].writes == {"5m": 100}
    assert "another lifetime" in str(run(other)[0].refused)


def test_some_platforms_place_no_marker_by_themselves() -> None:
    asked = request(["a"], placed=(Mark(0, automatic=True),))
    assert run(asked, rules=ClaudeRules(minimum=0, automatic=False))[0].refused is not None


def test_an_unknown_lifetime_is_refused() -> None:
    assert "2h" in str(run(request(["a"], [(0, "2h")]))[0].refused)


@pytest.mark.parametrize(("tokens", "written"), [(1023, 0), (1024, 1024)])
def test_the_minimum_counts_the_whole_prefix(tokens: int, written: int) -> None:
    found = run(request(["a", "b"], [1], tokens=[tokens - 1, 1]), rules=ClaudeRules(minimum=1024))
    assert found[0].written == written
    assert ("below_minimum" in found[0].notes) is not bool(written)


def test_results_of_server_tools_are_written_for_five_minutes() -> None:
    """All own markers say an hour, and yet five-minute writes appear."""
    asked = request(["a", "w"], placed=(Mark(0, "1h"), Mark(1, "5m", own=True)))
    assert run(asked)[0].writes == {"1h": 100, "5m": 100}


# ── the judge ────────────────────────────────────────────────────────────────────────────────────

KINDS = ("text", "tool_use", "tool_result", "thinking")
GAPS = st.sampled_from(
    [0.0, 0.0, 0.5, 0.5, 2.0, 2.0, 60.0, 60.0, 200.0, 298.0, 299.5, 300.0, 300.5, 1800.0, 3600.0]
)


@st.composite
def sessions(draw: st.DrawFn) -> tuple[Law, list[dict[str, Any]]]:
    law = Law(
        minimum=draw(st.sampled_from([0, 0, 5, 12])),
        positions=draw(st.sampled_from([1, 2, 3, 20])),
        collapse=draw(st.booleans()),
        refresh_marked=draw(st.booleans()),
        ttl_in_key=draw(st.sampled_from([False, False, True])),
        upgrade=draw(st.sampled_from([False, False, True])),
        delay=draw(st.sampled_from([0.0, 0.0, 2.0])),
        below_hit=draw(st.booleans()),
        at_end=draw(st.sampled_from([False, False, True])),
        reader_renews=draw(st.sampled_from([False, False, True])),
    )
    if law.ttl_in_key:
        law.upgrade = law.reader_renews = False
    steps: list[dict[str, Any]] = []
    history = [Block(f"s{n}", "text", n + 1) for n in range(draw(st.integers(1, 3)))]
    at, serial = 0.0, 0
    for _ in range(draw(st.integers(3, 12))):
        action = draw(st.sampled_from(["grow", "grow", "edit", "cut", "same", "same"]))
        if action == "grow":
            kind = draw(st.sampled_from(KINDS))
            for _ in range(draw(st.integers(1, 3))):
                serial += 1
                history = [*history, Block(f"n{serial}", kind, draw(st.integers(1, 6)))]
        elif action == "edit":
            place = len(history) - 1 - draw(st.integers(0, min(2, len(history) - 1)))
            serial += 1
            changed = Block(f"e{serial}", history[place].kind, draw(st.integers(1, 6)))
            history = [*history[:place], changed, *history[place + 1 :]]
        elif action == "cut":
            history = history[: len(history) - draw(st.integers(0, min(2, len(history) - 1)))]
        at += draw(GAPS)
        first = at + draw(st.sampled_from([0.25, 1.0, 5.0]))
        end = len(history) - 1
        behind = st.integers(max(0, end - 4), end)
        anywhere = st.integers(0, end)
        places = draw(st.lists(behind | anywhere, unique=True, min_size=1, max_size=3))
        if draw(st.integers(0, 14)) == 0:
            places = list(range(min(5, len(history))))
        lives = sorted(
            draw(st.lists(st.sampled_from(["5m", None, None, "1h"]), min_size=5, max_size=5)),
            key=lambda ttl: ttl != "1h",
        )
        if draw(st.integers(0, 9)) == 0:
            lives.reverse()
        wishes = [Wish(place, lives[n]) for n, place in enumerate(sorted(places))]
        if draw(st.integers(0, 3)) == 0:
            ttl = draw(st.sampled_from(["5m", None, "1h"]))
            wishes.append(Wish(len(history) - 1, ttl, automatic=True))
        steps.append(
            {
                "at": at,
                "first": first,
                "end": first + draw(st.sampled_from([0.0, 10.0, 100.0])),
                "blocks": history,
                "wishes": wishes,
                "scope": "y" if draw(st.integers(0, 9)) == 0 else "x",
                "variant": "v" if draw(st.integers(0, 9)) == 0 else "",
            }
        )
    return law, steps


def _rules(law: Law) -> ClaudeRules:
    return ClaudeRules(
        minimum=law.minimum,
        positions=law.positions,
        most_markers=law.most,
        collapse_runs=law.collapse,
        default_ttl=law.default,
        refresh_marked=law.refresh_marked,
        ttl_in_key=law.ttl_in_key,
        read_upgrades=law.upgrade,
        visible_after=law.delay,
        write_below_hit=law.below_hit,
        readable_at_end=law.at_end,
        renew_for_reader=law.reader_renews,
    )


@settings(max_examples=300, deadline=None)
@given(sessions())
def test_the_naive_cache_agrees(drawn: tuple[Law, list[dict[str, Any]]]) -> None:
    law, steps = drawn
    naive, machine, rules = NaiveCache(law), ClaudeMachine(), _rules(law)
    for number, step in enumerate(steps):
        bill = naive.ask(str(number), **step)
        marks = tuple(Mark(w.place, w.ttl, automatic=w.automatic) for w in step["wishes"])
        outcome = machine.step(
            request(
                [block.content for block in step["blocks"]],
                at=step["at"],
                first=step["first"],
                end=step["end"],
                tokens=[block.tokens for block in step["blocks"]],
                kinds=[block.kind for block in step["blocks"]],
                identity=str(number),
                placed=marks,
                scope=step["scope"],
                variant=step["variant"],
            ),
            rules,
        )
        assert (outcome.refused is not None) == bill.refused, number
        assert {
            "read": outcome.read,
            "5m": outcome.writes.get("5m", 0),
            "1h": outcome.writes.get("1h", 0),
            "uncached": outcome.uncached,
        } == as_dict(bill), number
        if not bill.refused:
            assert outcome.hit_from == bill.who

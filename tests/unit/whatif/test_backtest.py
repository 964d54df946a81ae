"""Lifetimes over a history: against the formula, against the simulator, on recorded sessions."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.errors import UsageError
from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Boundary, Call, Session
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.simulate.backtest import Backtest, backtest
from cacheaudit.simulate.bill import Biller
from cacheaudit.simulate.edit import parse_edit
from cacheaudit.simulate.policy import Policy, parse_policy
from cacheaudit.simulate.whatif import Lab
from tests.unit.whatif.builders import growing, without_bodies

BOOK = PriceBook()


def tried(sessions: Sequence[Session], *policies: str) -> Backtest:
    return backtest(sessions, [parse_policy(text) for text in policies], BOOK)


def saved(session: Session, policy: str) -> Decimal | None:
    return tried([session], policy).outcomes[0].saves.input_equivalents


def usage_calls(
    *rows: tuple[float, int, int, int], ttl: str = "5m", lane: str = "main"
) -> list[Call]:
    """Calls of (start, uncached, written, read)."""
    calls = []
    for number, (at, uncached, written, read) in enumerate(rows):
        usage = Usage(
            total_input=uncached + written + read,
            uncached_input=uncached,
            cache_read=read,
            write_5m=written if ttl == "5m" else 0,
            write_1h=written if ttl == "1h" else 0,
            output=10,
        )
        calls.append(
            Call(
                id=f"{lane}{number}",
                session="s",
                lane=lane,
                provider="anthropic",
                surface="claude_api",
                model="claude-opus-5",
                started_at=1_790_000_000 + at,
                usage=usage,
            )
        )
    return calls


def session_of(*calls: Call, name: str = "s") -> Session:
    return Session(id=name, source="test", calls=calls)


# ── one pause, by hand ───────────────────────────────────────────────────────────────────────────


def test_an_hour_turns_rewrites_into_reads_and_costs_more_for_the_rest() -> None:
    session = session_of(
        *usage_calls((0, 0, 50_000, 0), (600, 0, 51_000, 0), (610, 0, 500, 51_000))
    )
    found = tried([session], "1h", "5m")
    assert found.expiries == 1
    assert found.rewritten == 50_000
    expected = 50_000 * Decimal("1.15") - (101_500 - 50_000) * Decimal("0.75")
    assert found.outcomes[0].saves.input_equivalents == expected
    assert found.outcomes[0].saves.cost == expected * Decimal("0.000005")
    assert found.outcomes[1].saves.input_equivalents == 0


def test_five_minutes_lose_what_an_hour_kept() -> None:
    session = session_of(*usage_calls((0, 0, 50_000, 0), (600, 0, 1_000, 50_000), ttl="1h"))
    found = tried([session], "5m", "1h").outcomes
    assert found[0].reads_lost == 1
    # Read 50,000 becomes a write; what was written is 0.75 cheaper.
    assert found[0].saves.input_equivalents == 51_000 * Decimal("0.75") - 50_000 * Decimal("1.15")
    assert found[1].saves.input_equivalents == 0


def test_losses_inside_the_lifetime_stay_lost() -> None:
    session = session_of(*usage_calls((0, 0, 50_000, 0), (60, 0, 51_000, 0)))
    found = tried([session], "1h", "5m+keep-alive-known")
    assert found.expiries == 0
    assert found.outcomes[0].saves.input_equivalents == -101_000 * Decimal("0.75")
    assert found.outcomes[1].saves.input_equivalents == 0


def test_compaction_is_no_expiry() -> None:
    calls = usage_calls((0, 0, 50_000, 0), (600, 0, 51_000, 0))
    calls[1] = msgspec.structs.replace(calls[1], boundaries=(Boundary("compaction"),))
    assert tried([session_of(*calls)], "1h").expiries == 0


def test_refreshes_in_known_pauses_bridge_them() -> None:
    session = session_of(*usage_calls((0, 0, 36_150, 0), (335, 0, 37_650, 0)))
    assert saved(session, "5m+keep-alive-known") == Decimal("37957.5")
    # Not known: six more follow the last call.
    blind = tried([session], "5m+keep-alive").outcomes[0]
    assert blind.refreshes == 7
    assert blind.saves.input_equivalents == Decimal("37957.5") - 6 * Decimal(3_765)


def test_refreshing_longer_than_it_is_worth_is_left_out_where_pauses_are_known() -> None:
    worth = session_of(*usage_calls((0, 0, 50_000, 0), (11 * 270 + 5, 0, 51_000, 0)))
    not_worth = session_of(*usage_calls((0, 0, 50_000, 0), (12 * 270 + 60, 0, 51_000, 0)))
    assert saved(worth, "5m+keep-alive-known") == 50_000 * (Decimal("1.15") - Decimal("1.1"))
    assert saved(not_worth, "5m+keep-alive-known") == 0


def test_lanes_follow_their_own_setting() -> None:
    rows = ((0, 0, 50_000, 0), (600, 0, 51_000, 0))
    session = session_of(*usage_calls(*rows), *usage_calls(*rows, lane="sub"))
    both, main = saved(session, "1h"), saved(session, "main=1h,subagents=5m")
    assert both is not None
    assert main == both / 2


def test_no_caching_sends_everything_uncached() -> None:
    session = session_of(*usage_calls((0, 100, 50_000, 0), (60, 100, 1_000, 50_000)))
    assert saved(session, "none") == 51_000 * Decimal("0.25") - 50_000 * Decimal("0.9")


# ── against the simulator ────────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([5.0, 100.0, 269.0, 290.0, 310.0, 700.0, 2000.0, 5000.0]), max_size=8),
    st.sampled_from([None, "1h"]),
    st.sampled_from(
        [
            ("1h", "ttl:ttl=1h"),
            ("5m", "ttl:ttl=5m"),
            ("none", "unmark"),
            ("5m+keep-alive", "keep-alive:idle=yes,running_cap=1800"),
        ]
    ),
)
def test_sizes_and_bodies_agree(gaps: list[float], ttl: str | None, pair: tuple[str, str]) -> None:
    """The same lane, once by its sizes and once simulated with bodies, costs the same."""
    policy, edit = pair
    starts = [0.0]
    for gap in gaps:
        starts.append(starts[-1] + gap)
    calls = growing(starts, ttl=ttl if "keep-alive" not in policy else None)
    lab = Lab(calls)
    trial = lab.alone(parse_edit(edit))
    by_size = backtest([without_bodies(calls)], [parse_policy(policy)]).outcomes[0]
    assert trial.bill is not None
    assert by_size.saves.input_equivalents == trial.saves.input_equivalents
    if "keep-alive" in policy:
        assert by_size.refreshes == trial.own_costs.added_calls


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([5.0, 310.0, 5000.0]), max_size=6))
def test_the_ideal_by_sizes_is_that_by_bodies(gaps: list[float]) -> None:
    from cacheaudit.simulate.lifetimes import Judge

    starts = [0.0]
    for gap in gaps:
        starts.append(starts[-1] + gap)
    calls = growing(starts)
    ideal = Lab(calls).bounds()[1].bill
    judged = Judge([], None).session(without_bodies(calls))
    assert ideal is not None
    assert judged.ideal.cache_read == ideal.cache_read
    assert sum(judged.ideal.cache_writes.values()) == ideal.cache_write
    assert judged.ideal.uncached_input == ideal.uncached_input


# ── over a history ───────────────────────────────────────────────────────────────────────────────


def test_how_often_a_setting_loses() -> None:
    day = 86_400.0
    paused = usage_calls((0, 0, 50_000, 0), (600, 0, 51_000, 0))
    quick = [
        msgspec.structs.replace(call, started_at=(call.started_at or 0) + day)
        for call in usage_calls((0, 0, 40_000, 0), (60, 0, 1_000, 40_000))
    ]
    found = tried([session_of(*paused, name="p"), session_of(*quick, name="q")], "1h")
    outcome = found.outcomes[0]
    assert (outcome.sessions, outcome.lost_sessions, outcome.won_sessions) == (2, 1, 1)
    assert (outcome.days, outcome.lost_days) == (2, 1)
    assert outcome.worst_session == "q"
    assert outcome.worst.input_equivalents == -41_000 * Decimal("0.75")
    assert found.billed.input_equivalents is not None
    assert outcome.cost.input_equivalents == found.billed.input_equivalents - (
        outcome.saves.input_equivalents or 0
    )


def test_a_history_is_read_once_and_not_kept() -> None:
    def history(count: int) -> list[Session]:
        return [
            session_of(*usage_calls((0, 0, 50_000, 0), (600, 0, 51_000, 0)), name=f"s{n}")
            for n in range(count)
        ]

    once = iter(history(5))
    found = backtest(once, [parse_policy("1h")], BOOK)
    assert next(once, None) is None
    one = tried(history(1), "1h").outcomes[0].saves.input_equivalents
    assert one is not None
    assert found.outcomes[0].saves.input_equivalents == 5 * one
    assert found.outcomes[0].sessions == 5


def test_what_has_no_choice_is_left_out_and_said() -> None:
    openai = Call(
        id="o",
        provider="openai",
        model="gpt-5.6",
        started_at=1.8e9,
        usage=Usage(total_input=10, uncached_input=0, cache_read=10, output=1),
    )
    timeless = msgspec.structs.replace(usage_calls((0, 0, 50_000, 0))[0], started_at=None)
    found = tried([session_of(openai, timeless)], "1h")
    assert found.judged_calls == 0
    assert found.left_out == {"no_choice_of_lifetime": 1, "no_start_time": 1}
    assert found.outcomes[0].saves.cost is None


def test_without_prices_there_is_no_money() -> None:
    session = session_of(*usage_calls((0, 0, 50_000, 0), (600, 0, 51_000, 0)))
    outcome = backtest([session], [parse_policy("1h")]).outcomes[0]
    assert outcome.saves.cost is None
    assert (
        outcome.saves.input_equivalents
        == tried([session], "1h").outcomes[0].saves.input_equivalents
    )


@pytest.mark.parametrize(
    ("text", "main", "sub"),
    [
        ("1h", ("1h", False, 1800), ("1h", False, 1800)),
        ("main=1h,subagents=5m", ("1h", False, 1800), ("5m", False, 1800)),
        ("5m+keep-alive@600", ("5m", True, 600), ("5m", True, 600)),
        ("all=5m,main=none", ("none", False, 1800), ("5m", False, 1800)),
    ],
)
def test_policies_are_read(text: str, main: tuple[object, ...], sub: tuple[object, ...]) -> None:
    found: Policy = parse_policy(text)
    for setting, wanted in ((found.main, main), (found.subagents, sub)):
        assert (setting.lifetime, setting.keep_alive, setting.cap) == wanted


@pytest.mark.parametrize(
    "text",
    ["2h", "main=1h", "5m+ping", "none+keep-alive", "5m+keep-alive@soon", "x=1h", "1h,1h", "5m+"],
)
def test_other_texts_are_no_policies(text: str) -> None:
    with pytest.raises(UsageError):
        parse_policy(text)


# ── public cases and recorded sessions ───────────────────────────────────────────────────────────


def test_read_and_write_weights_of_public_cases() -> None:
    biller = Biller(None)
    (call,) = usage_calls((0, 0, 0, 0))

    def weight(written: int, read: int) -> Decimal:
        usage = Usage(uncached_input=0, cache_read=read, write_5m=written, output=0)
        found = biller.price(call, usage).amounts.input_equivalents
        assert found is not None
        return found

    # 23 agents: writes weigh 6.98 M, reads 7.27 M, at a ratio of 1 : 13.0.
    writes, reads = weight(5_586_784, 0), weight(0, 72_733_002)
    assert (round(writes / 10**6, 2), round(reads / 10**6, 2)) == (Decimal("6.98"), Decimal("7.27"))
    # 202 requests: writes are 88 % of the weighted input.
    share = weight(27_513_828, 0) / weight(27_513_828, 45_733_687)
    assert round(share * 100, 1) == Decimal("88.3")


@pytest.mark.shared
def test_what_an_hour_would_have_cost_in_the_recorded_session(shared: Path) -> None:
    path = shared / "data" / "sessions" / "claude_code" / "b.jsonl"
    (session,) = Corpus([path], Problems(), lambda _done, _total: None).sessions()
    found = tried([session], "1h", "5m", "5m+keep-alive-known")
    assert found.expiries == 11
    assert found.left_out == {}
    hour, same, known = found.outcomes
    assert same.saves.input_equivalents == 0
    written = 1_618_146
    expected = found.rewritten * Decimal("1.15") - (written - found.rewritten) * Decimal("0.75")
    assert hour.saves.input_equivalents == expected == Decimal("836904.7")
    assert hour.cost.cost == Decimal("19.77026")
    assert found.billed.cost == Decimal("23.9547835")
    assert hour.reads_gained == 10
    assert hour.lost_sessions == 0
    assert known.saves.rank > hour.saves.rank


def test_at_the_very_end_of_its_lifetime_an_entry_is_gone() -> None:
    def lost(gap: float) -> int:
        session = session_of(*usage_calls((0, 0, 50_000, 0), (gap, 0, 100, 50_000), ttl="1h"))
        return tried([session], "5m").outcomes[0].reads_lost

    assert lost(300.0) == 1
    assert lost(299.5) == 0


def test_a_refresh_sends_the_uncached_tail_again() -> None:
    session = session_of(*usage_calls((0, 700, 50_000, 0), (600, 0, 51_000, 0)))
    outcome = tried([session], "5m+keep-alive-known").outcomes[0]
    assert outcome.refreshes == 2
    assert outcome.refresh_cost.input_equivalents == 2 * (700 + 50_000 * Decimal("0.1"))
    expected = 50_000 * Decimal("1.15") - 2 * Decimal(5_700)
    assert outcome.saves.input_equivalents == expected

"""Rules that look at usage: figures of public reports, and sums against a plain recount."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.runner import Diagnosis, diagnose
from cacheaudit.diagnose.survey import FLOOD_TOKENS, LaneSurvey, lifetimes, survey
from cacheaudit.diagnose.worth import Stage, Swap, affordable_pings, saving, stage_line
from cacheaudit.ingest.detect import detect, head_of
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook

WRITE, HOUR, READ = Decimal("1.25"), Decimal(2), Decimal("0.1")


def found(script: Script | Session, name: str) -> list[Finding]:
    session = script.session() if isinstance(script, Script) else script
    return [f for f in diagnose(session).findings if f.name == name]


def one(script: Script | Session, name: str) -> Finding:
    (finding,) = found(script, name)
    return finding


def names(diagnosis: Diagnosis) -> list[str]:
    return [f.name for f in diagnosis.findings if f.kind == "loss"]


def worth(finding: Finding) -> Decimal:
    assert finding.fix is not None
    assert finding.fix.saves_alone is not None
    return finding.fix.saves_alone.input_equivalents


# T03: compare what pauses cost with what the longer lifetime would have cost.


def test_one_hour_is_advised_only_where_pauses_cost_more_than_dearer_writes() -> None:
    pauses = Script().call(0, 0, 60_000).call(600, 0, 60_500).call(620, 60_500, 9_000)
    assert worth(one(pauses, "one-hour-lifetime-would-pay")) == 60_000 * (WRITE - READ) - (
        60_000 + 60_500 + 9_000 - 60_000
    ) * (HOUR - WRITE)
    busy = Script().call(0, 0, 30_000).call(600, 0, 30_500)
    for number in range(30):
        busy.call(620 + 20 * number, 30_500 + 3_000 * number, 3_000)
    assert found(busy, "one-hour-lifetime-would-pay") == []


@pytest.mark.parametrize("gap", [4_000, 290])
def test_pauses_beyond_an_hour_or_below_five_minutes_ask_for_no_other_lifetime(gap: int) -> None:
    script = Script().call(0, 0, 60_000).call(gap, 0, 60_500).call(2 * gap, 0, 61_000)
    assert found(script, "one-hour-lifetime-would-pay") == []


def test_five_minutes_are_advised_where_late_reads_cost_less_than_dearer_writes() -> None:
    def session(pause: float) -> Script:
        script = Script(ttl="1h").call(0, 0, 60_000).call(30, 60_000, 20_000)
        return script.call(60, 80_000, 20_000).call(60 + pause, 100_000, 500)

    name = "five-minute-lifetime-would-do"
    assert worth(one(session(30), name)) == 100_500 * (HOUR - WRITE)
    # 100,000 tokens written again would have cost more than 100,500 dearer writes.
    assert found(session(900), name) == []


def test_advice_follows_the_prices_in_force() -> None:
    # Reads of this model cost 0.05 of an input token from 2026-10-07 on.
    script = Script(model="claude-opus-5-5").call(1.7920e9, 0, 60_000)
    script.call(1.7920e9 + 600, 0, 60_500).call(1.7920e9 + 620, 60_500, 9_000)
    priced = [
        f
        for f in diagnose(script.session(), PriceBook()).findings
        if f.name == "one-hour-lifetime-would-pay"
    ]
    assert priced[0].fix is not None
    saved = priced[0].fix.saves_alone
    assert saved is not None
    expected = 60_000 * (WRITE - Decimal("0.05")) - 69_500 * (HOUR - WRITE)
    assert saved.input_equivalents == expected
    assert saved.cost == expected * 4 / 1_000_000


# A stage is told with its tokens, and with its cost where every rate is known.


def staged(script: Script, **changes: object) -> str:
    calls = script.session().calls
    last = msgspec.structs.replace(calls[-1], **changes)
    session = Session(id="s", source="s", calls=(*calls[:-1], last))
    return stage_line(session, Stage("Later", tuple(range(len(calls)))), PriceBook())


def two_models(**last: Any) -> Script:
    script = Script(model="claude-sonnet-4-5").call(1.7592e9, 1_000, 2_000, uncached=30)
    return script.call(1.7592e9 + 60, 3_000, 4_000, **last)


def test_a_stage_adds_up_calls_of_two_price_rows() -> None:
    # 3 and 1 a million: 1,000 x 0.3 + 2,000 x 3.75 + 30 x 3 and 3,000 x 0.1 + 4,000 x 2.
    assert staged(two_models(model="claude-haiku-4-5", ttl="1h")) == (
        "Later: 2 calls, 6,000 tokens written, 4,000 read, 30 uncached, 200 of output; "
        "input cost 0.0162 USD."
    )


def test_rare_lifetimes_count_as_written() -> None:
    usage = Usage(
        total_input=700,
        uncached_input=0,
        cache_read=0,
        write_other=700,
        write_other_ttl="1h",
        output=1,
    )
    assert staged(two_models(), usage=usage) == (
        "Later: 2 calls, 2,700 tokens written, 1,000 read, 30 uncached, 101 of output; "
        "input cost 0.0121 USD."  # 0.00789 and 700 x 6
    )


@pytest.mark.parametrize("changes", [{"usage": None}, {"model": "unheard-of"}, {"model": None}])
def test_a_stage_has_no_cost_where_one_call_has_none(changes: dict[str, object]) -> None:
    said = staged(two_models(), **changes)
    assert said.startswith("Later: 2 calls, ")
    assert said.endswith(" of output.")


# T07: keep-alive pays up to a number of pings that the prices give.


@pytest.mark.parametrize(("ttl", "most"), [("5m", 11), ("1h", 18)])
def test_break_even_of_keep_alive_is_computed(ttl: str, most: int) -> None:
    session = Script().call(0, 0, 9_000).session()
    pings = affordable_pings(session, 0, ttl, None)
    write = {"5m": WRITE, "1h": HOUR}[ttl]
    assert pings == most
    assert (pings + 1) * READ < write <= (pings + 2) * READ


def test_a_cheaper_read_affords_more_pings() -> None:
    session = Script(model="claude-opus-5-5").call(1.7920e9, 0, 9_000).session()
    assert affordable_pings(session, 0, "5m", PriceBook()) == 23


@pytest.mark.parametrize(("pings", "wasted"), [(11, False), (13, True)])
def test_t07_thirteen_pings_cost_more_than_one_write(pings: int, wasted: bool) -> None:
    script = Script().call(0, 0, 60_000)
    for number in range(pings):
        script.call(270.0 * (number + 1), 60_000, 0, purpose="keep_alive")
    script.call(270.0 * pings + 200, 60_000, 900)
    finding = found(script, "keep-alive-wasteful")
    assert bool(finding) == wasted
    for note in finding:
        assert "11 such reads" in note.established[-1]
        assert worth(note) == pings * 60_000 * READ - 60_000 * (WRITE - READ)


def test_t07_pings_are_pure_loss_if_nobody_comes_back() -> None:
    script = Script().call(0, 0, 60_000).call(270, 60_000, 0, purpose="keep_alive")
    assert worth(one(script, "keep-alive-wasteful")) == 60_000 * READ


def test_t09_a_ping_without_tools_refreshes_nothing_and_hides_no_loss() -> None:
    script = (
        Script()
        .call(0, 0, 60_000)
        .call(270, 0, 0, uncached=40, purpose="keep_alive")
        .call(500, 0, 61_000)
    )
    diagnosis = diagnose(script.session())
    assert names(diagnosis) == ["ttl-expired"]
    assert diagnosis.tokens_lost == 60_000
    assert one(script, "keep-alive-missed").calls == ("call-2",)


def test_t05_a_ping_behind_the_lifetime_is_told() -> None:
    script = Script().call(0, 0, 60_000).call(330, 0, 60_000, purpose="keep_alive")
    assert one(script, "keep-alive-missed").verdict == "consistent"


# T01, and unread one-hour writes.


def test_t01_the_call_from_which_one_hour_writes_stop() -> None:
    script = Script().call(0, 0, 40_000, ttl="1h").call(9, 40_000, 6_000, ttl="1h")
    script.call(20, 46_000, 6_000).call(30, 52_000, 6_000)
    note = one(script, "lifetime-changed")
    assert note.title == "Writes changed from 1h to 5m"
    assert note.calls == ("call-2", "call-3")
    back = script.call(40, 58_000, 6_000, ttl="1h")
    assert found(back, "lifetime-changed") == []


def test_the_share_of_one_hour_writes_that_nobody_read() -> None:
    script = Script(ttl="1h").call(0, 0, 63_000).call(30, 63_000, 37_000)
    note = one(script, "one-hour-writes-not-read-again")
    assert "37,000 of 100,000 tokens written for one hour (37 %)" in note.established[0]


# L09: the same body on two models.


def test_l09_a_prompt_between_two_minimums() -> None:
    script = Script()
    for lane, model, written in (("a", "claude-sonnet-4-5", 2_500), ("b", "claude-opus-4-5", 0)):
        script.call(0, 0, written, uncached=2_500 - written, lane=lane, model=model)
        script.call(60, written, 0, uncached=2_500 - written, lane=lane, model=model)
    note = one(script, "below-minimum")
    assert note.calls == ("call-3",)
    assert "claude-opus-4-5 caches from 4,096 tokens on" in note.established[0]


# F05, F07 and routers.


def test_f05_accounts_in_turn_are_named_from_the_second_read_on() -> None:
    script = Script().call(0, 0, 10_000).call(9, 0, 12_000).call(18, 0, 14_000)
    script.call(27, 10_000, 6_000).call(36, 12_000, 6_000).call(45, 14_000, 6_000)
    finding = one(script, "alternating-accounts")
    assert finding.calls == ("call-4", "call-5", "call-6")
    assert finding.verdict == "consistent"
    assert "parameter-changed" in {r.rule for r in finding.rivals}


def test_f07_nothing_read_until_the_route_was_pinned() -> None:
    script = Script(provider="openai", ttl=None)
    for number in range(4):
        script.call(20.0 * number, 0, None, uncached=16_000 + 200 * number)
    script.call(80, 16_384, None, uncached=470)
    finding = one(script, "routing-lost")
    assert (finding.verdict, len(finding.calls)) == ("consistent", 3)
    unpinned = Script(provider="openai", ttl=None)
    for number in range(4):
        unpinned.call(20.0 * number, 0, None, uncached=16_000 + 200 * number)
    assert one(unpinned, "routing-lost").verdict == "unknown"


@pytest.mark.parametrize(("misses", "verdict"), [(1, "unknown"), (2, "consistent")])
def test_a_router_is_suspected_harder_when_it_happens_again(misses: int, verdict: str) -> None:
    script = Script(provider="openrouter").call(0, 0, 30_000)
    for number in range(misses):
        script.call(20.0 * (number + 1), 0, 31_000 + number)
    assert one(script, "provider-switch-suspected").verdict == verdict


# C01, C02, C05, C06 and the three stages.


def test_c02_a_summary_request_without_tools_reads_nothing() -> None:
    script = Script().call(0, 0, 235_000)
    script.call(60, 0, 0, uncached=230_000, purpose="compaction").call(90, 15_000, 12_000)
    finding = one(script, "compaction-request-cold")
    assert finding.calls == ("call-2",)
    assert finding.tokens_lost == 230_000
    assert "compacted" in names(diagnose(script.session()))


def test_c06_compaction_of_warm_content_is_judged_by_what_followed() -> None:
    def compacted(after: float, later: int, trigger: str | None = None) -> Session:
        script = Script().call(0, 0, 90_000).call(after, 15_000, 20_000, boundary="compaction")
        for number in range(later):
            script.call(after + 20 * (number + 1), 35_000 + 500 * number, 500)
        return script.session()

    assert found(compacted(60, 1), "compacted-while-warm")
    assert found(compacted(60, 40), "compacted-while-warm") == []
    assert found(compacted(400, 1), "compacted-while-warm") == []


def test_a14_three_stages_each_with_its_figures() -> None:
    script = Script().call(0, 0, 160_000).call(60, 160_000, 900, purpose="compaction", output=4_000)
    script.call(90, 15_000, 20_000).call(120, 35_000, 900).call(150, 35_900, 900)
    lines = one(script, "compaction-stages").established
    assert "160,900" not in lines[0]
    assert "160,000 tokens became 35,000" in lines[0]
    assert "1 call, 900 tokens written, 160,000 read, 0 uncached, 4,000 of output" in lines[1]
    assert "1 call, 20,000 tokens written, 15,000 read" in lines[2]
    assert "2 calls, 1,800 tokens written, 70,900 read" in lines[3]


def test_a14_stages_are_priced() -> None:
    script = Script(model="claude-opus-4-6").call(1.7600e9, 0, 160_000)
    script.call(1.7600e9 + 60, 15_000, 20_000, boundary="compaction")
    (note,) = [
        f for f in diagnose(script.session(), PriceBook()).findings if f.name == "compaction-stages"
    ]
    # 20,000 written at 6.25 and 15,000 read at 0.50 for a million.
    assert note.established[1].endswith("input cost 0.1325 USD.")


@pytest.mark.parametrize(
    ("read", "written", "share"), [(45_733_687, 27_513_828, 88), (72_733_002, 5_586_784, 48)]
)
def test_c05_and_f04_share_of_writes_in_the_weighted_cost(read, written, share) -> None:
    lane = LaneSurvey("main", 0)
    lane.read, lane.written = read, written
    assert lane.write_share == share
    lane.writes["1h", None, 0] = (written, 0)
    assert lane.write_share > share


def test_an_empty_lane_has_no_share() -> None:
    assert LaneSurvey("main", 0).write_share == 0


# Symptoms (A05) and the record itself.


def test_misses_at_turn_starts_need_five_and_mostly_full_reads_within_turns() -> None:
    def turns(number: int, finished: str) -> Session:
        script, ends, size = Script(), [], 20_000
        for n in range(4 * number):
            is_start = n % 4 == 0
            script.call(20.0 * n, 0 if is_start else size, size + 500 - (0 if is_start else size))
            size += 500
            ends.append(finished if n % 4 == 3 else "tool_use")
        calls = zip(script.session().calls, ends, strict=True)
        return msgspec.structs.replace(
            script.session(),
            calls=tuple(msgspec.structs.replace(call, stop_reason=end) for call, end in calls),
        )

    assert len(one(turns(7, "end_turn"), "turn-start-misses").calls) == 6
    assert found(turns(5, "end_turn"), "turn-start-misses") == []
    assert found(turns(7, "tool_use"), "turn-start-misses") == []


def test_slow_calls_are_split_where_the_first_token_is_known() -> None:
    script = Script(ttl="1h").call(0, 0, 40_000, duration=50)
    for number in range(12):
        script.call(80.0 * (number + 1), 40_000 + 500 * number, 500, duration=50)
    session = script.session()
    timed = msgspec.structs.replace(
        session,
        calls=tuple(
            msgspec.structs.replace(call, first_token_at=(call.started_at or 0) + 8)
            for call in session.calls
        ),
    )
    note = one(timed, "slow-despite-cache")
    assert "the wait took 8 s and the generation 42 s" in note.established[1]
    assert len(one(session, "slow-despite-cache").established) == 1


def test_a30_a_gateway_that_drops_the_write_field() -> None:
    script = Script(provider="openrouter", ttl=None).call(0, 0, None, uncached=20_000)
    script.call(20, 20_000, None, uncached=900).call(40, 20_900, None, uncached=900)
    script.call(60, 21_800, None, uncached=900)
    assert one(script, "write-counts-dropped").verdict == "consistent"
    other = Script(provider="openai", model="gpt-5", ttl=None).call(0, 0, None, uncached=20_000)
    for number in range(3):
        other.call(20.0 * (number + 1), 19_968 + 896 * number, None, uncached=900)
    assert found(other, "write-counts-dropped") == []


@given(
    st.lists(
        st.tuples(
            st.floats(0, 2_000),
            st.integers(0, 90_000),
            st.integers(0, 60_000),
            st.integers(0, 60_000),
            st.integers(0, 3_000),
        ),
        max_size=12,
    )
)
def test_sums_equal_a_plain_recount(rows: list[tuple[float, int, int, int, int]]) -> None:
    calls, at = [], 0.0
    for number, (gap, read, five, hour, uncached) in enumerate(rows):
        at += gap
        call = Script().call(at, read, five, uncached=uncached).session().calls[0]
        assert call.usage is not None
        usage = msgspec.structs.replace(
            call.usage, write_1h=hour, total_input=(call.usage.total_input or 0) + hour
        )
        calls.append(msgspec.structs.replace(call, id=f"c{number}", usage=usage))
    ctx = Context(Session(id="s", source="t", calls=tuple(calls)))
    known = [row for row in rows if sum(row[1:]) > 0]
    lanes = survey(ctx).lanes
    if not known:
        assert lanes == {}
        return
    lane = lanes["main"]
    sizes = [sum(row[1:]) for row in known]
    assert (lane.calls, lane.total, lane.largest) == (len(known), sum(sizes), max(sizes))
    assert lane.read == sum(row[1] for row in known)
    assert lane.written == sum(row[2] + row[3] for row in known)
    assert lifetimes(ctx) == (sum(row[2] for row in known), sum(row[3] for row in known))
    unread = 0
    for before, after in pairwise(known):
        wrote = before[2] + before[3]
        unread += wrote - max(0, min(after[1], before[1] + wrote) - before[1])
    assert lane.unread == unread
    assert lane.last_written == known[-1][2] + known[-1][3]
    grown = [b - a - 100 for a, b in pairwise(sizes)]
    assert [size for _, size in lane.floods] == [g for g in grown if g >= FLOOD_TOKENS]


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.sampled_from(("uncached", "read", "5m", "1h"))))
)
def test_a_swap_and_its_reverse_cancel(parts: list[tuple[int, str]]) -> None:
    session = Script().call(0, 0, 9_000).session()
    there = [Swap(0, tokens, kind, "read") for tokens, kind in parts]
    back = [Swap(0, tokens, "read", kind) for tokens, kind in parts]
    total = saving(session, [*there, *back], None)
    assert total is not None
    assert total.input_equivalents == 0


# Recorded sessions.


def read(shared: Path, name: str) -> Session:
    path = shared / "data" / "sessions" / name
    source = detect(head_of(path))
    assert source is not None
    return Session(id=path.stem, source=source.name, calls=tuple(source.read(path, Problems())))


@pytest.mark.shared
def test_one_hour_would_have_paid_in_the_session_with_eleven_pauses(shared: Path) -> None:
    session = read(shared, "claude_code/b.jsonl")
    note = one(session, "one-hour-lifetime-would-pay")
    lost = sum(f.tokens_lost for f in found(session, "ttl-expired"))
    written = sum(c.usage.write_5m or 0 for c in session.calls if c.usage)
    assert lost == 1_193_287
    assert worth(note) == lost * (WRITE - READ) - (written - lost) * (HOUR - WRITE)


@pytest.mark.shared
def test_misses_of_a_long_session_come_with_turns_of_the_user(shared: Path) -> None:
    finding = one(read(shared, "pi/a.jsonl"), "turn-start-misses")
    assert len(finding.calls) == 31
    assert finding.verdict == "consistent"
    assert any("within a turn" in line for line in finding.established)
    assert {"system-changed", "tools-changed", "provider-side-suspected"} <= {
        rival.rule for rival in finding.rivals
    }

"""What only shows when sessions are put side by side."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.diagnose.cross import CrossState
from cacheaudit.diagnose.examples import Script, body
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding
from cacheaudit.model.tokens import with_recorded_tokens
from cacheaudit.pricing.book import PriceBook

DAY = 86_400.0
SIZES = (1_000, 1_000, 8_000, 6_000)


def named(script: Script, name: str, project: str | None = "p") -> Session:
    session = script.session()
    calls = tuple(
        msgspec.structs.replace(call, id=f"{name}/{call.id}", session=name)
        for call in session.calls
    )
    return msgspec.structs.replace(session, id=name, calls=calls, project=project)


def across(sessions: Iterable[Session], most: int = 1_000) -> tuple[list[Finding], CrossState]:
    state = CrossState(most)
    for session in sessions:
        state.add(session, diagnose(session))
    return list(state.findings()), state


def only(findings: list[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


def begin(at: float, read: int, written: int, name: str, project: str | None = "p") -> Session:
    return named(Script().call(at, read, written, duration=20), name, project)


def test_sessions_that_start_together_with_equal_writes_are_a_loss() -> None:
    findings, _ = across([begin(0, 0, 12_000, "a"), begin(0.5, 0, 12_000, "b")])
    found = only(findings, "concurrent-identical-writes")
    assert (found.kind, found.verdict, found.tokens_lost) == ("loss", "consistent", 12_000)
    assert found.lost is not None
    assert found.lost.input_equivalents == 12_000 * Decimal("1.15")
    assert found.calls == ("a/call-1", "b/call-1")
    assert found.session is None


def test_nearly_equal_writes_of_two_sessions_are_a_note_only() -> None:
    findings, _ = across([begin(0, 0, 12_000, "a"), begin(0.5, 0, 12_600, "b")])
    found = only(findings, "fan-out-without-warm-up")
    assert (found.kind, found.tokens_lost) == ("note", 0)
    assert "at most 12,000" in found.established[0]


@pytest.mark.parametrize(
    "second",
    [
        begin(0.5, 0, 12_000, "b", "another project"),
        begin(0.5, 3_000, 9_000, "b"),
        begin(30, 0, 25_000, "b"),
    ],
    ids=["another project", "another read", "later and larger"],
)
def test_sessions_that_have_nothing_in_common_are_not_joined(second: Session) -> None:
    findings, _ = across([begin(0, 0, 12_000, "a"), second])
    assert {f.name for f in findings} <= {"cold-start"}


def test_bodies_tell_how_much_two_sessions_share() -> None:
    sessions = []
    for name, own in (("a", "task of a"), ("b", "task of b")):
        session = named(Script().call(0, 0, 16_000, duration=20, body=body(own)), name)
        call = session.calls[0]
        assert call.prompt is not None
        sized = with_recorded_tokens(call.prompt, SIZES)
        call = msgspec.structs.replace(call, prompt=sized)
        sessions.append(msgspec.structs.replace(session, calls=(call,)))
    findings, _ = across(sessions)
    found = only(findings, "concurrent-identical-writes")
    # Two tools and the system prompt are the same, the first message is not.
    assert found.tokens_lost == 1_000 + 1_000 + 8_000
    assert (found.verdict, found.evidence) == ("proved", "body_diff")


def test_a_fan_out_named_within_its_session_is_not_named_again() -> None:
    script = Script().call(0, 0, 30_000, duration=5)
    for number in range(3):
        script.call(30, 0, 14_000 + number, duration=20, lane=f"sub-{number}")
    session = named(script, "a")
    other = begin(30.2, 0, 14_100, "b")
    inside = [f for f in diagnose(session).findings if f.name == "fan-out-without-warm-up"]
    assert [f.tokens_lost for f in inside] == [28_000]
    findings, _ = across([session, other])
    found = only(findings, "fan-out-without-warm-up")
    assert set(found.calls) == {"a/call-2", "b/call-1"}


@pytest.mark.parametrize(("gap", "is_seen"), [(60, True), (299, True), (400, False)])
def test_repeated_cold_starts_within_the_lifetime(gap: float, is_seen: bool) -> None:
    sessions = [begin(gap * n, 0, 12_000, f"s{n}") for n in range(3)]
    findings, _ = across(sessions)
    seen = [f for f in findings if f.name == "repeated-cold-starts"]
    assert bool(seen) == is_seen
    for finding in seen:
        assert finding.verdict == "consistent"
        assert finding.calls == ("s0/call-1", "s1/call-1", "s2/call-1")
        assert finding.tokens_lost == 0


def test_one_hour_writes_that_stop_on_a_day() -> None:
    sessions = [
        named(
            Script(ttl="1h" if day < 4 else "5m")
            .call(day * DAY, 0, 30_000)
            .call(day * DAY + 30, 30_000, 900),
            f"d{day}",
        )
        for day in range(7)
    ]
    found = only(across(sessions)[0], "lifetime-changed")
    assert found.title == "One-hour writes stopped on 1970-01-05"
    assert found.established == (
        "On 4 days before 1970-01-05: 0 tokens written for five minutes, 123,600 for one hour.",
        "On 3 days from 1970-01-05 on: 92,700 tokens written for five minutes, 0 for one hour.",
    )
    mixed = [*sessions, named(Script(ttl="1h").call(6 * DAY + 99, 0, 30_000), "late")]
    assert not [f for f in across(mixed)[0] if f.name == "lifetime-changed"]


def test_models_without_a_price_are_told_once() -> None:
    state = CrossState()
    for number in range(2):
        session = named(Script(model="no-such-model").call(0, 0, 9_000), f"s{number}")
        state.add(session, diagnose(session))
    session = named(Script().call(0, 0, 9_000), "known")
    state.add(session, diagnose(session))
    found = only(list(state.findings(PriceBook())), "price-unknown")
    assert found.established == ("No price is known for no-such-model (2 sessions).",)


def test_notes_are_joined_and_losses_handed_back() -> None:
    state = CrossState()
    sessions = [
        named(Script().call(n * 1e6, 0, 9_000 + n).call(n * 1e6 + 30, 0, 9_500), f"s{n}")
        for n in range(8)
    ]
    for session in sessions:
        at_once = state.add(session, diagnose(session))
        assert [f.name for f in at_once] == ["prefix-lost-inside-ttl"]
    found = only(list(state.findings()), "cold-start")
    assert found.established[0] == "8 calls in 8 sessions."
    assert found.established[-1] == "The same holds for 3 more sessions."
    assert len(found.calls) == 8
    assert found.session is None


def test_a_note_of_one_session_stays_as_it_was() -> None:
    session = named(Script().call(0, 0, 9_000).call(30, 9_000, 500), "a")
    (note,) = [f for f in diagnose(session).findings if f.name == "cold-start"]
    assert note in across([session])[0]


def test_savings_of_joined_notes_add_up() -> None:
    sessions = [
        named(
            Script().call(t, 0, 60_000).call(t + 600, 0, 60_500).call(t + 1_200, 0, 61_000),
            f"s{t}",
        )
        for t in (0, 100_000)
    ]
    each = [
        f.fix.saves_alone.input_equivalents
        for session in sessions
        for f in diagnose(session).findings
        if f.name == "one-hour-lifetime-would-pay" and f.fix and f.fix.saves_alone
    ]
    found = only(across(sessions)[0], "one-hour-lifetime-would-pay")
    assert found.fix is not None
    assert found.fix.saves_alone is not None
    assert len(each) == 2
    assert found.fix.saves_alone.input_equivalents == sum(each)


def test_memory_is_bounded_and_what_is_left_out_is_counted() -> None:
    sessions = [begin(1_000.0 * n, 0, 12_000, f"s{n}") for n in range(9)]
    _, state = across(sessions, most=4)
    assert state.left_out == 5


@given(
    st.lists(
        st.tuples(
            st.floats(0, 2_000), st.sampled_from((0, 5_000)), st.sampled_from((12_000, 12_500))
        ),
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_in_which_sessions_come_does_not_matter(starts, random) -> None:
    sessions = [begin(at, read, written, f"s{n}") for n, (at, read, written) in enumerate(starts)]
    shuffled = list(sessions)
    random.shuffle(shuffled)

    def said(order: list[Session]) -> list[tuple[str, int]]:
        found = across(order)[0]
        return sorted((f.name, f.tokens_lost) for f in found if f.name != "cold-start")

    if len({at for at, _, _ in starts}) == len(starts):
        assert said(sessions) == said(shuffled)


@given(st.lists(st.floats(0, 30), min_size=2, max_size=8))
def test_no_beginning_is_charged_twice(starts: list[float]) -> None:
    sessions = [begin(at, 0, 12_000, f"s{n}") for n, at in enumerate(starts)]
    losses = [f for f in across(sessions)[0] if f.kind == "loss"]
    assert sum(f.tokens_lost for f in losses) <= 12_000 * (len(starts) - 1)
    ids = [call for f in losses for call in f.calls]
    assert len(ids) == len(set(ids))
    assert len({f.id for f in losses}) == len(losses)

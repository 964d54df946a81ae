"""Attribution: every lost token has one cause, and healthy calls have none."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, all_rules
from cacheaudit.diagnose.rules.ttl_expired import TtlExpired
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.model.call import Boundary, Call, MissReason, Session, Span
from cacheaudit.model.usage import Usage

MODELS = ("claude-opus-4-6", "claude-sonnet-4-6", None)
REASONS = (
    "model_changed",
    "system_changed",
    "tools_changed",
    "messages_changed",
    "previous_message_not_found",
    "unavailable",
    "pending",
    "none",
)

FAN_OUT = ("concurrent-identical-writes", "fan-out-without-warm-up")


@st.composite
def any_usage(draw) -> Usage | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    sizes = st.one_of(st.just(0), st.integers(0, 200_000))
    read, uncached = draw(sizes), draw(st.integers(0, 5_000))
    writes = {
        field: draw(st.one_of(st.none(), sizes))
        for field in ("write_5m", "write_1h", "write_30m", "write_other")
    }
    return Usage(
        total_input=read + uncached + sum(value or 0 for value in writes.values()),
        uncached_input=uncached,
        cache_read=draw(st.sampled_from((read, read, read, None))),
        output=1,
        **writes,
    )


@st.composite
def any_session(draw) -> Session:
    at = 0.0
    calls = []
    for number in range(draw(st.integers(0, 14))):
        at += draw(st.sampled_from((0.0, 0.5, 20.0, 290.0, 310.0, 4_000.0)))
        start = draw(st.sampled_from(("exact", "span", "none")))
        calls.append(
            Call(
                id=f"c{number}",
                lane=draw(st.sampled_from(("main", "main", "sub"))),
                provider=draw(st.sampled_from(("anthropic", "openai", None))),
                model=draw(st.sampled_from(MODELS)),
                started_at=at if start == "exact" else None,
                start_span=Span(at - 15, at + 15) if start == "span" else None,
                ended_at=at + 5 if draw(st.booleans()) else None,
                usage=draw(any_usage()),
                diagnostics=MissReason(draw(st.sampled_from(REASONS)))
                if draw(st.booleans())
                else None,
                boundaries=(Boundary(draw(st.sampled_from(("compaction", "clear", "branch")))),)
                if draw(st.integers(0, 5)) == 0
                else (),
            )
        )
    return Session(id="any", source="test", calls=tuple(calls))


@given(any_session())
def test_every_lost_token_has_exactly_one_cause(session: Session) -> None:
    ctx = Context(session)
    diagnosis = diagnose(session)
    assert not [f for f in diagnosis.findings if f.kind == "error"]
    given_to = sum(f.tokens_lost for f in diagnosis.findings)
    unexplained = sum(f.tokens_lost for f in diagnosis.findings if f.name == "unexplained-loss")
    assert given_to == diagnosis.tokens_lost
    assert unexplained == diagnosis.tokens_unexplained
    # Beginnings that wrote the same as another one are the only losses outside a lane.
    events = {event.index for event in ctx.events}
    claims: dict[int, int] = {}
    for rule in all_rules():
        if rule.kind == "loss":
            for draft in rule.check(ctx):
                if draft.index not in events:
                    claims[draft.index] = max(draft.claims, claims.get(draft.index, 0))
                    assert not draft.claims or rule.name in FAN_OUT
    twins = sum(claims.values())
    assert given_to == ctx.lost + twins


@given(any_session())
def test_ids_are_unique_and_name_calls_of_the_session(session: Session) -> None:
    findings = diagnose(session).findings
    assert len({f.id for f in findings}) == len(findings)
    known = {call.id for call in session.calls}
    for finding in findings:
        assert set(finding.calls) <= known
        assert len(set(finding.calls)) == len(finding.calls)


@given(any_session())
def test_a_session_is_diagnosed_the_same_every_time(session: Session) -> None:
    assert diagnose(session) == diagnose(session)


@st.composite
def healthy(draw) -> Session:
    """Append-only lanes that read all that the call before had left in the cache."""
    calls = []
    ttl = draw(st.sampled_from(("write_5m", "write_1h", "write_other", "write_30m")))
    ends: dict[str, int] = {}
    at = 0.0
    for number in range(draw(st.integers(1, 25))):
        lane = draw(st.sampled_from(("main", "a", "b")))
        read = ends.get(lane, draw(st.sampled_from((0, 4_096, 30_000))))
        written = draw(st.integers(0, 60_000))
        uncached = draw(st.integers(0, 9_000))
        # Two beginnings of equal size in the same moment would be a fan-out; keep them apart.
        at += draw(st.floats(5.0, 5_000.0))
        ends[lane] = read + written
        calls.append(
            Call(
                id=f"c{number}",
                lane=lane,
                provider="anthropic",
                model="claude-opus-4-6",
                started_at=at,
                usage=Usage(
                    total_input=read + written + uncached,
                    uncached_input=uncached,
                    cache_read=read,
                    output=1,
                    **{ttl: written},
                ),
            )
        )
    return Session(id="healthy", source="test", calls=tuple(calls))


@given(healthy())
def test_append_only_sessions_lose_nothing_whatever_their_sizes(session: Session) -> None:
    diagnosis = diagnose(session)
    assert [f.name for f in diagnosis.findings if f.kind == "loss"] == []
    assert diagnosis.tokens_lost == 0


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=20))
def test_automatic_caches_that_round_down_lose_nothing(growth: list[int]) -> None:
    script = Script(provider="openai")
    size = 0
    for number, tokens in enumerate(growth):
        read = size // 128 * 128
        size += tokens + 1
        script.call(30.0 * number, read, None, uncached=size - read)
    assert diagnose(script.session()).tokens_lost == 0


class _Broken(TtlExpired, register=False):
    """A rule that fails after its first draft."""

    def check(self, ctx: Context) -> Iterable[Draft]:
        yield from super().check(ctx)
        raise KeyError("text of a prompt")


def test_a_rule_that_fails_becomes_a_finding_and_claims_nothing() -> None:
    session = Script().call(0, 0, 30_000).call(400, 0, 30_500).session()
    rules: list[Rule] = [_Broken(), *(r for r in all_rules() if r.name == "unexplained-loss")]
    diagnosis = diagnose(session, rules=rules)
    loss, error = diagnosis.findings
    assert (loss.name, loss.tokens_lost) == ("unexplained-loss", 30_000)
    assert error.kind == "error"
    assert "KeyError" in error.established[0]
    assert "text of a prompt" not in repr(error)


def test_findings_come_largest_first_and_notes_behind() -> None:
    findings = diagnose(
        Script()
        .call(0, 0, 30_000)
        .call(30, 0, 31_000)
        .call(60, 31_000, 90_000)
        .call(600, 0, 122_000)
        .session()
    ).findings
    losses = [f for f in findings if f.kind == "loss"]
    assert [f.name for f in losses] == ["ttl-expired", "prefix-lost-inside-ttl"]
    assert {f.kind for f in findings[len(losses) :]} == {"note"}


def test_many_calls_are_one_finding_with_capped_text() -> None:
    script = Script()
    for number in range(40):
        script.call(400.0 * number, 0, 30_000 + number * 100)
    (finding,) = [f for f in diagnose(script.session()).findings if f.kind == "loss"]
    assert len(finding.calls) == 39
    assert len(finding.established) == 14
    assert finding.established[-1] == "The same holds for 27 more calls."
    assert finding.lost is not None
    assert finding.lost.input_equivalents == finding.tokens_lost * Decimal("1.15")


def test_calls_keep_their_place_when_usage_is_missing_in_between() -> None:
    session = Script().call(0, 0, 30_000).call(30, 0, 31_000).session()
    calls = (session.calls[0], Call(id="failed", started_at=10.0), session.calls[1])
    diagnosis = diagnose(msgspec.structs.replace(session, calls=calls))
    assert diagnosis.findings[0].calls == ("call-2",)


@pytest.mark.parametrize("size", [1_024, 1_025])
def test_a_shortfall_of_up_to_1024_tokens_is_no_event(size: int) -> None:
    lost = diagnose(Script().call(0, 0, 9_000).call(30, 9_000 - size, 2_000).session()).tokens_lost
    assert lost == (0 if size <= 1_024 else size)


@pytest.mark.parametrize("size", [5_000, 5_001])
def test_a_shortfall_of_up_to_5_percent_is_no_event(size: int) -> None:
    lost = diagnose(
        Script().call(0, 0, 100_000).call(30, 100_000 - size, 5_500).session()
    ).tokens_lost
    assert lost == (0 if size <= 5_000 else size)

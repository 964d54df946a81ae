"""Cases from public reports whose right answer is restraint, or a cause that peers get wrong."""

from __future__ import annotations

import msgspec
import pytest

from cacheaudit.diagnose.examples import Script, body
from cacheaudit.diagnose.runner import Diagnosis, diagnose
from cacheaudit.model.call import Call, Session, Span
from cacheaudit.model.finding import Finding
from cacheaudit.model.tokens import with_recorded_tokens


def losses(diagnosis: Diagnosis) -> list[Finding]:
    return [f for f in diagnosis.findings if f.kind == "loss"]


def only(script: Script) -> Finding:
    (found,) = losses(diagnose(script.session()))
    return found


def names(script: Script) -> list[str]:
    return [f.name for f in losses(diagnose(script.session()))]


def test_p05_misses_at_short_gaps_between_hits_at_long_ones() -> None:
    script = Script(ttl="1h").call(0, 29_542, 120_000)
    at, size = 0.0, 149_542
    for gap, is_miss in (
        (18, True),
        (1_560, False),
        (60, True),
        (1_920, False),
        (42, True),
        (30, False),
    ):
        at += gap
        read = 29_542 if is_miss else size
        script.call(at, read, size + 900 - read)
        size += 900
    finding = only(script)
    assert finding.name == "provider-side-suspected"
    assert finding.verdict == "unknown"
    assert len(finding.calls) == 3
    assert "messages-changed" in {r.rule for r in finding.rivals}
    assert any("expiry is excluded" in line for line in finding.established)


def test_d01_nothing_read_and_nothing_written() -> None:
    script = Script().call(0, 0, 20_000).call(20, 0, 0, uncached=20_400).call(40, 20_000, 900)
    finding = only(script)
    assert (finding.name, finding.verdict) == ("provider-side-suspected", "unknown")
    assert finding.fix is None


def test_d01_alone_is_no_loss() -> None:
    diagnosis = diagnose(Script().call(0, 0, 0, uncached=20_000).session())
    assert losses(diagnosis) == []
    (note,) = diagnosis.findings
    assert (note.name, note.verdict) == ("nothing-cached", "unknown")
    assert "provider-side-suspected" in {r.rule for r in note.rivals}


def test_l12_names_both_checks() -> None:
    diagnosis = diagnose(
        Script().call(0, 0, 0, uncached=9_000).call(9, 0, 0, uncached=9_500).session()
    )
    (note,) = diagnosis.findings
    assert any("marker" in line for line in note.to_check)
    assert any("minimum size" in line for line in note.to_check)


def test_prompts_below_every_minimum_are_not_mentioned() -> None:
    assert diagnose(Script().call(0, 0, 0, uncached=3_000).session()).findings == ()


def test_a_write_that_is_read_back_is_healthy() -> None:
    diagnosis = diagnose(Script().call(0, 0, 20_000).call(30, 20_000, 600).session())
    assert losses(diagnosis) == []


def test_f01_an_equal_request_right_behind_is_no_fault_of_the_prefix() -> None:
    finding = only(Script().call(0, 0, 12_000, duration=2).call(2.1, 0, 12_000, duration=2))
    assert finding.name == "read-before-visible"
    assert finding.verdict == "consistent"
    assert names(Script().call(0, 0, 12_000, duration=2).call(4.2, 12_000, 0)) == []


def test_f05_alternating_accounts_are_a_rival_of_a_restored_prefix() -> None:
    script = (
        Script().call(0, 0, 10_000).call(10, 0, 12_000).call(20, 0, 14_000).call(30, 10_000, 6_000)
    )
    older = next(f for f in losses(diagnose(script.session())) if f.name == "older-prefix-read")
    assert any("accounts" in rival.why for rival in older.rivals)
    assert older.verdict == "consistent"


def test_p03_flat_read_floor_counts_only_what_was_not_new() -> None:
    new = (0, 2_000, 3_000, 2_500, 4_000)
    script, size = Script().call(0, 14_500, 6_000), 20_500
    for number, tokens in enumerate(new[1:], 1):
        size += tokens
        script.call(60.0 * number, 14_500, size - 14_500)
    finding = only(script)
    assert finding.name == "read-floor"
    written = [size - 14_500 for size in (22_500, 25_500, 28_000, 32_000)]
    assert finding.tokens_lost == sum(written) - sum(new)
    assert finding.verdict == "consistent"


def test_p20_a_parameter_that_flips_is_named_with_bodies() -> None:
    thinking = {"thinking": {"type": "adaptive"}}
    finding = only(
        Script()
        .call(0, 0, 28_114, body=body("a", **thinking))
        .call(9, 0, 28_239, body=body("a", "b", "c"))
        .call(18, 28_181, 200, body=body("a", "b", "c", "d", "e", **thinking))
    )
    assert finding.name == "thinking-toggled"
    assert finding.evidence == "body_diff"
    assert finding.verdict == "proved"
    assert finding.first_change is not None
    assert finding.first_change.path == "thinking"


def test_p21_the_read_stops_where_an_old_prompt_ended() -> None:
    finding = only(
        Script(ttl="1h")
        .call(0, 0, 83_834)
        .call(30, 83_834, 147_917)
        .call(60, 231_751, 828)
        .call(90, 83_834, 158_694)
    )
    assert finding.name == "history-changed-midway"
    assert finding.verdict == "consistent"
    assert any("call-1" in line for line in finding.to_check)


def test_lookback_from_usage_alone_is_not_claimed() -> None:
    script = Script().call(0, 0, 42_000).call(25, 7_350, 44_000).call(50, 51_350, 900)
    finding = only(script)
    assert (finding.name, finding.verdict) == ("lookback-or-message-change", "unknown")


def test_runs_of_parallel_tool_calls_are_one_position() -> None:
    calls = [
        {"type": "tool_use", "id": f"t{n}", "name": "read_file", "input": {}} for n in range(15)
    ]
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": "x"} for n in range(15)]
    first = body("task")
    second = msgspec.json.decode(msgspec.json.encode(first))
    second["messages"] += [
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
    ]
    finding = only(Script().call(0, 0, 42_000, body=first).call(25, 7_350, 40_000, body=second))
    assert finding.name == "provider-side-suspected"
    assert finding.verdict == "unknown"


def pairs(number: int, *, marked: int | None = None) -> dict[str, object]:
    """A body with sequential tool rounds behind its task: two positions each."""
    after = msgspec.json.decode(msgspec.json.encode(body("task")))
    for n in range(number):
        call = {"type": "tool_use", "id": f"t{n}", "name": "read_file", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "x"}
        if n == marked:
            result["cache_control"] = {"type": "ephemeral"}
        after["messages"] += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    return after


@pytest.mark.parametrize(
    ("rounds", "marked", "name"),
    [
        (9, None, "provider-side-suspected"),
        (10, None, "lookback-or-message-change"),
        (12, 4, "provider-side-suspected"),
    ],
)
def test_ten_sequential_rounds_are_beyond_the_lookback_and_nine_are_not(
    rounds, marked, name
) -> None:
    script = Script().call(0, 0, 42_000, body=body("task"))
    finding = only(script.call(25, 7_350, 40_000, body=pairs(rounds, marked=marked)))
    assert finding.name == name
    assert finding.evidence == "body_diff"
    assert finding.verdict != "proved"


@pytest.mark.parametrize(
    ("low", "high", "name"),
    [
        (301.0, 320.0, "ttl-expired"),
        (250.0, 299.0, "prefix-lost-inside-ttl"),
        (290.0, 310.0, "unexplained-loss"),
    ],
)
def test_intervals_must_lie_on_one_side_of_the_lifetime(low, high, name) -> None:
    session = Script().call(0, 0, 30_000).call(1, 0, 30_500).session()
    moved = msgspec.structs.replace(
        session.calls[1], started_at=None, start_span=Span(low=low, high=high)
    )
    found = losses(diagnose(msgspec.structs.replace(session, calls=(session.calls[0], moved))))
    assert [f.name for f in found] == [name]
    rivals = {r.rule for r in found[0].rivals}
    assert ("ttl-expired" in rivals) == (name == "unexplained-loss")


def test_299_seconds_hit_and_301_miss() -> None:
    assert names(Script().call(0, 0, 30_000).call(299, 0, 30_500)) == ["prefix-lost-inside-ttl"]
    assert names(Script().call(0, 0, 30_000).call(301, 0, 30_500)) == ["ttl-expired"]


def test_a_longer_hit_in_the_lane_speaks_against_expiry() -> None:
    script = Script().call(0, 0, 30_000).call(900, 30_000, 500).call(1_300, 0, 31_000)
    finding = only(script)
    assert finding.name == "unexplained-loss"
    assert "ttl-expired" in {r.rule for r in finding.rivals}


def test_one_hour_writes_do_not_expire_after_ten_minutes() -> None:
    assert names(Script(ttl="1h").call(0, 0, 30_000).call(600, 0, 30_500)) == [
        "prefix-lost-inside-ttl"
    ]
    assert names(Script(ttl="1h").call(0, 0, 30_000).call(3_700, 0, 30_500)) == ["ttl-expired"]


def test_a_keep_alive_moves_the_clock() -> None:
    script = (
        Script()
        .call(0, 0, 30_000)
        .call(280, 30_000, 0, purpose="keep_alive")
        .call(560, 30_000, 700)
    )
    assert names(script) == []


def test_expiry_is_proved_only_by_bodies_or_the_provider() -> None:
    bodies = (body("a"), body("a", "b", "c"))
    plain = only(Script().call(0, 0, 30_000).call(400, 0, 30_500))
    equal = only(Script().call(0, 0, 30_000, body=bodies[0]).call(400, 0, 30_500, body=bodies[1]))
    told = only(Script().call(0, 0, 30_000).call(400, 0, 30_500, reason="none"))
    assert [(f.name, f.verdict, f.evidence) for f in (plain, equal, told)] == [
        ("ttl-expired", "consistent", "usage"),
        ("ttl-expired", "proved", "body_diff"),
        ("ttl-expired", "proved", "reported"),
    ]


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("tools_changed", "tools-changed"),
        ("system_changed", "system-changed"),
        ("messages_changed", "messages-changed"),
        ("model_changed", "model-switched"),
        ("unavailable", "miss-reason-unavailable"),
    ],
)
def test_the_providers_word_names_the_finding(reason, name) -> None:
    finding = only(Script().call(0, 0, 30_000).call(30, 0, 30_500, reason=reason))
    assert (finding.name, finding.evidence) == (name, "reported")


def test_unavailable_is_never_called_the_providers_fault() -> None:
    finding = only(
        Script()
        .call(0, 0, 9_000)
        .call(9, 9_000, 30_000)
        .call(30, 7_000, 33_000, reason="unavailable")
    )
    assert finding.name == "miss-reason-unavailable"
    assert finding.verdict != "proved"
    assert finding.rivals[0].rule == "parameter-changed"
    text = " ".join((finding.title, *finding.established)).lower()
    assert "server" not in text
    assert "tool_choice" in text


def test_an_unknown_previous_message_proves_nothing() -> None:
    finding = only(
        Script().call(0, 0, 30_000).call(30, 0, 30_500, reason="previous_message_not_found")
    )
    assert finding.name == "prefix-lost-inside-ttl"
    assert finding.evidence == "usage"
    assert any("fingerprint" in line for line in finding.established)


def test_a_reason_that_the_usage_contradicts_is_not_proof() -> None:
    finding = only(
        Script()
        .call(0, 0, 9_000)
        .call(9, 9_000, 30_000)
        .call(30, 7_000, 33_000, reason="tools_changed")
    )
    assert (finding.name, finding.verdict) == ("tools-changed", "consistent")
    assert any("yet part of it was read" in line for line in finding.established)


def test_a_change_without_a_loss_is_a_note() -> None:
    diagnosis = diagnose(
        Script().call(0, 0, 9_000).call(9, 9_000, 500, reason="tools_changed").session()
    )
    assert losses(diagnosis) == []
    assert "reported-change-without-loss" in {f.name for f in diagnosis.findings}


def test_an_alias_and_its_dated_version_are_one_model() -> None:
    script = (
        Script()
        .call(0, 0, 30_000, model="claude-opus-4-5")
        .call(30, 0, 30_500, model="claude-opus-4-5-20251101")
    )
    assert names(script) == ["prefix-lost-inside-ttl"]


def test_going_back_to_a_model_reads_what_it_had() -> None:
    finding = only(
        Script()
        .call(0, 0, 50_000)
        .call(30, 0, 60_000, model="claude-sonnet-4-6")
        .call(60, 50_000, 12_000)
    )
    assert finding.name == "model-switched"
    assert finding.calls == ("call-2", "call-3")
    assert finding.tokens_lost == 50_000 + 10_000
    assert "older prefix was still there" in finding.established[-1]


def test_compaction_is_proved_by_its_record_and_only_by_it() -> None:
    recorded = Script().call(0, 0, 90_000).call(40, 15_000, 20_000, boundary="compaction")
    silent = Script().call(0, 0, 90_000).call(40, 15_000, 20_000)
    assert (only(recorded).name, only(recorded).verdict) == ("compacted", "proved")
    assert (only(silent).name, only(silent).verdict) == ("history-rewritten", "consistent")


def test_a_boundary_before_a_failed_call_holds_for_the_next_one() -> None:
    session = Script().call(0, 0, 90_000).call(40, 0, 20_000).session()
    failed = Call(
        id="failed",
        session="example",
        boundaries=Script().call(1, 0, 1, boundary="compaction").session().calls[0].boundaries,
    )
    calls = (session.calls[0], failed, session.calls[1])
    (finding,) = losses(diagnose(msgspec.structs.replace(session, calls=calls)))
    assert finding.name == "compacted"


def test_a_cleared_conversation_loses_nothing() -> None:
    assert names(Script().call(0, 0, 90_000).call(40, 15_000, 2_000, boundary="clear")) == []


def test_an_uncached_tail_was_never_stored() -> None:
    # Recorded sessions are full of these: 4,364 tokens behind the marker, written one call later.
    script = (
        Script(ttl="1h")
        .call(0, 0, 41_276)
        .call(6, 41_276, 1_164, uncached=4_364)
        .call(14, 42_440, 5_435, uncached=1_503)
        .call(20, 47_875, 3_905)
    )
    assert names(script) == []


def test_automatic_caches_get_no_lifetime_and_may_round() -> None:
    rounding = Script(provider="openai").call(0, 0, None, uncached=50_000)
    rounding.call(30, 47_872, None, uncached=3_000)
    assert names(rounding) == []
    late = Script(provider="openai").call(0, 0, None, uncached=50_000)
    late.call(4_000, 0, None, uncached=51_000)
    finding = only(late)
    assert finding.name == "unexplained-loss"
    assert any("lifetime is not known" in line for line in finding.established)


def test_separate_questions_are_not_judged() -> None:
    script = Script(provider="openai")
    for number, size in enumerate((9_000, 4_000, 12_000, 3_500, 9_500, 5_200, 7_000)):
        script.call(30.0 * number, 2_048 if number else 0, None, uncached=size)
    diagnosis = diagnose(script.session())
    assert losses(diagnosis) == []
    assert [f.name for f in diagnosis.findings] == ["unrelated-prompts"]


def test_moving_markers_and_text_forms_are_no_change() -> None:
    first = body("a", "b", "c")
    first["messages"][2]["content"] = [
        {"type": "text", "text": "c", "cache_control": {"type": "ephemeral"}}
    ]
    second = body("a", "b", "c", "d", "e")
    diagnosis = diagnose(
        Script().call(0, 0, 30_000, body=first).call(9, 30_000, 900, body=second).session()
    )
    assert diagnosis.changes == {}
    assert losses(diagnosis) == []


def test_body_findings_give_path_and_byte() -> None:
    before, after = (
        body("a", system="It is 10:15:02."),
        body("a", "b", "c", system="It is 10:15:37."),
    )
    diagnosis = diagnose(
        Script().call(0, 0, 30_000, body=before).call(9, 4_000, 27_000, body=after).session()
    )
    (finding,) = losses(diagnosis)
    assert finding.name == "clock-in-system"
    assert finding.first_change is not None
    assert (finding.first_change.path, finding.first_change.byte_offset) == ("system[0]", 12)
    assert diagnosis.changes["call-2"].level == "system"


def test_sessions_without_usage_have_no_findings() -> None:
    session = Session(id="x", source="t", calls=(Call(id="a"), Call(id="b")))
    assert diagnose(session).findings == ()


def test_twins_with_bodies_lose_what_their_prompts_share() -> None:
    script = Script().call(0, 0, 9_000)
    for lane, own in (("sub-a", "look at a"), ("sub-b", "look at b")):
        script.call(9, 9_000, 30_200, lane=lane, body=body("task", "map", own))
    session = script.session()
    sized = tuple(
        call
        if call.prompt is None
        else msgspec.structs.replace(
            call,
            prompt=with_recorded_tokens(call.prompt, (1_000, 1_000, 7_000, 15_000, 15_000, 200)),
        )
        for call in session.calls
    )
    (finding,) = losses(diagnose(msgspec.structs.replace(session, calls=sized)))
    assert finding.name == "concurrent-identical-writes"
    assert (finding.verdict, finding.evidence) == ("proved", "body_diff")
    assert finding.tokens_lost == 1_000 + 1_000 + 7_000 + 15_000 + 15_000 - 9_000


def test_equal_beginnings_at_other_times_are_no_fan_out() -> None:
    script = Script().call(0, 0, 9_000, lane="a").call(30, 0, 9_000, lane="b")
    assert names(script) == []

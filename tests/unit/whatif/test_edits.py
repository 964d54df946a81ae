"""Every edit: what it makes of a session, and when it refuses."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from cacheaudit.errors import UsageError
from cacheaudit.model.call import Call
from cacheaudit.simulate.edit import EditRefused, edit_text, edit_types, parse_edit
from cacheaudit.simulate.whatif import evaluate
from tests.unit.whatif.builders import (
    Talk,
    base,
    growing,
    prompt_of,
    refusal,
    result,
    saves,
    text,
    tool,
    use,
    written_read,
)

ALL = sorted(edit_types())


# ── what they have in common ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ALL)
def test_every_edit_can_be_written_and_read(name: str) -> None:
    kind = edit_types()[name]
    edit = kind()
    assert edit_text(edit) == name
    assert parse_edit(name) == edit
    assert edit.title[0].isupper()
    assert isinstance(edit.stage, int)


def test_options_survive_writing_and_reading() -> None:
    told = "keep-alive:calls=a+b,every=240.0,idle=yes,drop=tools"
    assert edit_text(parse_edit(told)) == told


@pytest.mark.parametrize(
    "told", ["nonsense", "ttl:ttl=2h", "ttl:life=1h", "ttl:1h", "fan-out:mark=perhaps", "model:x=1"]
)
def test_unknown_edits_and_options_are_refused(told: str) -> None:
    with pytest.raises(UsageError):
        parse_edit(told)


@pytest.mark.parametrize(
    "name", [n for n in ALL if n not in ("model", "one-route", "steady-betas")]
)
def test_without_bodies_an_edit_refuses(name: str) -> None:
    bare = [msgspec.structs.replace(call, prompt=None) for call in growing([0, 10, 20])]
    with pytest.raises(EditRefused, match="no requests"):
        parse_edit(name).apply(bare)


@pytest.mark.parametrize("name", ALL)
def test_edits_leave_what_they_are_given_alone(name: str) -> None:
    calls = growing([0, 10, 400, 410])
    kept = tuple(calls)
    copies = [msgspec.structs.replace(call) for call in calls]
    with contextlib.suppress(EditRefused):
        parse_edit(f"{name}:to=claude-sonnet-5" if name == "model" else name).apply(calls)
    assert tuple(calls) == kept == tuple(copies)


# ── markers ──────────────────────────────────────────────────────────────────────────────────────


def wide_turn() -> list[Call]:
    """One turn appends 30 texts: more than the 20 positions of a lookup."""
    talk = base().sent(0)
    talk.say("assistant", text("ok", 100)).say("user", *(text(f"f{n}", 100) for n in range(30)))
    return talk.sent(10).calls


def test_a_wide_turn_misses_and_a_marker_finds_it() -> None:
    calls = wide_turn()
    assert written_read(calls) == [(10_000, 0), (8_100, 5_000)]
    for name in ("mark-previous", "sliding-markers", "join-blocks"):
        changed = list(parse_edit(name).apply(calls))
        assert written_read(changed) == [(10_000, 0), (3_100, 10_000)], name


def test_parallel_calls_in_one_turn_are_two_positions() -> None:
    talk = base().sent(0)
    talk.say("assistant", *(use(f"c{n}", 100) for n in range(12)))
    talk.say("user", *(result(f"c{n}", 100) for n in range(12)))
    calls = talk.sent(10).calls
    assert written_read(calls)[1] == (2_400, 10_000)
    plain = written_read(parse_edit("mark-previous").apply(calls))
    assert plain[1] == (2_400, 10_000)


def test_markers_that_never_move_cover_less_and_less() -> None:
    talk = Talk([tool("grep", 2000)], [text("rules", 3000)])
    talk.say("user", text("task", 5000, cache_control={"type": "ephemeral"}))
    for n in range(30):
        talk.round(f"r{n}").sent(10 * n, mark="none")
    fixed = written_read(talk.calls)
    assert fixed[0] == (10_000, 0)
    assert set(fixed[1:]) == {(0, 10_000)}
    slid = written_read(parse_edit("sliding-markers").apply(talk.calls))
    assert slid[-1] == (1_000, 10_000 + 29 * 1_000)
    assert saves(talk.calls, "sliding-markers") > 0


def test_no_fifth_marker() -> None:
    marker = {"type": "ephemeral"}
    talk = Talk([tool("a", 2000, cache_control=marker)], [text("r", 3000, cache_control=marker)])
    talk.say("user", text("t", 2000, cache_control=marker))
    talk.sent(0, mark="tail").round("x").sent(10, mark="tail")
    calls = talk.calls
    assert "marker free" in refusal(calls[:1], "mark-previous")
    for name in ("mark-previous", "fan-out", "sliding-markers"):
        try:
            changed = parse_edit(name).apply(calls)
        except EditRefused:
            continue
        for call in changed:
            assert sum(b.marker is not None for b in prompt_of(call).blocks) <= 4


def test_markers_can_be_added_and_removed() -> None:
    talk = base().sent(0, mark="tail").say("assistant", text("hm", 50))
    talk.say("user", text("other", 50))
    calls = talk.sent(10, mark="tail").calls
    with_tools = parse_edit("mark:level=tools").apply(calls)
    assert [b.marker is not None for b in prompt_of(with_tools[0]).blocks] == [True, False, True]
    bare = parse_edit("unmark").apply(with_tools)
    assert written_read(bare) == [(0, 0), (0, 0)]
    assert "already" in refusal(list(with_tools), "mark:level=tools")
    assert "no request marks" in refusal(list(bare), "unmark")


def test_a_marker_on_a_block_that_changes_moves_in_front_of_it() -> None:
    calls = []
    for n in range(3):
        talk = Talk([tool("a", 2000)], [text("stable", 4000)])
        talk.say("user", text(f"question {n}", 500))
        calls += talk.sent(10 * n, mark="tail", id=f"c{n}").calls
    assert written_read(calls) == [(6_500, 0)] * 3
    moved = written_read(parse_edit("stable-markers").apply(calls))
    assert moved == [(6_000, 0), (0, 6_000), (500, 6_000)]


# ── content ──────────────────────────────────────────────────────────────────────────────────────


def shuffled() -> list[Call]:
    calls = []
    for n, names in enumerate((["b", "a", "c"], ["c", "b", "a"], ["a", "c", "b"])):
        talk = Talk([tool(name, 1000) for name in names], [text("rules", 3000)])
        calls += talk.say("user", text("task", 500)).sent(10 * n, id=f"c{n}").calls
    return calls


def test_sorted_tools_are_found_again() -> None:
    calls = shuffled()
    assert written_read(calls) == [(6_500, 0)] * 3
    changed = written_read(parse_edit("sort-tools").apply(calls))
    assert changed == [(6_500, 0), (0, 6_500), (0, 6_500)]
    assert "sorted already" in refusal(list(parse_edit("sort-tools").apply(calls)), "sort-tools")


def test_late_tools_keep_the_array_of_the_first_request() -> None:
    calls = shuffled()
    changed = parse_edit("late-tools").apply(calls)
    assert [b.name for b in prompt_of(changed[2]).at_level("tools")] == ["b", "a", "c"]


def test_a_late_tool_stays_where_it_was_declared() -> None:
    talk = base().sent(0)
    talk.tools.insert(0, tool("query", 700))
    calls = talk.round("a").sent(10).round("b").sent(20).calls
    changed = parse_edit("late-tools").apply(calls)
    assert written_read(changed) == [(10_000, 0), (1_700, 10_000), (1_000, 11_700)]
    kinds = [block.kind for block in prompt_of(changed[2]).at_level("messages")]
    assert kinds == ["text", "tool_use", "tool_result", "tool_addition", "tool_use", "tool_result"]


def clocked(level: str) -> list[Call]:
    """The clock stands in the system prompt, or in the first message."""
    calls = []
    for n in range(3):
        clock = text(f"it is {n} o'clock", 10)
        talk = Talk(
            [tool("a", 2000)], [text("rules", 4000), *([clock] if level == "system" else [])]
        )
        talk.say("user", *([clock] if level == "messages" else []), text("task", 3000))
        for m in range(n):
            talk.round(f"r{m}")
        calls += talk.sent(10 * n, id=f"c{n}").calls
    return calls


@pytest.mark.parametrize("level", ["system", "messages"])
def test_frozen_text_is_found_again(level: str) -> None:
    calls = clocked(level)
    front = 0 if level == "system" else 6_000
    assert written_read(calls)[1] == (10_010 - front, front)
    changed = written_read(parse_edit("freeze-text").apply(calls))
    assert changed == [(9_010, 0), (1_000, 9_010), (1_000, 10_010)]


def test_freezing_one_level_leaves_the_others() -> None:
    assert "in place" in refusal(clocked("system"), "freeze-text:level=messages")


def test_new_turns_are_not_taken_for_edits() -> None:
    assert "in place" in refusal(growing([0, 10, 20]), "freeze-text")


def test_moved_text_is_sent_uncached_and_costs_nothing_else() -> None:
    calls = clocked("system")
    (trial,) = evaluate(calls, [parse_edit("move-text")]).alone
    found = [row.predicted for row in trial.outcomes]
    assert [(o.written, o.read, o.uncached) for o in found if o] == [
        (9_000, 0, 10),
        (1_000, 9_000, 10),
        (1_000, 10_000, 10),
    ]


def test_a_stable_head_is_split_off() -> None:
    calls = []
    head = "rule " * 2000
    for n in range(3):
        talk = Talk([tool("a", 2000)], [text(f"{head}{n}", 5000)]).say("user", text("task", 100))
        calls += talk.sent(10 * n, mark="tail", id=f"c{n}").calls
    assert written_read(calls) == [(7_100, 0)] * 3
    rows = written_read(parse_edit("split-text").apply(calls))
    assert rows[0] == (7_100, 0)
    assert rows[1][1] > 6_900
    assert rows[1][0] + rows[1][1] == 7_100
    assert "stable head" in refusal(growing([0, 10]), "split-text")


def test_key_order_is_normalised() -> None:
    calls = []
    for n, keys in enumerate((("type", "required"), ("required", "type"))):
        schema = {key: "object" if key == "type" else ["x"] for key in keys}
        talk = Talk([({"name": "a", "input_schema": schema}, 2000)], [text("rules", 4000)])
        calls += talk.say("user", text("task", 100)).sent(10 * n, id=f"c{n}").calls
    assert written_read(calls) == [(6_100, 0), (6_100, 0)]
    assert written_read(parse_edit("normalise").apply(calls)) == [(6_100, 0), (0, 6_100)]


def test_joining_keeps_sizes_and_runs_of_other_kinds() -> None:
    calls = wide_turn()
    changed = parse_edit("join-blocks").apply(calls)
    before, after = prompt_of(calls[1]), prompt_of(changed[1])
    assert after.tokens == before.tokens
    assert len(after.blocks) == len(before.blocks) - 29
    assert after.blocks[-1].marker is not None
    assert "texts in a row" in refusal(calls, "join-blocks:over=30")


# ── settings, models, routes ─────────────────────────────────────────────────────────────────────


def test_a_thinking_toggle_is_dropped() -> None:
    talk = base().sent(0).round("a")
    talk.sent(10, body={"thinking": {"type": "enabled", "budget_tokens": 2000}})
    calls = talk.round("b").sent(20).calls
    assert written_read(calls)[1][1] < 10_000
    changed = written_read(parse_edit("steady-settings").apply(calls))
    assert changed == [(10_000, 0), (1_000, 10_000), (1_000, 11_000)]
    assert "ever changes" in refusal(growing([0, 10]), "steady-settings")


def test_another_model_changes_rates_and_minimum() -> None:
    talk = Talk([], [text("rules", 3000)]).say("user", text("task", 500))
    calls = talk.sent(0).round("a", 200).sent(10).calls
    assert written_read(calls) == [(3_500, 0), (200, 3_500)]
    other = parse_edit("model:to=claude-opus-4-6").apply(calls)
    # 4,096 tokens are the least that this model keeps.
    assert written_read(other) == [(0, 0), (0, 0)]
    with pytest.raises(EditRefused, match="no model was named"):
        parse_edit("model").apply(calls)


def test_accounts_do_not_share_until_pinned() -> None:
    talk = base()
    for n, account in enumerate("abca"):
        talk.round(f"r{n}").sent(10 * n, extra={"account_id": account})
    assert [read for _, read in written_read(talk.calls)] == [0, 0, 0, 11_000]
    pinned = written_read(parse_edit("one-route").apply(talk.calls))
    assert [read for _, read in pinned] == [0, 11_000, 12_000, 13_000]
    assert "one route" in refusal(growing([0, 10]), "one-route")


# ── order and compaction ─────────────────────────────────────────────────────────────────────────


def test_siblings_wait_for_the_first_response_to_begin() -> None:
    talk = base().sent(0, stop="end_turn")
    prompt = list(talk.messages)
    calls = list(talk.calls)
    for lane in ("a", "b", "c"):
        branch = Talk(talk.tools, talk.system)
        branch.messages = [
            *prompt,
            ("assistant", [text("go", 50)]),
            ("user", [text("map", 9000), text(lane, 100)]),
        ]
        calls += branch.sent(100, lane=lane, parent="main-1").calls
    assert written_read(calls)[1:] == [(9_150, 10_000)] * 3
    changed = parse_edit("fan-out").apply(calls)
    assert written_read(changed)[1:] == [(9_150, 10_000), (100, 19_050), (100, 19_050)]
    # 101 is when the first response begins.
    assert [call.started_at for call in changed] == [0, 100, 101.1, 101.1]


def test_without_a_response_time_nobody_knows_how_long_to_wait() -> None:
    calls = [
        msgspec.structs.replace(call, first_token_at=None, ended_at=None)
        for lane in ("a", "b")
        for call in base()
        .say("assistant", text(lane, 50))
        .say("user", text("x", 50))
        .sent(0, lane=lane)
        .calls
    ]
    assert "not known when the response" in refusal(calls, "fan-out")


def test_one_lane_alone_is_no_fan_out() -> None:
    assert "start together" in refusal(growing([0, 10, 20]), "fan-out")


def test_three_stages_of_a_compaction() -> None:
    calls = growing([0, 10, 20, 30], first=40_000)
    changed = parse_edit("compact:at=46500,summary=2000").apply(calls)
    assert [call.purpose for call in changed] == ["main", "main", "main", "compaction", "main"]
    rows = written_read(changed)
    # The summary request keeps the prefix and reads it; the first request after it writes the
    # summary behind tools and system; nothing else is sent again.
    assert rows[3][1] == 46_000
    assert rows[4] == (2_000, 4_000)


def test_compaction_now_harms_a_warm_conversation_and_pays_over_many_turns() -> None:
    short = growing([0, 10, 20], first=100_000)
    long = growing([10 * n for n in range(60)], first=100_000)
    edit = "compact:at=105500,summary=5000"
    assert saves(short, edit) < 0
    assert saves(long, edit) > 0


def test_compaction_of_what_has_expired_is_cheaper_at_once() -> None:
    calls = growing([0, 10, 1_000], first=100_000)
    assert saves(calls, "compact:at=0,after_expiry=yes") > 0


def test_compaction_before_expiry_reads_what_would_be_lost() -> None:
    calls = growing([0, 10, 1_000], first=100_000)
    changed = list(parse_edit("compact:at=0,before_expiry=yes").apply(calls))
    summary = next(call for call in changed if call.purpose == "compaction")
    assert summary.started_at == 10 + 270
    rows = written_read(changed)
    assert rows[2][1] == 105_000
    assert saves(calls, "compact:at=0,before_expiry=yes") > saves(
        calls, "compact:at=0,after_expiry=yes"
    )


def test_small_prompts_are_not_compacted() -> None:
    assert "that large" in refusal(growing([0, 10]), "compact")

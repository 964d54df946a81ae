"""Rules with markers: the documented examples, then what must hold for any requests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_backend.rules import AnthropicRules, Level, MarkerError, Prompt
from local_backend.rules.anthropic import AnthropicSettings
from local_backend.rules.base import Miss
from local_backend.rules.minimums import known_minimum
from tests.unit.local_backend.rules.build import FREE, ask, block, parts, prompt, run, texts

# ── lookback ─────────────────────────────────────────────────────────────────────────────────────


def test_the_documented_lookback() -> None:
    """Markers on 10, 15, 35: the third visits 35 to 16 and does not see the entry at 15."""
    found = run((texts(10, [10]), 0), (texts(15, [15]), 1), (texts(35, [35]), 2))
    assert [(o.read, o.written) for o in found] == [(0, 1000), (1000, 500), (0, 3500)]
    assert [o.miss for o in found] == [Miss.NOTHING_STORED, None, Miss.LOOKBACK]


def test_an_earlier_marker_looks_back_for_itself() -> None:
    found = run((texts(15, [15]), 0), (texts(35, [15, 35]), 1))
    assert found[1].read == 1500


@pytest.mark.parametrize(("end", "read"), [(15, 0), (16, 1600)])
def test_the_marked_block_is_the_first_of_twenty(end: int, read: int) -> None:
    assert run((texts(end, [end]), 0), (texts(35, [35]), 1))[1].read == read


def calls(pairs: int, width: int = 1) -> Prompt:
    """A text, then rounds of calls and results; the last content block is marked."""
    blocks = [block("start")]
    for pair in range(pairs):
        blocks += [block(f"c{pair}.{n}", kind="tool_use") for n in range(width)]
        blocks += [block(f"r{pair}.{n}", kind="tool_result") for n in range(width)]
    return prompt(*blocks[:-1], replace(blocks[-1], ttl="5m"))


@pytest.mark.parametrize(("pairs", "hits"), [(9, True), (10, False)])
def test_calls_one_after_the_other_are_two_positions_each(pairs: int, hits: bool) -> None:
    start = prompt(block("start", ttl="5m"))
    assert (run((start, 0), (calls(pairs), 1))[1].read == 100) is hits


def test_parallel_calls_are_one_position() -> None:
    start = prompt(block("start", ttl="5m"))
    assert run((start, 0), (calls(1, 15), 1))[1].read == 100
    each = AnthropicRules(AnthropicSettings(minimum=0, collapse_runs=False))
    assert run((start, 0), (calls(1, 15), 1), rules=each)[1].read == 0


# ── what is written ──────────────────────────────────────────────────────────────────────────────


def test_a_marker_behind_something_new_never_hits() -> None:
    volatile = [prompt(*texts(5).blocks, block(f"now{n}", ttl="5m")) for n in range(3)]
    assert [o.read for o in run(*((p, n) for n, p in enumerate(volatile)))] == [0, 0, 0]
    stable = [prompt(*texts(5, [5]).blocks, block(f"now{n}")) for n in range(3)]
    assert [o.read for o in run(*((p, n) for n, p in enumerate(stable)))] == [0, 500, 500]


def test_both_lifetimes_in_one_request() -> None:
    """The documented bill: 1,800 read, 100 for an hour, 148 for five minutes, 2,048 fresh."""
    first = prompt(block("a", 1800, "1h"))
    second = prompt(
        block("a", 1800, "1h"), block("b", 100, "1h"), block("c", 148, "5m"), block("d", 2048)
    )
    assert parts(run((first, 0), (second, 1))[1]) == (1800, 148, 100, 2048)


def test_nothing_is_charged_for_a_marker_before_the_hit() -> None:
    found = run((texts(6, [6]), 0), (texts(6, [3, 6]), 1), (texts(4, [4]), 2))
    assert parts(found[1]) == (600, 0, 0, 0)
    assert parts(found[2]) == (300, 100, 0, 0)  # it is stored all the same


@pytest.mark.parametrize(("tokens", "written"), [(511, 0), (512, 512)])
def test_the_minimum_counts_the_whole_prefix(tokens: int, written: int) -> None:
    rules = AnthropicRules(AnthropicSettings(minimum=512))
    found = ask(rules, prompt(block("a", 300), block("b", tokens - 300, "5m"), tail=5), 0)
    assert (found.written, found.uncached) == (written, tokens + 5 - written)
    assert found.miss is (Miss.NOTHING_STORED if written else Miss.BELOW_MINIMUM)


def test_claude_models_have_their_published_minimum() -> None:
    rules = AnthropicRules(AnthropicSettings(minimum=7))
    models = ("claude-opus-4-6", "claude-opus-5", "claude-opus-4-7", "claude-sonnet-5", "tiny")
    assert [rules.minimum(m) for m in models] == [4096, 512, 2048, 1024, 7]
    assert known_minimum("claude-haiku-4-5-20251001") == 4096
    assert known_minimum("claude-opus-9") is None
    own = AnthropicRules(AnthropicSettings(minimum=7, published=False))
    assert own.minimum("claude-opus-5") == 7


# ── time ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("ttl", "life"), [("5m", 300.0), ("1h", 3600.0)])
def test_life_counts_from_the_start_of_the_request(ttl: str, life: float) -> None:
    """A generation of four minutes leaves one of five."""
    for later, hit in ((life - 1, True), (life + 1, False)):
        rules = AnthropicRules(FREE)
        ask(rules, texts(3, [3], ttl=ttl), 0.0, began=10.0)
        found = ask(rules, texts(3, [3], ttl=ttl), later)
        assert (found.read == 300) is hit
        assert found.miss is (None if hit else Miss.EXPIRED)


def test_a_ping_keeps_an_entry_alive() -> None:
    """Measured in public: a ping at 240 s lets a request at 482 s hit; without it there is none."""
    asked = texts(3, [3])
    assert [o.read for o in run((asked, 0), (asked, 240), (asked, 482))] == [0, 300, 300]
    assert [o.read for o in run((asked, 0), (asked, 482))] == [0, 0]


def test_reading_prolongs_by_the_lifetime_of_the_entry() -> None:
    hour, short = texts(3, [3], ttl="1h"), texts(3, [3])
    assert run((hour, 0), (short, 3000), (short, 6500))[2].read == 300


def test_reading_prolongs_entries_at_the_requests_own_markers() -> None:
    """The end of system lives on while the conversation behind it is read."""
    both = texts(6, [2, 6])
    found = run((both, 0), (both, 250), (texts(3, [2]), 500))
    assert found[2].read == 200


def test_only_what_has_begun_can_be_read() -> None:
    rules, asked = AnthropicRules(FREE), texts(3, [3])
    first, second = rules.plan(asked, 0.0), rules.plan(asked, 0.0)
    assert (first.read, second.read, second.miss) == (0, 0, Miss.NOT_READABLE_YET)
    assert rules.began(first, 0, 4.0).written == 300
    assert rules.plan(asked, 3.9).read == 0
    assert rules.plan(asked, 4.0).read == 300
    assert rules.began(second, 0, 6.0).written == 300  # both pay


def test_a_request_that_never_began_stores_nothing() -> None:
    rules, asked = AnthropicRules(FREE), texts(3, [3])
    rules.plan(asked, 0.0)
    assert rules.plan(asked, 100.0).read == 0


# ── what drops what ──────────────────────────────────────────────────────────────────────────────


def full(**more: object) -> Prompt:
    return prompt(
        block("tool", level=Level.TOOLS, kind="tool", ttl="5m"),
        block("system", level=Level.SYSTEM, ttl="5m"),
        block("message", ttl="5m"),
        **more,
    )


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ({"settings": (b"", b"", b"choice")}, 200),
        ({"settings": (b"", b"speed", b"")}, 100),
        ({"settings": (b"all", b"", b"")}, 0),
        ({"model": "other"}, 0),
        ({"workspace": "other"}, 0),
        ({"id": "other"}, 300),
    ],
)
def test_a_change_drops_its_level_and_what_follows(change: dict[str, object], read: int) -> None:
    assert run((full(), 0), (full(**change), 1))[1].read == read


def test_content_drops_from_its_place_on() -> None:
    asked = full()
    for index, read in ((0, 0), (1, 100), (2, 200)):
        blocks = list(asked.blocks)
        blocks[index] = replace(blocks[index], digest=b"new")
        assert run((asked, 0), (prompt(*blocks), 1))[1].read == read


def test_markers_are_no_content() -> None:
    assert run((texts(4, [2, 4]), 0), (texts(4, [4]), 1))[1].read == 400


# ── markers ──────────────────────────────────────────────────────────────────────────────────────


def test_five_markers_are_refused() -> None:
    AnthropicRules(FREE).check(texts(5, [1, 2, 3, 4]))
    with pytest.raises(MarkerError, match="at most 4"):
        AnthropicRules(FREE).check(texts(5, [1, 2, 3, 4, 5]))


def test_the_longer_lifetime_comes_first() -> None:
    AnthropicRules(FREE).check(prompt(block("a", ttl="1h"), block("b", ttl="5m")))
    wrong = prompt(block("a", ttl="5m"), block("b", ttl="1h", path="messages.0.content.1"))
    with pytest.raises(MarkerError, match=r"messages\.0\.content\.1: .*must not come after"):
        AnthropicRules(FREE).check(wrong)


def test_what_cannot_be_marked_is_refused() -> None:
    with pytest.raises(MarkerError, match="thinking"):
        AnthropicRules(FREE).check(prompt(block("t", ttl="5m", kind="thinking", markable=False)))


def test_the_automatic_marker() -> None:
    plain = prompt(block("a"), block("b"), automatic="5m")
    assert parts(run((plain, 0))[0]) == (0, 200, 0, 0)
    behind = prompt(block("a"), block("t", kind="thinking", markable=False), automatic="1h")
    assert parts(run((behind, 0))[0]) == (0, 0, 100, 100)
    same = prompt(block("a"), block("b", ttl="5m"), automatic="5m")
    assert parts(run((same, 0))[0]) == (0, 200, 0, 0)
    none = prompt(block("t", kind="thinking", markable=False), automatic="5m")
    assert parts(run((none, 0))[0]) == (0, 0, 0, 100)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(texts(5, [1, 2, 3, 4]), automatic="5m"),
        prompt(block("a"), block("b", ttl="1h"), automatic="5m"),
        prompt(block("a", ttl="5m"), block("b"), automatic="1h"),
        prompt(block("a"), automatic="2h"),
    ],
    ids=["no place left", "other lifetime on the block", "longer behind shorter", "unknown"],
)
def test_an_automatic_marker_that_is_refused(wrong: Prompt) -> None:
    with pytest.raises(MarkerError):
        AnthropicRules(FREE).plan(wrong, 0.0)


# ── the engine has the last word ─────────────────────────────────────────────────────────────────


def test_what_the_engine_no_longer_holds_is_written_again() -> None:
    rules = AnthropicRules(FREE)
    ask(rules, texts(3, [3]), 0)
    again = prompt(*texts(5, [5]).blocks, tail=1)
    plan = rules.plan(again, 1)
    assert plan.read == 300
    found = rules.began(plan, 120, 1)
    assert (parts(found), found.evicted, found.miss) == ((120, 380, 0, 1), 180, Miss.EVICTED)


def test_what_a_page_rounds_off_is_no_eviction() -> None:
    rules = AnthropicRules(replace(FREE, grain=16))
    ask(rules, texts(3, [3]), 0)
    plan = rules.plan(texts(3, [3]), 1)
    rounded = rules.began(plan, 288, 1)
    assert (parts(rounded), rounded.evicted, rounded.miss) == ((288, 12, 0, 0), 0, None)
    assert rules.began(plan, 272, 1).evicted == 16


def test_an_engine_that_holds_more_gives_no_more() -> None:
    rules = AnthropicRules(FREE)
    ask(rules, texts(3, [3]), 0)
    assert ask(rules, texts(4, [3]), 1).read == 300
    assert rules.began(rules.plan(texts(9), 2), 700, 2).read == 0


# ── for any requests ─────────────────────────────────────────────────────────────────────────────

_names = st.lists(st.sampled_from("abc"), min_size=1, max_size=8)
_marks = st.sets(st.integers(0, 7), max_size=4)
_asked = st.tuples(_names, _marks, st.sampled_from(["5m", "1h"]), st.floats(0, 400))


@given(st.lists(_asked, min_size=1, max_size=12), st.integers(0, 500), st.integers(0, 3))
def test_parts_add_up_and_reads_were_written(
    steps: list[tuple[list[str], set[int], str, float]], minimum: int, short: int
) -> None:
    rules = AnthropicRules(AnthropicSettings(minimum=minimum))
    now, stored = 0.0, {0}
    for names, marks, ttl, gap in steps:
        now += gap
        blocks = [block(n, 100, ttl if i in marks else None) for i, n in enumerate(names)]
        asked = prompt(*blocks, tail=1)
        plan = rules.plan(asked, now)
        held = max(0, (plan.read or 0) - 100 * short)
        found = rules.began(plan, held, now)
        assert found.total == len(asked.tokens)
        assert min(found.read, *found.writes.values(), found.uncached) >= 0
        assert found.read == held
        assert plan.read in stored
        stored |= {100 * (i + 1) for i in marks if i < len(names)}
        assert (plan.read or 0) >= minimum or plan.read == 0


def test_the_number_of_entries_is_bounded() -> None:
    rules = AnthropicRules(replace(FREE, max_entries=100))
    for n in range(1000):
        ask(rules, prompt(block(f"x{n}", ttl="5m")), float(n))
        assert rules.entries() <= 101
    assert ask(rules, prompt(block("x999", ttl="5m")), 1000.0).read == 100

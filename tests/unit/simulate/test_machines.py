"""Every other provider's machine: documented figures first, then the edges of its rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cacheaudit.simulate.claude import ClaudeRules
from cacheaudit.simulate.deepseek import DeepSeekMachine, DeepSeekRules
from cacheaudit.simulate.gemini import GeminiMachine
from cacheaudit.simulate.local import LocalMachine, LocalRules
from cacheaudit.simulate.longest_prefix import LongestPrefixMachine, LongestRules
from cacheaudit.simulate.openai_v2 import OpenAIMachine, OpenAIRules
from cacheaudit.simulate.qwen import EitherMachine, EitherRules
from cacheaudit.simulate.request import Mark, Outcome, SimRequest
from cacheaudit.simulate.run import run
from tests.unit.simulate.builders import blocks, call, request


def play(machine: Any, rules: Any, *requests: SimRequest) -> list[Outcome]:
    return [machine.step(one, rules) for one in requests]


def chat(roles: str, tokens: Sequence[int], **more: Any) -> SimRequest:
    """Make a conversation, a message a letter: developer, user, assistant, tool result."""
    names = {"d": "developer", "u": "user", "a": "assistant", "t": "tool"}
    return request(
        [f"{letter}{n}" for n, letter in enumerate(roles)],
        tokens=tokens,
        roles=[names[letter] for letter in roles],
        kinds=["tool_result" if letter == "t" else "text" for letter in roles],
        messages=list(range(len(roles))),
        **more,
    )


# ── OpenAI from GPT-5.6 ──────────────────────────────────────────────────────────────────────────

V2 = OpenAIRules()


def test_the_documented_implicit_example() -> None:
    """12,000 written, then 12,000 read and 3,000 written."""
    first = chat("du", [2_000, 10_000])
    second = chat("duau", [2_000, 10_000, 500, 2_500], at=20)
    one, two = play(OpenAIMachine(), V2, first, second)
    assert (one.read, one.writes, one.uncached) == (0, {"30m": 12_000}, 0)
    assert (two.read, two.writes, two.uncached) == (12_000, {"30m": 3_000}, 0)


def test_what_follows_the_latest_eligible_message_is_fresh() -> None:
    one = play(OpenAIMachine(), V2, chat("dua", [2_000, 1_000, 300]))[0]
    assert (one.written, one.uncached) == (3_000, 300)


def test_there_is_no_fallback_to_an_unmarked_prefix() -> None:
    first = chat("du", [2_000, 1_000])
    other = request(
        ["d0", "else"], tokens=[2_000, 900], at=20, roles=["developer", "user"], messages=[0, 1]
    )
    assert play(OpenAIMachine(), V2, first, other)[1].read == 0


def test_an_explicit_breakpoint_makes_the_shared_part_readable() -> None:
    first = chat("du", [2_000, 1_000], placed=(Mark(0),))
    other = request(
        ["d0", "else"],
        tokens=[2_000, 900],
        at=20,
        roles=["developer", "user"],
        messages=[0, 1],
        placed=(Mark(0),),
    )
    assert play(OpenAIMachine(), V2, first, other)[1].read == 2_000


def test_results_of_one_group_have_one_ending() -> None:
    """Two results in a row: only the end of the second is a breakpoint."""
    first = chat("duatt", [1_000, 1_000, 100, 400, 400])
    grown = chat("duattau", [1_000, 1_000, 100, 400, 400, 50, 60], at=20)
    cut = chat("duat", [1_000, 1_000, 100, 400], at=30)
    one, two, three = play(OpenAIMachine(), V2, first, grown, cut)
    assert (one.written, two.read) == (2_900, 2_900)
    assert three.read == 0  # neither the first result nor the user message before it was written


def test_the_minimum_and_the_lifetimes() -> None:
    short = chat("u", [1_023])
    assert play(OpenAIMachine(), V2, short)[0].written == 0
    asked = [chat("u", [1_024], at=at) for at in (0, 1_700, 3_400, 5_201)]
    assert [o.read for o in play(OpenAIMachine(), V2, *asked)] == [0, 1_024, 1_024, 0]
    long = [chat("u", [1_024], at=at, ttl="12h") for at in (0, 40_000)]
    assert [o.read for o in play(OpenAIMachine(), V2, *long)] == [0, 1_024]
    assert play(OpenAIMachine(), V2, chat("u", [1_024], ttl="1h"))[0].refused is not None


def test_four_breakpoints_are_written_the_latest() -> None:
    marks = tuple(Mark(n) for n in range(6))
    six = chat("uuuuuu", [2_000] * 6, placed=marks, only_marked=True)
    later = [
        chat("u" * n, [2_000] * n, at=20, placed=marks[:n], only_marked=True) for n in (1, 2, 3)
    ]
    reads = [play(OpenAIMachine(), V2, six, one)[1].read for one in later]
    assert reads == [0, 0, 6_000]


def test_the_lookup_set_is_a_switch() -> None:
    """70 messages behind the entry: within the latest 80 endings, beyond 20 earlier ones."""
    first = chat("u", [2_000])
    far = chat("u" + "au" * 35, [2_000] + [10, 10] * 35, at=20)
    guide = OpenAIRules(lookup="guide")
    assert play(OpenAIMachine(), V2, first, far)[1].read == 2_000
    assert play(OpenAIMachine(), guide, first, far)[1].read == 0
    near = chat("u" + "au" * 20, [2_000] + [10, 10] * 20, at=20)
    assert play(OpenAIMachine(), guide, first, near)[1].read == 2_000
    beyond = chat("u" + "au" * 80, [2_000] + [10, 10] * 80, at=20)
    assert play(OpenAIMachine(), V2, first, beyond)[1].read == 0


def body(*texts: str, model: str = "gpt-6-sol", **more: Any) -> dict[str, Any]:
    messages = [
        {"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)
    ]
    return {
        "model": model,
        "messages": [{"role": "developer", "content": "Be brief."}, *messages],
        **more,
    }


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ({"tool_choice": "none"}, 3_000),
        ({"reasoning_effort": "low"}, 0),
        ({"prompt_cache_key": "k"}, 0),
    ],
)
def test_settings_of_recorded_requests(change: dict[str, Any], read: int) -> None:
    calls = [
        call("1", body("q"), at=0, sizes=[1_000, 2_000], provider="openai", surface="openai"),
        call(
            "2",
            body("q", "a", "r", **change),
            at=60,
            sizes=[1_000, 2_000, 50, 60],
            provider="openai",
            surface="openai",
        ),
    ]
    assert run(calls).calls[1].predicted.read == read  # type: ignore[union-attr]


# ── OpenAI before GPT-5.6 ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "read"), [("gpt-5.2", 2_944), ("gpt-5.5", 2_048), ("gpt-4o", 2_944)]
)
def test_the_longest_prefix_at_intervals(model: str, read: int) -> None:
    """3,000 tokens are shared: 23 times 128, or once 2,048."""
    asked = [
        call(str(n), body("q", "a", text, model=model, prompt_cache_key=f"k{n}"), at=60.0 * n,
             sizes=[1_000, 1_500, 500, 400], provider="openai", surface="openai")
        for n, text in enumerate(("x", "y"))
    ]  # fmt: skip
    found = run(asked).calls[1].predicted
    assert found is not None
    assert (found.read, found.written, found.uncached) == (read, 0, 3_400 - read)
    assert "best_effort" in found.notes


@pytest.mark.parametrize(
    ("interval", "hidden", "matched", "read"),
    [
        (128, 0, 3_000, 2_944),
        # 23,778 and 115 hidden reach the boundary at 23,552, of which 23,437 are the caller's.
        (512, 115, 23_778, 23_424),
        (512, 115, 29_168, 29_056),
        (128, 115, 2_944 + 13, 2_944),
        (128, 115, 2_944 + 12, 2_816),
        (128, 115, 13, 0),
    ],
)
def test_hidden_text_counts_for_boundaries_and_not_for_reports(
    interval: int, hidden: int, matched: int, read: int
) -> None:
    rules = LongestRules(interval=interval, step=128, hidden=hidden)
    machine = LongestPrefixMachine()
    machine.step(request(["a"], tokens=matched), rules)
    found = machine.step(request(["a", "b"], at=10, tokens=[matched, 500]), rules)
    assert (found.read, found.uncached) == (read, matched + 500 - read)


# ── the longest prefix elsewhere ─────────────────────────────────────────────────────────────────


def test_chunks_minimum_and_idle_time() -> None:
    rules = LongestRules(minimum=512, interval=256, ttl_seconds={"idle": 100}, default_ttl="idle")
    machine = LongestPrefixMachine()
    grown = [
        request(blocks(n), at=at, tokens=300) for n, at in ((2, 0), (3, 50), (4, 140), (5, 300))
    ]
    found = play(machine, rules, *grown)
    assert [o.read for o in found] == [0, 512, 768, 0]
    assert [o.hit for o in found] == [-1, 1, 2, -1]
    assert "expired" in found[3].notes
    assert play(LongestPrefixMachine(), rules, *[request(["a"], at=a, tokens=511) for a in (0, 9)])[
        1
    ].notes == ("below_minimum", "best_effort")


def test_kimi_bills_what_it_stores_by_lifetime() -> None:
    def kimi(identity: str, at: float, sizes: list[int], *texts: str) -> Any:
        options = {"prompt_cache_options": {"ttl": "1h"}}
        made = body(*texts, model="kimi-k3", **options)
        return call(identity, made, at=at, sizes=sizes, provider="kimi", surface="other")

    found = run(
        [kimi("1", 0, [300, 300], "q"), kimi("2", 3_000, [300, 300, 100, 200], "q", "a", "r")]
    )
    one, two = (row.predicted for row in found.calls)
    assert one is not None
    assert two is not None
    assert (one.read, one.writes, one.uncached) == (0, {"1h": 512}, 88)
    assert (two.read, two.writes, two.uncached) == (512, {"1h": 256}, 132)


# ── DeepSeek ─────────────────────────────────────────────────────────────────────────────────────


def test_a_common_prefix_helps_from_the_third_request_on() -> None:
    """A+B, A+C, A+D: the second misses, A is stored, the third reads A."""
    asked = [request(["A", tail], at=10 * n, tokens=500) for n, tail in enumerate("BCD")]
    found = play(DeepSeekMachine(), DeepSeekRules(), *asked)
    assert [o.read for o in found] == [0, 0, 500]


def test_a_conversation_reads_up_to_the_end_of_the_last_reply() -> None:
    first = chat("du", [100, 200], first=1.0, end=5.0)
    second = chat("duau", [100, 200, 50, 60], at=20)
    early = chat("duau", [100, 200, 50, 60], at=3)
    assert play(DeepSeekMachine(), DeepSeekRules(), first, second)[1].read == 350
    assert play(DeepSeekMachine(), DeepSeekRules(), first, early)[1].read == 300


def test_a_prefix_is_there_as_soon_as_the_first_of_its_writers_has_begun() -> None:
    slow, quick = (
        request(["A", "B"], at=n, first=first, tokens=500) for n, first in ((0, 9), (1, 3))
    )
    third = request(["A", "B", "C"], at=5, tokens=500)
    assert [o.read for o in play(DeepSeekMachine(), DeepSeekRules(), slow, quick, third)] == [
        0, 0, 1000,
    ]  # fmt: skip


def test_an_edited_beginning_reads_nothing_although_most_is_shared() -> None:
    asked = [request(["s", now, "rest"], at=at, tokens=500) for now, at in (("1", 0), ("2", 9))]
    assert play(DeepSeekMachine(), DeepSeekRules(), *asked)[1].read == 0


def test_older_models_find_multiples_of_64() -> None:
    asked = [request(["A", tail], at=10 * n, tokens=500) for n, tail in enumerate("BC")]
    assert play(DeepSeekMachine(), DeepSeekRules(unit=64), *asked)[1].read == 448


# ── Gemini ───────────────────────────────────────────────────────────────────────────────────────


def test_a_cache_object_is_read_whole() -> None:
    asked = request(["q"], tokens=30, cached_object="caches/1", object_tokens=9_000)
    found = play(GeminiMachine(), LongestRules(), asked)[0]
    assert (found.read, found.uncached) == (9_000, 30)


def test_implicit_reads_need_the_models_minimum() -> None:
    rules = LongestRules(minimum=4_096, ttl_seconds={"implicit": 600}, default_ttl="implicit")
    for tokens, read in ((4_095, 0), (4_096, 4_096)):
        asked = [request(["a", tail], at=9 * n, tokens=[tokens, 10]) for n, tail in enumerate("xy")]
        found = play(GeminiMachine(), rules, *asked)[1]
        assert found.read == read
        assert "best_effort" in found.notes


# ── Qwen, MiniMax ────────────────────────────────────────────────────────────────────────────────

QWEN = EitherRules(
    ClaudeRules(minimum=0, collapse_runs=False, readable_at_end=True, renew_for_reader=True),
    LongestRules(ttl_seconds={"5m": 300}, default_ttl="5m"),
)


def test_a_qwen_entry_can_be_read_once_the_response_has_ended() -> None:
    first = request(["a"], [0], at=0, first=1, end=30)
    for at, read in ((29, 0), (30, 100)):
        assert play(EitherMachine(), QWEN, first, request(["a"], [0], at=at))[1].read == read


def test_a_qwen4_entry_lives_as_long_as_its_reader_asks() -> None:
    asked = [
        request(["a"], [(0, ttl)], at=at) for ttl, at in (("5m", 0), ("1h", 200), ("5m", 3_000))
    ]
    assert [o.read for o in play(EitherMachine(), QWEN, *asked)] == [0, 100, 100]


def test_without_markers_the_longest_prefix_counts() -> None:
    asked = [request(["a", tail], at=9 * n) for n, tail in enumerate("xy")]
    found = play(EitherMachine(), QWEN, *asked)[1]
    assert (found.read, found.notes) == (100, ("best_effort",))


@pytest.mark.parametrize(("model", "read"), [("MiniMax-M2.5", 0), ("MiniMax-M3", 700)])
def test_markers_count_on_minimax_m2_only(model: str, read: int) -> None:
    """A marker behind what changed: M2 misses, M3 ignores it and finds the shared beginning."""

    def asked(identity: str, at: float, tail: str) -> Any:
        marked = {"type": "text", "text": tail, "cache_control": {"type": "ephemeral"}}
        made = {
            "model": model,
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [marked]},
            ],
        }
        return call(identity, made, at=at, sizes=[700, 50], provider="minimax", surface="other")

    found = run([asked("1", 0, "x"), asked("2", 60, "y")]).calls[1].predicted
    assert found is not None
    assert found.read == read


# ── the local engine ─────────────────────────────────────────────────────────────────────────────


def test_full_kv_blocks_of_sixteen() -> None:
    """47 tokens after 45 shared ones: 32 found, 15 computed."""
    first = request(["a"], tokens=[45])
    second = request(["a", "b"], tokens=[45, 2], at=9)
    found = play(LocalMachine(), LocalRules(), first, second)[1]
    assert (found.read, found.uncached) == (32, 15)


def test_the_last_token_is_always_computed() -> None:
    asked = [request(["a"], tokens=[48], at=at) for at in (0, 9)]
    assert play(LocalMachine(), LocalRules(), *asked)[1].read == 32


def test_one_page_of_a_chain_is_dropped_at_its_tail() -> None:
    """195 tokens are 12 full pages; with room for one page less the first 176 are still found."""
    chain = request(["a"], tokens=[195])
    again = request(["a"], tokens=[195], at=20)
    small = LocalRules(capacity=11)
    assert play(LocalMachine(), small, chain, again)[1].read == 176


def test_pages_of_one_are_a_token_tree() -> None:
    asked = [request(["a", tail], at=9 * n, tokens=[999, 1]) for n, tail in enumerate("xy")]
    assert play(LocalMachine(), LocalRules(block_tokens=1), *asked)[1].read == 999


def test_namespaces_share_nothing() -> None:
    asked = [request(["a"], tokens=[64], at=9 * n, scope=scope) for n, scope in enumerate("xyx")]
    assert [o.read for o in play(LocalMachine(), LocalRules(), *asked)] == [0, 0, 48]

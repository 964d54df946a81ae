"""Rules of a disk cache, and the rules that are none."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from local_backend.rules import DeepSeekRules, ImplicitRules, Outcome, Prompt
from local_backend.rules.base import Miss
from local_backend.rules.deepseek import DeepSeekSettings

SMALL = DeepSeekSettings(unit=4)


def prompt(text: str, **more: str) -> Prompt:
    return Prompt(id="m", tokens=tuple(map(ord, text)), **more)


def ask(rules: DeepSeekRules, text: str, at: float, answer: str = "", **more: str) -> Outcome:
    plan = rules.plan(prompt(text, **more), at)
    found = rules.began(plan, plan.read or 0, at + 1)
    rules.ended(plan, tuple(map(ord, answer)), at + 2)
    return found


def reads(*steps: str, answer: str = "") -> list[int]:
    rules = DeepSeekRules(SMALL)
    return [ask(rules, text, 10.0 * n, answer).read for n, text in enumerate(steps)]


def test_a_common_beginning_is_read_from_the_third_request_on() -> None:
    assert reads("aaaaaaaabbbb", "aaaaaaaacccc", "aaaaaaaadddd") == [0, 0, 8]


def test_an_input_is_read_as_a_whole_and_in_whole_units() -> None:
    assert reads("aaaabbbbcc", "aaaabbbbccdd") == [0, 8]
    assert reads("aaaabbbb", "aaaaxxxx") == [0, 0]


def test_what_was_answered_is_stored_as_well() -> None:
    assert reads("aaaa", "aaaabbbbcccc", answer="bbbb") == [0, 8]


def test_nothing_is_written_at_a_price() -> None:
    found = ask(DeepSeekRules(SMALL), "aaaabbbbc", 0.0)
    assert (found.read, found.writes, found.uncached) == (0, {}, 9)
    assert found.miss is Miss.NOTHING_STORED


def test_models_and_workspaces_are_apart() -> None:
    rules = DeepSeekRules(SMALL)
    ask(rules, "aaaa", 0.0)
    assert ask(rules, "aaaa", 10.0, model="other").read == 0
    assert ask(rules, "aaaa", 20.0, workspace="other").read == 0
    assert ask(rules, "aaaa", 30.0).read == 4


def test_it_can_be_read_once_the_response_began_and_until_it_expires() -> None:
    rules = DeepSeekRules(DeepSeekSettings(unit=4, ttl_s=100.0))
    first = rules.plan(prompt("aaaa"), 0.0)
    rules.began(first, 0, 5.0)
    assert [rules.plan(prompt("aaaa"), at).read for at in (4.0, 5.0, 104.0, 250.0)] == [0, 4, 4, 0]


def test_long_texts_may_be_stored_in_between() -> None:
    rules = DeepSeekRules(DeepSeekSettings(unit=4, interval=2))
    ask(rules, "aaaabbbbccccddddeeee", 0.0)
    assert ask(rules, "aaaabbbbccccXXXX", 10.0).read == 8


def test_what_is_evicted_is_said() -> None:
    rules = DeepSeekRules(SMALL)
    ask(rules, "aaaabbbbc", 0.0)
    plan = rules.plan(prompt("aaaabbbbc"), 10.0)
    found = rules.began(plan, 4, 11.0)
    assert (found.read, found.uncached, found.evicted, found.miss) == (4, 5, 4, Miss.EVICTED)


def test_memory_is_bounded() -> None:
    rules = DeepSeekRules(DeepSeekSettings(unit=1, max_units=10))
    for number in range(50):
        ask(rules, f"{number:04}" * 5, float(number))
        assert rules.entries() <= 10


@given(st.lists(st.text("ab", min_size=1, max_size=14), min_size=1, max_size=12))
def test_a_read_is_a_beginning_that_was_sent_before(texts: list[str]) -> None:
    rules = DeepSeekRules(DeepSeekSettings(unit=2))
    sent: list[str] = []
    for number, text in enumerate(texts):
        found = ask(rules, text, 10.0 * number)
        assert found.read % 2 == 0
        assert not found.read or any(old.startswith(text[: found.read]) for old in sent)
        whole = text[: len(text) // 2 * 2]
        assert found.read == len(whole) or whole not in [o[: len(o) // 2 * 2] for o in sent]
        sent.append(text)


@given(st.lists(st.text("ab", min_size=4, max_size=12), min_size=3, max_size=3))
def test_what_two_had_in_common_the_third_reads(texts: list[str]) -> None:
    rules = DeepSeekRules(DeepSeekSettings(unit=1))
    one, two, three = texts
    for number, text in enumerate((one, two)):
        ask(rules, text, 10.0 * number)
    common = "".join(a for a, b in takewhile(lambda p: p[0] == p[1], zip(one, two, strict=False)))
    ends = [end for end in (one, two, common) if end and three.startswith(end)]
    assert ask(rules, three, 30.0).read == max(map(len, ends), default=0)


def test_without_rules_the_engine_decides() -> None:
    rules = ImplicitRules()
    plan = rules.plan(prompt("abcdef"), 0.0)
    assert plan.read is None
    found = rules.began(plan, 5, 1.0)
    assert (found.read, found.written, found.uncached) == (5, 0, 1)
    stepped = ImplicitRules(minimum=100, step=64)
    assert [stepped.began(plan, held, 1.0).read for held in (99, 127, 200)] == [0, 0, 192]

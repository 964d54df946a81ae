"""Calls of one lane that ran side by side, and two conversations recorded as one."""

from __future__ import annotations

import pytest

from cacheaudit.diagnose.examples import Script, body
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.model.finding import Finding


def losses(script: Script) -> list[Finding]:
    return [f for f in diagnose(script.session()).findings if f.kind == "loss"]


def test_nearly_equal_writes_side_by_side_are_a_fan_out_of_one_lane() -> None:
    script = (
        Script()
        .call(0, 0, 20_000, duration=8)
        .call(0.4, 0, 20_010, duration=8)
        .call(0.9, 0, 20_005, duration=8)
        .call(60, 20_005, 500, duration=2)
    )
    (found,) = losses(script)
    assert (found.name, found.verdict) == ("fan-out-without-warm-up", "consistent")
    assert found.tokens_lost == 20_000 + 20_005
    assert "unrelated-prompts" in {rival.rule for rival in found.rivals}
    assert any("side by side" in line for line in found.established)


@pytest.mark.parametrize(
    ("second", "duration"),
    [
        ((0.4, 0, 26_700), 8),  # a quarter more
        ((0.4, 4_000, 16_000), 8),  # another read
        ((9.5, 0, 20_010), 1),  # the first was answered
    ],
)
def test_what_is_not_alike_is_no_fan_out(second: tuple[float, int, int], duration: int) -> None:
    script = Script().call(0, 0, 20_000, duration=duration).call(*second, duration=8)
    assert "fan-out-without-warm-up" not in {found.name for found in losses(script)}


def test_an_overlap_that_explains_nothing_surely_is_a_rival() -> None:
    script = Script().call(0, 0, 20_000, duration=8).call(0.4, 0, 40_000, duration=8)
    (found,) = losses(script)
    assert (found.name, found.verdict) == ("unexplained-loss", "unknown")
    assert found.rivals[0].rule == "fan-out-without-warm-up"
    assert any("had not begun to answer" in line for line in found.established)


def test_two_conversations_in_one_lane_are_always_a_rival() -> None:
    script = Script()
    sizes = {0: 0, 7: 0}
    for number in range(5):
        for shift in sizes:
            read = sizes[shift]
            write = 600 + 100 * number + shift * 50 if read else 20_000 + shift * 100
            script.call(30.0 * number + shift, read, write, duration=3)
            sizes[shift] = read + write
    found = losses(script)
    assert found
    for finding in found:
        assert finding.verdict != "proved"
        assert "unrelated-prompts" in {rival.rule for rival in finding.rivals}


@pytest.mark.parametrize("is_recorded", [True, False])
def test_turns_between_accounts_are_seen_with_and_without_bodies(is_recorded: bool) -> None:
    script, left = Script(), [0, 0]
    for number in range(8):
        total = 11_000 + 600 * number
        texts = [f"message {i}" for i in range(2 * number + 1)]
        read = left[number % 2]
        script.call(30.0 * number, read, total - read, body=body(*texts) if is_recorded else None)
        left[number % 2] = total
    found = {finding.name: finding for finding in losses(script)}
    turns = found["alternating-accounts"]
    # From the third call on each reads what was left two calls before, 600 short of the last one.
    assert (turns.tokens_lost, len(turns.calls)) == (6 * 600, 6)
    assert turns.verdict == "consistent"
    rivals = {rival.rule for rival in turns.rivals}
    assert ("parameter-changed" in rivals) == ("unrelated-prompts" in rivals) == (not is_recorded)


@pytest.mark.parametrize(
    ("duration", "name"),
    [(4, "ttl-expired"), (29, "ttl-expired"), (31, "ttl-used-up-by-long-request")],
)
def test_only_a_long_request_uses_a_lifetime_up(duration: float, name: str) -> None:
    script = Script(ttl="5m").call(0, 0, 11_000, duration=duration).call(302, 0, 11_600)
    (found,) = losses(script)
    assert found.name == name


def test_a_gap_of_exactly_the_lifetime_leaves_it_open() -> None:
    script = Script(ttl="5m").call(0, 0, 20_000, duration=3).call(300, 0, 20_900)
    (found,) = losses(script)
    assert (found.name, found.verdict) == ("unexplained-loss", "unknown")
    assert "ttl-expired" in {rival.rule for rival in found.rivals}

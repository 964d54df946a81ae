"""What two versions of a text differ in."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.diagnose.volatile import explain

PAIRS = [
    ("clock", "It is 10:15:02. Help.", "It is 10:15:37. Help."),
    ("clock", "Now: 2026-11-29T23:59:59Z", "Now: 2026-11-30T00:00:04Z"),
    ("clock", "Now: 2026-11-29T23:59:59.123+01:00", "Now: 2026-11-29T23:59:59.917+01:00"),
    ("clock", "Sunday, November 29, 2026 at 9:05 PM", "Monday, November 30, 2026 at 12:15 AM"),
    ("clock", "29 Nov 2026 21:05", "29 Nov 2026 21:06"),
    ("clock", "started at 1764501234", "started at 1764509999"),
    ("clock", "epoch 1764501234123", "epoch 1764501239123"),
    ("clock", "uptime 35 s", "uptime 127 s"),
    ("clock", "It is 10:15:02, turn 3.", "It is 10:15:37, turn 4."),
    ("day", "Today is 2026-11-29.", "Today is 2026-11-30."),
    ("day", "Monday, 30 November 2026", "Tuesday, 1 December 2026"),
    ("id", "cch=1a2b3;", "cch=99871;"),
    ("id", "cch=00417;", "cch=93122;"),
    ("id", "Request id: req_12", "Request id: req_13"),
    ("id", "nonce 417", "nonce 418"),
    ("id", "run 550e8400-e29b-41d4-a716-446655440000", "run 6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    ("id", "build 4f9a2c1d", "build 9be1077a"),
    ("id", "toolu_01XXH54TUoVrVK", "toolu_01LNt6cSqifNLx"),
    ("counter", "Turn 9 of 40", "Turn 10 of 40"),
    ("counter", "Context left: 87 %", "Context left: 81 %"),
    ("counter", "tokens used: 999", "tokens used: 12,345"),
    ("counter", "12k of 200k", "15k of 200k"),
    ("git", "gitStatus:\nOn branch main\n M a.py", "gitStatus:\nOn branch main\n M a.py\n M b.py"),
    ("git", "Recent commits:\nab12cd3 Fix", "Recent commits:\nff12cd3 More\nab12cd3 Fix"),
    ("git", "# git status\nclean", "# git status\n?? new.txt"),
    ("workspace", "Working directory: /src/a\nGo", "Working directory: /src/b\nGo"),
    ("workspace", "Project structure:\n- a.py\n", "Project structure:\n- a.py\n- c.py\n"),
    ("workspace", "Open tabs\nsrc/a.ts", "Open tabs\nsrc/a.ts\nsrc/b.ts"),
    ("tool_list", "Deferred tools:\n- mail_send\n- mail_read", "Deferred tools:\n- mail_read"),
    ("tool_list", "tools available: \n mail_send\n", "tools available: \n mail_send\n mail_read\n"),
    ("representation", "a\r\nb", "a\nb"),
    ("representation", "one  two", "one two"),
    ("representation", "caf\u00e9", "cafe\u0301"),
    ("representation", "a &lt; b", "a < b"),
    ("other", "You help with code.", "You help with text."),
    ("other", "Be brief.", "Be brief. Be kind."),
    ("other", "the decade", "the facade"),
]


@pytest.mark.parametrize(("kind", "old", "new"), PAIRS)
def test_kinds(kind: str, old: str, new: str) -> None:
    for before, after in ((old, new), (new, old)):
        found = explain(before, after)
        assert found is not None
        assert found.kind == kind
        assert found.only == (kind != "other")


def test_equal_texts_do_not_differ() -> None:
    assert explain("It is 10:15:02.", "It is 10:15:02.") is None


def test_offsets_count_bytes() -> None:
    found = explain("Zeit für Tee: 10:15:02", "Zeit für Tee: 10:15:37")
    assert found is not None
    assert found.offset == len("Zeit für Tee: 10:15:".encode())


def test_a_clock_that_comes_first_is_named_though_more_differs() -> None:
    found = explain("At 10:15:02 you help with code.", "At 10:15:37 you help with text.")
    assert found is not None
    assert (found.kind, found.only) == ("clock", False)


def test_a_heading_speaks_for_its_own_section_only() -> None:
    head = "gitStatus:\n M a.py\n\n\n# Rules\nBe "
    found = explain(head + "brief and kind", head + "thorough, always")
    assert found is not None
    assert found.kind == "other"


def test_names_of_known_tools_need_no_heading() -> None:
    old, new = "You may load: mail_send, mail_read", "You may load: mail_read"
    found = explain(old, new, {"mail_send", "mail_read"})
    assert found is not None
    assert found.kind == "tool_list"


WORDS = st.text(string.ascii_lowercase + " .\n", max_size=80)


@given(WORDS, WORDS, st.times(), st.times())
def test_any_two_times_of_day_are_a_clock(head, tail, one, two) -> None:
    a, b = one.strftime("%H:%M:%S"), two.strftime("%H:%M:%S")
    found = explain(f"{head} {a} {tail}", f"{head} {b} {tail}")
    assert (found is None) == (a == b)
    if found is not None:
        assert (found.kind, found.only) == ("clock", True)


@given(WORDS, WORDS, st.uuids(), st.uuids())
def test_any_two_uuids_are_ids(head, tail, one, two) -> None:
    found = explain(f"{head}|{one}|{tail}", f"{head}|{two}|{tail}")
    assert (found is None) == (one == two)
    if found is not None:
        assert (found.kind, found.only) == ("id", True)


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_the_texts_the_answer_is_the_same_both_ways(a, b) -> None:
    one, two = explain(a, b), explain(b, a)
    assert (one is None) == (two is None) == (a == b)
    if one is not None and two is not None:
        assert one.offset == two.offset <= min(len(a.encode()), len(b.encode()))


def test_long_texts_are_cheap_enough_to_compare() -> None:
    base = "word 12 and more; " * 20_000
    found = explain(base + "turn 3", base + "turn 4")
    assert found is not None
    assert found.kind == "counter"

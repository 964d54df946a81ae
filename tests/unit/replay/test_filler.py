"""Filler: as long as wanted, from the digest, and different from its first character."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.jobs.replaying.filler import ALPHABET, Leads, filler, follow, root

IDENTITIES = st.binary(min_size=1, max_size=20)


@given(IDENTITIES, st.integers(0, 500), st.integers(0, 500))
def test_a_shorter_text_begins_a_longer_one(identity: bytes, one: int, other: int) -> None:
    short, long = sorted((one, other))
    assert filler(identity, long)[:short] == filler(identity, short)
    assert len(filler(identity, long).encode()) == long
    assert json.dumps(filler(identity, long)) == f'"{filler(identity, long)}"'


def test_digests_give_texts_that_have_little_in_common() -> None:
    texts = {filler(bytes([n]), 12) for n in range(256)}
    assert len(texts) == 256
    assert set("".join(texts)) == set(ALPHABET)


@given(st.lists(IDENTITIES, min_size=1, max_size=64, unique=True))
def test_what_follows_one_prefix_differs_from_the_first_character(found: list[bytes]) -> None:
    leads = Leads()
    first = [leads.lead(b"p", identity) for identity in found]
    assert len(set(first)) == len(found)
    assert [leads.lead(b"p", identity) for identity in found] == first


def test_the_first_follower_keeps_the_character_that_its_digest_gives() -> None:
    leads = Leads()
    assert leads.lead(b"a", b"x") == leads.lead(b"b", b"x") == filler(b"x", 1)


def test_more_followers_than_characters_still_get_one() -> None:
    leads = Leads()
    found = [leads.lead(b"p", str(n).encode()) for n in range(100)]
    assert len(set(found)) == 64
    assert found[99] == filler(b"99", 1)


def test_a_prefix_is_told_by_all_that_it_holds_in_order() -> None:
    one = follow(follow(root(), b"a" * 16), b"b" * 16)
    assert one != follow(follow(root(), b"b" * 16), b"a" * 16)
    assert one == follow(follow(root(), b"a" * 16), b"b" * 16)

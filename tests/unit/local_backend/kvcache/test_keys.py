from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_backend.kvcache.coordinator import make_groups
from local_backend.kvcache.keys import (
    KEY_BYTES,
    MAX_TOKEN,
    Namespace,
    Span,
    TokenKey,
    pack_tokens,
    tagged,
    unpack_tokens,
)
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.specs import simple_group

TOKENS = list(range(100))


def hit(first: TokenKey, second: TokenKey, cache: str, page_size: int = 4) -> int:
    """Tokens of the second prompt that are found after the first."""
    groups = make_groups([simple_group(page_size, 1)], {"full": 200}, cache=cache)
    manager = CacheManager(groups)
    sequence = manager.admit("first", first)
    assert sequence is not None
    manager.commit(sequence, len(first))
    manager.release(sequence)
    return manager.hit_length(second)


@pytest.mark.parametrize("cache", ["radix", "hash", "naive"])
def test_an_adapter_is_no_salt(cache: str) -> None:
    """E01: an adapter named X without salt, then the base model with the salt X."""
    adapter = TokenKey(Namespace("w", adapter="X"), TOKENS)
    salted = TokenKey(Namespace("w", salt="X"), TOKENS)
    assert hit(adapter, salted, cache) == 0
    assert hit(salted, adapter, cache) == 0
    assert hit(salted, TokenKey(Namespace("w", salt="X"), TOKENS), cache) >= 96


@given(st.lists(st.text(max_size=4), min_size=4, max_size=4), st.data())
def test_namespaces_are_equal_only_if_every_field_is(
    fields: list[str], data: st.DataObject
) -> None:
    other = data.draw(st.permutations(fields))
    assert (Namespace(*fields).root() == Namespace(*other).root()) == (fields == other)


@given(st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=4), st.data())
def test_framed_fields_give_the_same_bytes_only_if_they_are_the_same(
    fields: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    other = data.draw(st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=4))
    same = b"".join(tagged(*f) for f in fields) == b"".join(tagged(*f) for f in other)
    assert same == (fields == other)


PROGRAM = """
from local_backend.kvcache.keys import Namespace, Span, TokenKey
key = TokenKey(Namespace("w", salt="s", adapter="a"), range(70), (Span(20, 9, b"picture"),))
print([identity.hex() for identity in key.chain(16, 4)])
"""


def test_identities_are_equal_in_every_process(root: Path) -> None:
    """E05: two processes with different hash seeds arrive at the same identities."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    key = TokenKey(Namespace("w", salt="s", adapter="a"), range(70), (Span(20, 9, b"picture"),))
    assert outputs == {f"{[identity.hex() for identity in key.chain(16, 4)]}\n"}


def test_salt_and_weights_change_every_identity() -> None:
    spaces = [
        Namespace("w"),
        Namespace("w", salt="s"),
        Namespace("v"),
        Namespace("w", numerics="fp8"),
    ]
    chains = [TokenKey(space, TOKENS).chain(16, 6) for space in spaces]
    assert len({identity for chain in chains for identity in chain}) == 4 * 6


@pytest.mark.parametrize("cache", ["radix", "hash", "naive"])
def test_same_text_and_another_image_reads_up_to_the_image(cache: str) -> None:
    """E04: placeholders are equal, what they stand for is not."""
    one, other = (TokenKey(Namespace("w"), TOKENS, (Span(42, 20, d),)) for d in (b"cat", b"dog"))
    expected = {"radix": 42, "hash": 40, "naive": 42}[cache]
    assert hit(one, other, cache) == expected
    assert hit(one, one.copy(), cache) >= 96


def test_an_image_further_on_is_another_prompt_from_there() -> None:
    spans = [(Span(40, 8, b"cat"),), (Span(41, 8, b"cat"),), (Span(40, 9, b"cat"),), ()]
    keys = [TokenKey(Namespace("w"), TOKENS, span) for span in spans]
    for i, one in enumerate(keys):
        for j, other in enumerate(keys):
            if i != j:
                assert hit(one, other, "hash") == 40


def test_kinds_of_placeholders_never_match() -> None:
    one = TokenKey(Namespace("w"), TOKENS, (Span(8, 4, b"x", "media"),))
    other = TokenKey(Namespace("w"), TOKENS, (Span(8, 4, b"x", "embedding"),))
    assert hit(one, other, "hash") == 8


@given(st.lists(st.integers(0, MAX_TOKEN)))
def test_packing_loses_nothing(tokens: list[int]) -> None:
    packed = pack_tokens(tokens)
    assert len(packed) == 4 * len(tokens)
    assert unpack_tokens(packed) == tokens
    assert TokenKey(b"r" * KEY_BYTES, tokens).tokens() == tokens


@pytest.mark.parametrize("token", [-1, 2**32])
def test_ids_that_do_not_fit_are_refused(token: int) -> None:
    with pytest.raises(ValueError, match="token id"):
        pack_tokens([1, token])


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.lists(st.one_of(st.integers(0, 40), st.lists(st.integers(0, 3), max_size=9)), max_size=8),
    st.integers(1, 5),
)
def test_identities_follow_appends_and_cuts(
    tokens: list[int], edits: list[int | list[int]], size: int
) -> None:
    key = TokenKey(Namespace("w"), tokens)
    for edit in edits:
        key.chain(size, 100)
        if isinstance(edit, int):
            key.cut(min(edit, len(key)))
        else:
            key.append(pack_tokens(edit))
    fresh = TokenKey(Namespace("w"), key.tokens())
    assert key.chain(size, 100) == fresh.chain(size, 100)
    assert key.copy().chain(size, 100) == fresh.chain(size, 100)
    assert len(fresh.chain(size, 100)) == len(key) // size


def test_a_copy_goes_its_own_way() -> None:
    key = TokenKey(Namespace("w"), range(8))
    key.chain(4, 2)
    twin = key.copy()
    twin.append(pack_tokens([9, 9, 9, 9]))
    twin.chain(4, 3)
    assert len(key) == 8
    assert len(key.chain(4, 3)) == 2


def test_placeholders_move_with_appends_and_cuts() -> None:
    key = TokenKey(Namespace("w"), range(8))
    assert key.extras(4) == {}
    key.append(pack_tokens([5, 5]), (Span(8, 2, b"cat"),))
    assert list(key.extras(4)) == [2]
    key.cut(8)
    assert key.extras(4) == {}


def test_identities_stay_what_they_are() -> None:
    """Files of a disk tier are named by them, also those that an earlier version wrote."""
    space = Namespace("w", salt="s", adapter="a")
    plain = TokenKey(space, range(70)).chain(16, 4)
    assert [identity.hex() for identity in plain] == [
        "f096c8015b3c551ad2b187f75fb8a898",
        "8feb3a760f81ba9962cdab16ec70d572",
        "8c35620e2fd27dda40ff39a5408be636",
        "71815bca0df4c96df3b00e8dab8f89f1",
    ]
    pictured = TokenKey(space, range(70), (Span(20, 9, b"picture"),)).chain(16, 4)
    assert [identity.hex() for identity in pictured] == [
        "f096c8015b3c551ad2b187f75fb8a898",
        "1ac731a74e312369af26960f6325a223",
        "49871f046bc2aa50d3c09116e9dc6390",
        "0294f78ec2cf4cf8d06268aa113f878d",
    ]


@pytest.mark.parametrize("spans", [(), (Span(9, 6, b"picture"),)])
@pytest.mark.parametrize("asked", [0, 3, 9])
def test_identities_from_the_middle_are_those_from_the_start(
    spans: tuple[Span, ...], asked: int
) -> None:
    chain = TokenKey(Namespace("w"), range(36), spans).chain(4, 9)
    key = TokenKey(Namespace("w"), range(36), spans)
    key.chain(4, asked)  # what is known already is not digested again
    for first in range(9):
        before = chain[first - 1] if first else key.root
        assert key.identity(4, first, before) == chain[first]
        for last in range(first, 10):
            assert key.identities(4, first, last, before) == chain[first:last]

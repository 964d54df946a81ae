"""Tokenizers: ids by hand, texts that come back, names of control tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_backend.errors import TokenizerError
from local_backend.tokenizer.base import TextStream, Tokenizer
from local_backend.tokenizer.byte_level import ByteTokenizer
from local_backend.tokenizer.from_file import read_tokenizer
from local_backend.tokenizer.special import NameFinder
from tests.unit.local_backend.tokenizer.vocabularies import byte_pairs, pieces

pytest.importorskip("regex", reason="regex is not installed")
ALL = {
    "bytes": ByteTokenizer(),
    "pairs": read_tokenizer(byte_pairs()),
    "pieces": read_tokenizer(pieces()),
}


def spelled(tokenizer: Tokenizer, text: str, *, special: bool = True) -> list[str]:
    return [tokenizer.name_of(token) for token in tokenizer.encode(text, special=special)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("the", ["the"]),
        ("he the", ["he", "\u0120the"]),
        # Digits stand alone, though the list of pairs would join them, and so does the space.
        ("a 12", ["a", "\u0120", "1", "2"]),
        ("the's", ["the", "'", "s"]),
        ("a  the", ["a", "\u0120", "\u0120the"]),
        ("a  ", ["a", "\u0120\u0120"]),
        ("\u00e9", ["\u00c3\u00a9"]),
        ("<|im_end|>the", ["<|im_end|>", "the"]),
        ("", []),
        # A byte without a token is left out: the unknown token would end the text.
        ("a\x1db", ["a", "b"]),
    ],
)
def test_byte_pairs_by_hand(text: str, names: list[str]) -> None:
    assert spelled(ALL["pairs"], text) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("the", ["the"]),
        # h e is joined before t h; then t and he make the.
        ("xthe", ["x", "the"]),
        ("a the", ["a", "\u2581the"]),
        ("a  the", ["a", "  ", "the"]),
        ("a\n\n\nb", ["a", "\n\n", "\n", "b"]),
        ("a> the", ["a", ">\u2581", "the"]),
        ("a\u2581the", ["a", "\u2581the"]),
        ("aaa", ["aa", "a"]),
        ("\u00e9!", ["<0xC3>", "<0xA9>", "<0x21>"]),
        ("<bos>a", ["<bos>", "a"]),
    ],
)
def test_pieces_by_hand(text: str, names: list[str]) -> None:
    assert spelled(ALL["pieces"], text) == names


def test_control_tokens_of_a_stranger_stay_text() -> None:
    for name, text in (("pairs", "<|im_end|>"), ("pieces", "<bos>"), ("bytes", "<|end|>")):
        tokenizer = ALL[name]
        (token,) = tokenizer.encode(text)
        assert token in tokenizer.special
        plain = tokenizer.encode(text, special=False)
        assert not tokenizer.special.intersection(plain)
        assert tokenizer.decode(plain) == text
        assert tokenizer.piece(token) == b""


def test_special_ids() -> None:
    pairs, spm, plain = ALL["pairs"], ALL["pieces"], ALL["bytes"]
    assert (pairs.bos, pairs.adds_bos, pairs.stops) == (1, False, {0, 2})
    assert (spm.bos, spm.adds_bos, spm.stops) == (2, True, {1, 4})
    assert (plain.bos, plain.adds_bos, plain.stops) == (256, False, {260})
    assert pairs.id_of("<|im_start|>") == 1
    assert pairs.id_of("the") is None


@pytest.mark.parametrize("name", ["bytes", "pieces"])
@given(text=st.text(max_size=60))
def test_texts_come_back(name: str, text: str) -> None:
    tokenizer = ALL[name]
    tokens = tokenizer.encode(text, special=False)
    right = text.encode("utf-8", "replace").decode().replace("\u2581", " ")
    got = tokenizer.decode(tokens)
    assert (got.replace("\u2581", " ")) == right
    stream = TextStream(tokenizer)
    parts = [stream.feed(token) for token in tokens]
    assert "".join(parts) + stream.finish() == got
    assert not any("\ufffd" in part for part in parts) or "\ufffd" in got


@given(text=st.text(alphabet="the a12.,!'\u00e9\n<|>_", max_size=60))
def test_texts_of_known_bytes_come_back(text: str) -> None:
    tokenizer = ALL["pairs"]
    assert tokenizer.decode(tokenizer.encode(text, special=False)) == text


def test_a_stream_holds_back_half_a_character() -> None:
    tokenizer = ALL["bytes"]
    stream = TextStream(tokenizer)
    parts = [stream.feed(token) for token in tokenizer.encode("\U0001f600!")]
    assert parts == ["", "", "", "\U0001f600", "!"]
    broken = TextStream(tokenizer)
    assert broken.feed(0xF0) == ""
    assert broken.finish() == "\ufffd"


def test_the_longest_name_is_found_first() -> None:
    find = NameFinder({"<a": 1, "<ab>": 2, "\n": 3, "\n\n": 4, "": 9})
    assert list(find("x<ab><abc\n\n\n")) == ["x", 2, 1, "bc", 4, 3]
    assert list(NameFinder({})("text")) == ["text"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "tokenizer None"),
        (byte_pairs(**{"tokenizer.ggml.pre": "other"}), "'other'"),
        (byte_pairs(**{"tokenizer.ggml.merges": []}), "no list of pairs"),
        (byte_pairs(**{"tokenizer.ggml.token_type": [1]}), "1 kinds"),
        (byte_pairs(**{"tokenizer.ggml.eos_token_id": 99_999}), "eos token is 99999"),
        (pieces(**{"tokenizer.ggml.scores": []}), "0 scores"),
    ],
)
def test_vocabularies_that_do_not_fit_are_refused(metadata: dict, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        read_tokenizer(metadata)


@pytest.mark.parametrize("tokenizer", ALL.values(), ids=list(ALL))
def test_ids_that_do_not_exist(tokenizer: Tokenizer) -> None:
    for token in (-1, tokenizer.vocab_size):
        with pytest.raises(TokenizerError, match="there is no token"):
            tokenizer.piece(token)

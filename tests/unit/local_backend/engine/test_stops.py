"""Text that ends at a stop sequence, however it was cut into tokens."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from local_backend.engine.stops import Found, StopText
from local_backend.tokenizer.byte_level import ByteTokenizer


class Pieces(ByteTokenizer):
    """Token n stands for the n-th of some pieces of text."""

    def __init__(self, pieces: list[str]) -> None:
        super().__init__()
        self._pieces = pieces

    def piece(self, token: int) -> bytes:
        return self._pieces[token].encode()


def run(pieces: list[str], sequences: tuple[str, ...]) -> tuple[list[str], str | None]:
    """What is handed out with each token, what at the end, and the sequence that was met."""
    stops = StopText(Pieces(pieces), sequences)
    found: list[str] = []
    for token in range(len(pieces)):
        got = stops.feed(token)
        if isinstance(got, Found):
            return [*found, got.before], got.sequence
        found.append(got)
    rest = stops.finish()
    assert isinstance(rest, str)
    return [*found, rest], None


def naive(text: str, sequences: tuple[str, ...]) -> tuple[str, str | None]:
    """Character by character: the answer ends as soon as a sequence is complete."""
    for end in range(1, len(text) + 1):
        met = [sequence for sequence in sequences if text[:end].endswith(sequence)]
        if met:
            longest = max(met, key=len)
            return text[: end - len(longest)], longest
    return text, None


TEXT = st.text("abé", max_size=4)
STOPS = st.lists(st.text("abé", min_size=1, max_size=4), max_size=3).map(tuple)


@given(pieces=st.lists(TEXT, max_size=9), sequences=STOPS)
@example(pieces=["xab", "cab", "d"], sequences=("abd",))
@example(pieces=["aaab"], sequences=("aab", "ab", "b"))
def test_as_character_by_character(pieces: list[str], sequences: tuple[str, ...]) -> None:
    handed, met = run(pieces, sequences)
    assert ("".join(handed), met) == naive("".join(pieces), sequences)


@given(pieces=st.lists(TEXT, max_size=9), sequences=STOPS)
def test_nothing_is_held_back_that_cannot_become_a_stop(
    pieces: list[str], sequences: tuple[str, ...]
) -> None:
    handed, met = run(pieces, sequences)
    before = ""
    for index, part in enumerate(handed[:-1]):
        before += part
        text = "".join(pieces[: index + 1])
        if met is None or index < len(handed) - 2:
            held = text[len(before) :]
            longest = max((len(sequence) for sequence in sequences), default=0)
            assert len(held) < max(1, longest)
            assert not held or any(sequence.startswith(held) for sequence in sequences)


def test_across_tokens_and_within() -> None:
    assert run(["Hello E", "N", "D more"], ("END",)) == (["Hello ", "", ""], "END")
    assert run(["Hello E", "N", "d"], ("END",)) == (["Hello ", "", "ENd", ""], None)
    assert run(["so ENDs it"], ("END", "s it")) == (["so "], "END")


def test_what_is_held_at_the_end_belongs_to_the_answer() -> None:
    assert run(["abc", "EN"], ("END",)) == (["abc", "", "EN"], None)


def test_characters_of_several_tokens_are_never_cut() -> None:
    stops = StopText(ByteTokenizer(), ("é!",))
    data = "aé?é!".encode()
    got = [stops.feed(byte) for byte in data]
    assert got[:4] == ["a", "", "", "é?"]
    assert got[4:6] == ["", ""]
    assert got[6] == Found("", "é!")


def test_a_cut_character_at_the_end_is_replaced() -> None:
    stops = StopText(ByteTokenizer(), ("x",))
    assert stops.feed("é".encode()[0]) == ""
    assert stops.finish() == "\N{REPLACEMENT CHARACTER}"

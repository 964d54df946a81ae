"""Turns tokens into text as they come, and ends it at a stop sequence."""

from __future__ import annotations

from dataclasses import dataclass

from local_backend.tokenizer.base import TextStream, Tokenizer


@dataclass(frozen=True, slots=True)
class Found:
    """A stop sequence that was met.

    Attributes:
        before: Text before it that was not handed out yet.
        sequence: The one.
    """

    before: str
    sequence: str


class StopText:
    """The text of one answer.

    What might become a stop sequence is held back. The sequence that is complete first ends the
    answer, and of two that are complete at the same place the longer: that does not depend on how
    the text was cut into tokens.

    Args:
        tokenizer: Whose tokens come.
        sequences: Texts that end the answer; none of them empty.
    """

    def __init__(self, tokenizer: Tokenizer, sequences: tuple[str, ...]) -> None:
        self._stream = TextStream(tokenizer)
        self._sequences = sequences
        self._held = ""

    def feed(self, token: int) -> str | Found:
        """The text that a token completes and that can be handed out, or the end."""
        return self._add(self._stream.feed(token))

    def finish(self) -> str | Found:
        """What was held back, where the answer ends for another reason."""
        rest = self._add(self._stream.finish())
        if isinstance(rest, Found):
            return rest
        held, self._held = self._held, ""
        return rest + held

    def _add(self, text: str) -> str | Found:
        if not self._sequences:
            return text
        whole = self._held + text
        ends = [
            (at + len(sequence), at, sequence)
            for sequence in self._sequences
            if (at := whole.find(sequence)) >= 0
        ]
        if ends:
            _, at, sequence = min(ends)
            self._held = ""
            return Found(whole[:at], sequence)
        keep = max(_overlap(whole, sequence) for sequence in self._sequences)
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]


def _overlap(text: str, sequence: str) -> int:
    """Length of the longest end of a text that a sequence begins with, but is not all of it."""
    for length in range(min(len(text), len(sequence) - 1), 0, -1):
        if text.endswith(sequence[:length]):
            return length
    return 0

"""The interface of a tokenizer, and text that arrives token by token."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Protocol


class Tokenizer(Protocol):
    """Turns text into token ids and back."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    @property
    def bos(self) -> int | None:
        """The id that begins a text, where the vocabulary has one."""
        ...

    @property
    def adds_bos(self) -> bool:
        """Whether a plain text is meant to begin with :attr:`bos`."""
        ...

    @property
    def stops(self) -> frozenset[int]:
        """Ids that end an answer."""
        ...

    @property
    def special(self) -> frozenset[int]:
        """Ids that stand for control, not for text."""
        ...

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of a text, without :attr:`bos`.

        Args:
            text: The text.
            special: Whether names of control tokens in it become these tokens. A chat template
                needs that; text of strangers should not have it.
        """
        ...

    def id_of(self, name: str) -> int | None:
        """The id of a control token by its name."""
        ...

    def name_of(self, token: int) -> str:
        """The name of a token as the vocabulary spells it."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for; none for control tokens.

        Raises:
            TokenizerError: There is no such id.
        """
        ...

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8 become replacement characters."""
        ...


class TextStream:
    """The text of tokens that come one at a time.

    Bytes of a character that is not complete are held back, so that all that was handed out, put
    together, is what :meth:`Tokenizer.decode` gives.

    Args:
        tokenizer: Whose tokens they are.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """The text that a token completes; often none."""
        return self._decoder.decode(self._tokenizer.piece(token))

    def finish(self) -> str:
        """What was held back."""
        return self._decoder.decode(b"", final=True)

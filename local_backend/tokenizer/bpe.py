"""Byte pair encoding as GPT-2 has it: bytes as visible characters, joined by a list of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from local_backend._lazy import need
from local_backend._typing import override
from local_backend.errors import TokenizerError
from local_backend.tokenizer.merge import merge
from local_backend.tokenizer.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary

# How text is cut into words before anything is joined; several patterns cut one after the other.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CUTS = {
    "gpt-2": (_WORDS,),
    "default": (_WORDS,),
    "smollm": (r"\p{N}|[^\p{N}]+", _WORDS),
}
_KEPT_WORDS = 1 << 16


def _letters() -> dict[int, str]:
    """A visible character for each byte: itself where it is one, else one of those from 256 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in own]
    return {byte: chr(byte) for byte in own} | {b: chr(256 + i) for i, b in enumerate(rest)}


class BpeTokenizer(Vocabulary):
    """The tokenizer of SmolLM2 and its like.

    Args:
        metadata: Of the file.

    Raises:
        TokenizerError: Its way of cutting words is unknown, or it has no list of pairs.
        MissingPackageError: The ``regex`` package is not installed.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        super().__init__(metadata)
        cut = metadata.get("tokenizer.ggml.pre", "default")
        if cut not in _CUTS:
            raise TokenizerError(
                f"words cut as {cut!r} are unknown; there are: {', '.join(sorted(_CUTS))}"
            )
        pairs: list[str] = metadata.get("tokenizer.ggml.merges", [])
        if not pairs:
            raise TokenizerError("the file has no list of pairs")
        regex = need("regex", "this tokenizer")
        self._cuts = [regex.compile(pattern) for pattern in _CUTS[cut]]
        split = (pair.split(" ", 1) for pair in pairs)
        self._ranks = {(pair[0], pair[-1]): rank for rank, pair in enumerate(split)}
        self._letters = _letters()
        self._bytes = {ord(letter): byte for byte, letter in self._letters.items()}
        self._word = lru_cache(_KEPT_WORDS)(self._encode_word)

    @override
    def encode(self, text: str, *, special: bool = True) -> list[int]:
        found: list[int] = []
        for part in (self.defined_and_control if special else self.defined)(text):
            if isinstance(part, int):
                found.append(part)
                continue
            words = [part]
            for cut in self._cuts:
                words = [word for longer in words for word in cut.findall(longer)]
            for word in words:
                found.extend(self._word(word))
        return found

    @override
    def piece(self, token: int) -> bytes:
        name, kind = self.name_of(token), self.kinds[token]
        if kind in (CONTROL, UNKNOWN):
            return b""
        if kind == USER_DEFINED:
            return name.encode()
        return bytes(self._bytes[ord(letter)] for letter in name)

    def _encode_word(self, word: str) -> tuple[int, ...]:
        # A lone surrogate has no UTF-8; it becomes what decoders put in its place.
        raw = word.encode("utf-8", errors="replace")
        letters = [self._letters[byte] for byte in raw]
        pieces = merge(letters, lambda a, b: self._ranks.get((a, b)))
        # Some vocabularies lack the rarest bytes. What has no token is left out, as other readers
        # of these files do; the unknown token of SmolLM2 would end the text.
        return tuple(self.ids[piece] for piece in pieces if piece in self.ids)

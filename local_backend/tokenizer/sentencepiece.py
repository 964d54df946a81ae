"""Pieces with scores, as SentencePiece has them: the pair with the best score is joined first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from local_backend._typing import override
from local_backend.errors import TokenizerError
from local_backend.tokenizer.merge import merge
from local_backend.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
)

_SPACE = "\u2581"
_KEPT_WORDS = 1 << 16


class SentencePieceTokenizer(Vocabulary):
    """The tokenizer of Gemma and its like.

    Args:
        metadata: Of the file.

    Raises:
        TokenizerError: The file has no scores, or neither tokens for bytes nor an unknown token.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        super().__init__(metadata)
        scores: list[float] = metadata.get("tokenizer.ggml.scores", [])
        if len(scores) != len(self.names):
            raise TokenizerError(f"the file has {len(self.names)} tokens and {len(scores)} scores")
        self._space_first = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
        self._ranks = {
            name: -scores[token]
            for token, name in enumerate(self.names)
            if self.kinds[token] == NORMAL
        }
        self._byte_ids = {
            int(name[3:5], 16): token
            for token, name in enumerate(self.names)
            if self.kinds[token] == BYTE
        }
        if len(self._byte_ids) != 256 and self.unknown is None:
            raise TokenizerError("the vocabulary has neither tokens for bytes nor an unknown token")
        self._bytes = {token: byte for byte, token in self._byte_ids.items()}
        self._cut = _borders(self._ranks)
        self._word = lru_cache(_KEPT_WORDS)(self._encode_word)

    @override
    def encode(self, text: str, *, special: bool = True) -> list[int]:
        found: list[int] = []
        is_first = True
        # The sign for a space and a space are one to this kind of tokenizer.
        text = text.replace(_SPACE, " ")
        for part in (self.defined_and_control if special else self.defined)(text):
            if isinstance(part, int):
                found.append(part)
            else:
                written = part.replace(" ", _SPACE)
                if is_first and self._space_first:
                    written = _SPACE + written
                for word in self._cut.split(written):
                    found.extend(self._word(word))
            is_first = False
        return found

    @override
    def piece(self, token: int) -> bytes:
        name, kind = self.name_of(token), self.kinds[token]
        if kind in (CONTROL, UNKNOWN):
            return b""
        if kind == BYTE:
            return bytes([self._bytes[token]])
        if kind == USER_DEFINED:
            return name.encode()
        return name.replace(_SPACE, " ").encode()

    def _encode_word(self, word: str) -> tuple[int, ...]:
        found: list[int] = []
        for piece in merge(list(word), lambda a, b: self._ranks.get(a + b)):
            if piece in self._ranks:
                found.append(self.ids[piece])
            else:
                found.extend(self._spelled(piece))
        return tuple(found)

    def _spelled(self, piece: str) -> list[int]:
        """Tokens of the bytes of a character that has none of its own."""
        if len(self._byte_ids) == 256:
            return [self._byte_ids[byte] for byte in piece.encode("utf-8", errors="replace")]
        if self.unknown is None:
            raise TokenizerError("the vocabulary has no unknown token")
        return [self.unknown]


def _borders(names: Mapping[str, float]) -> re.Pattern[str]:
    """Matches where no piece can reach across, so that words can be joined by themselves.

    That is before a space, unless some piece has a space after this very character.
    """
    before = {name[i - 1] for name in names for i in range(1, len(name)) if name[i] == _SPACE}
    kept = "".join(map(re.escape, sorted(before)))
    return re.compile(f"(?<=[^{kept}])(?={_SPACE})" if kept else f"(?={_SPACE})(?!^)")

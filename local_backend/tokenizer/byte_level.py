"""A tokenizer without files: a token a byte, and a few for control."""

from __future__ import annotations

from collections.abc import Iterable

from local_backend.errors import TokenizerError
from local_backend.tokenizer.special import NameFinder

CONTROL = ("<|begin|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|image|>")
# A multiple of 8, which products of matrices like.
VOCABULARY = 264
_BYTES = 256

TEMPLATE = (
    "<|begin|>"
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


class ByteTokenizer:
    """Ids below 256 are bytes of UTF-8."""

    vocab_size = VOCABULARY
    adds_bos = False

    def __init__(self) -> None:
        self._ids = {name: _BYTES + index for index, name in enumerate(CONTROL)}
        self._finder = NameFinder(self._ids)
        self.bos: int | None = self._ids["<|begin|>"]
        self.stops = frozenset({self._ids["<|end|>"]})
        self.special = frozenset(range(_BYTES, VOCABULARY))

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """See :class:`local_backend.tokenizer.base.Tokenizer`."""
        if not special:
            return list(text.encode("utf-8", errors="replace"))
        found: list[int] = []
        for part in self._finder(text):
            if isinstance(part, int):
                found.append(part)
            else:
                found.extend(part.encode("utf-8", errors="replace"))
        return found

    def id_of(self, name: str) -> int | None:
        """The id of a control token by its name."""
        return self._ids.get(name)

    def name_of(self, token: int) -> str:
        """The name of a token: its control name, or the byte in hexadecimal."""
        self._check(token)
        if token < _BYTES:
            return f"<0x{token:02X}>"
        place = token - _BYTES
        return CONTROL[place] if place < len(CONTROL) else f"<|unused{place}|>"

    def piece(self, token: int) -> bytes:
        """The byte of a token; none for control tokens."""
        self._check(token)
        return bytes([token]) if token < _BYTES else b""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8 become replacement characters."""
        return b"".join(map(self.piece, tokens)).decode("utf-8", errors="replace")

    def _check(self, token: int) -> None:
        if not 0 <= token < VOCABULARY:
            raise TokenizerError(f"there is no token {token}; ids go up to {VOCABULARY - 1}")

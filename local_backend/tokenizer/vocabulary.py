"""What the vocabulary in a file of weights says, whatever the tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from local_backend.errors import TokenizerError
from local_backend.tokenizer.special import NameFinder

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_ENDS = ("<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>")


class Vocabulary:
    """Names, kinds and special ids.

    Args:
        metadata: Of the file.

    Raises:
        TokenizerError: The file has no vocabulary, or lists that do not fit each other.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        names: list[str] = metadata.get("tokenizer.ggml.tokens", [])
        kinds: list[int] = metadata.get("tokenizer.ggml.token_type", [NORMAL] * len(names))
        if not names or len(kinds) != len(names):
            raise TokenizerError(
                f"the file has {len(names)} tokens and {len(kinds)} kinds of tokens"
            )
        self.names = names
        self.kinds = kinds
        self.ids = {name: token for token, name in enumerate(names)}
        self.bos = self._id(metadata, "bos")
        self.adds_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", False))
        self.unknown = self._id(metadata, "unknown")
        self.special = frozenset(i for i, kind in enumerate(kinds) if kind in (CONTROL, UNKNOWN))
        ends = (self._id(metadata, "eos"), *map(self.ids.get, _ENDS))
        self.stops = frozenset(i for i in ends if i is not None and i in self.special)
        defined = {name: i for i, name in enumerate(names) if kinds[i] == USER_DEFINED}
        control = {name: i for i, name in enumerate(names) if i in self.special}
        self.defined = NameFinder(defined)
        self.defined_and_control = NameFinder(defined | control)

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self.names)

    def id_of(self, name: str) -> int | None:
        """The id of a control token by its name."""
        found = self.ids.get(name)
        return found if found in self.special else None

    def name_of(self, token: int) -> str:
        """The name of a token as the vocabulary spells it."""
        if not 0 <= token < len(self.names):
            raise TokenizerError(f"there is no token {token}; ids go up to {len(self.names) - 1}")
        return self.names[token]

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of a text; see :class:`local_backend.tokenizer.base.Tokenizer`."""
        raise NotImplementedError

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for; none for control tokens."""
        raise NotImplementedError

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8 become replacement characters."""
        return b"".join(map(self.piece, tokens)).decode("utf-8", errors="replace")

    def _id(self, metadata: Mapping[str, Any], which: str) -> int | None:
        found = metadata.get(f"tokenizer.ggml.{which}_token_id")
        if found is None:
            return None
        if not 0 <= found < len(self.names):
            raise TokenizerError(f"the {which} token is {found}, which is no id")
        return int(found)

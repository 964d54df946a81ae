"""Reads the tokenizer that a file of weights brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from local_backend.errors import TokenizerError
from local_backend.tokenizer.base import Tokenizer
from local_backend.tokenizer.bpe import BpeTokenizer
from local_backend.tokenizer.sentencepiece import SentencePieceTokenizer


def read_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Read it from the metadata of a file.

    Raises:
        TokenizerError: The file has none, or one of a kind that is not known.
    """
    kinds = {"gpt2": BpeTokenizer, "llama": SentencePieceTokenizer}
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in kinds:
        raise TokenizerError(f"tokenizer {kind!r} is unknown; there are: {', '.join(kinds)}")
    return kinds[kind](metadata)

"""Little vocabularies, as files of weights bring them."""

from __future__ import annotations

from typing import Any

NORMAL, UNKNOWN, CONTROL, DEFINED, BYTE = 1, 2, 3, 4, 6
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def byte_pairs(**change: Any) -> dict[str, Any]:
    """Every byte that is a letter, digit or space, some pairs, two control tokens."""
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    kinds = [CONTROL] * 3
    bytes_ = [*LETTERS, *"0123456789.,!'<|>_\u0120\u010a\u00c3\u00a9"]
    merged = ["th", "the", "\u0120the", "he", "\u0120\u0120", "\u0120t", "\u00c3\u00a9", "12"]
    pairs = [
        "t h",
        "th e",
        "\u0120 the",
        "h e",
        "\u0120 \u0120",
        "\u0120 t",
        "\u00c3 \u00a9",
        "1 2",
    ]
    names += bytes_ + merged
    kinds += [NORMAL] * (len(bytes_) + len(merged))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": pairs,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    } | change


def pieces(**change: Any) -> dict[str, Any]:
    """Pieces with scores, all bytes, runs of spaces and lines that a user defined."""
    entries: list[tuple[str, float, int]] = [
        *(("<pad>", 0.0, CONTROL), ("<eos>", 0.0, CONTROL), ("<bos>", 0.0, CONTROL)),
        *(("<unk>", 0.0, UNKNOWN), ("<end_of_turn>", 0.0, CONTROL)),
        *((f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)),
        *(("\n", 0.0, DEFINED), ("\n\n", 0.0, DEFINED), ("  ", 0.0, DEFINED)),
        *((letter, -100.0 - i, NORMAL) for i, letter in enumerate(LETTERS + "\u2581>")),
        *(("th", -3.0, NORMAL), ("he", -2.0, NORMAL), ("the", -1.0, NORMAL)),
        *(("\u2581t", -4.0, NORMAL), ("\u2581the", -5.0, NORMAL), ("aa", -6.0, NORMAL)),
        (">\u2581", -0.5, NORMAL),
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [name for name, _, _ in entries],
        "tokenizer.ggml.scores": [score for _, score, _ in entries],
        "tokenizer.ggml.token_type": [kind for _, _, kind in entries],
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
    } | change

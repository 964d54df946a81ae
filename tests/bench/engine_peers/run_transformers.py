"""``transformers`` in the protocol: one static batch, its own cache; the peers' interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from protocol import Times, main, timed


class Transformers:
    """Passes with ``DynamicCache``; a hit is a cache that is cut back to its stem."""

    name = f"transformers {transformers.__version__}, bf16"

    def __init__(self, weights: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            f"{weights}/hf", dtype=torch.bfloat16, attn_implementation="sdpa"
        ).eval()
        self._held: list[int] = []
        self._cache: Any = None

    @torch.inference_mode()
    def _pass(self, tokens: Sequence[Sequence[int]], cache: Any) -> list[int]:
        scores = self._model(
            torch.tensor(tokens), past_key_values=cache, use_cache=True, logits_to_keep=1
        ).logits
        return scores[:, -1].argmax(-1).tolist()

    def prompt(self, tokens: Sequence[int]) -> None:
        held = self._held
        known = next(
            (i for i, (a, b) in enumerate(zip(held, tokens, strict=False)) if a != b),
            min(len(held), len(tokens)),
        )
        if known:
            self._cache.crop(known)
        else:
            self._cache = transformers.DynamicCache()
        self._pass([tokens[known:]], self._cache)
        self._held = list(tokens)

    def decode(self, prompts: Sequence[Sequence[int]], steps: int) -> Times:
        cache = transformers.DynamicCache()
        last = self._pass(prompts, cache)

        def run() -> None:
            nonlocal last
            for _ in range(steps):
                last = self._pass([[token] for token in last], cache)

        return timed(run)

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        cache, found, ahead = transformers.DynamicCache(), [], list(tokens)
        for _ in range(count):
            found += self._pass([ahead], cache)
            ahead = found[-1:]
        return found


if __name__ == "__main__":
    main(Transformers)

"""The local engine in the protocol: ``build_engine`` as it comes, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from protocol import Times, main, timed

from local_backend.engine.api import GenerationRequest, Piece
from local_backend.engine.build import build_engine
from local_backend.engine.config import EngineConfig
from local_backend.kernels.threads import set_threads
from local_backend.layers.kernel_operators import KernelOperators
from local_backend.models.registry import load


class Endless:
    """A tokenizer whose answers never end by themselves."""

    stops = frozenset[int]()

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


class Ours:
    """Exact compiled kernels, 2 GiB of pages as the peers have."""

    name = "cacheaudit, bf16"

    def __init__(self, weights: str, threads: int) -> None:
        torch.set_num_threads(1)
        set_threads(threads)
        source = (Path(weights) / "source").read_text().strip()
        loaded = load(source, "bfloat16", operators=KernelOperators())
        config = EngineConfig(memory_bytes=2 << 30)
        self._engine = build_engine(loaded.model, Endless(loaded.tokenizer), config)  # type: ignore[arg-type]
        self._number = 0

    def _submit(self, tokens: Sequence[int], count: int) -> None:
        self._number += 1
        request = GenerationRequest(name=str(self._number), tokens=tuple(tokens), max_tokens=count)
        self._engine.submit(request)

    def _finish(self) -> list[int]:
        found = []
        while self._engine.has_work:
            found += [event.token for event in self._engine.step() if isinstance(event, Piece)]
        return found

    def prompt(self, tokens: Sequence[int]) -> None:
        self._submit(tokens, 1)
        self._finish()

    def decode(self, prompts: Sequence[Sequence[int]], steps: int) -> Times:
        def run(count: int) -> None:
            for tokens in prompts:
                self._submit(tokens, count)
            self._finish()

        run(1)
        first = timed(lambda: run(1))
        whole = timed(lambda: run(steps + 1))
        return whole[0] - first[0], whole[1] - first[1]

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        self._submit(tokens, count)
        return self._finish()


if __name__ == "__main__":
    main(Ours)

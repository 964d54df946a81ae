"""llama.cpp through the ``xllamacpp`` binding in the protocol; the peers' interpreter.

The binding's own way of asking gives text only, so the ids of the likeliest tokens come by HTTP.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import xllamacpp
from protocol import Times, main, timed

FILE = os.environ.get("LLAMACPP_FILE", "bf16.gguf")


class LlamaCpp:
    """The binding's server inside this process; what is timed is asked without HTTP.

    Its bf16 products are so slow that eight prompts side by side would take half an hour.
    """

    batches = (1,)

    name = f"llama.cpp (xllamacpp), {FILE}"

    def __init__(self, weights: str, threads: int) -> None:
        params = xllamacpp.CommonParams()
        path = f"{weights}/{FILE}"
        params.model.path = path if FILE.endswith("bf16.gguf") else _source(weights)
        params.n_parallel = 8
        params.n_ctx = 8 * 8192
        params.n_gpu_layers = 0
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        params.warmup = False
        params.cache_prompt = True
        self._server = xllamacpp.Server(params)
        self._pool = ThreadPoolExecutor(8)

    def _one(self, tokens: Sequence[int], count: int) -> None:
        answer = self._server.handle_completions(_asked(tokens, count))
        if isinstance(answer, str | bytes):
            answer = json.loads(answer)
        if "error" in answer:
            raise RuntimeError(str(answer["error"])[:300])
        made = answer["usage"]["completion_tokens"]
        if made != count:
            raise RuntimeError(f"{made} tokens instead of {count}")

    def prompt(self, tokens: Sequence[int]) -> None:
        self._one(tokens, 1)

    def decode(self, prompts: Sequence[Sequence[int]], steps: int) -> Times:
        def run(count: int) -> None:
            list(self._pool.map(lambda tokens: self._one(tokens, count), prompts))

        run(1)
        first = timed(lambda: run(1))
        whole = timed(lambda: run(steps + 1))
        return whole[0] - first[0], whole[1] - first[1]

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        request = urllib.request.Request(
            f"{self._server.listening_address}/completion",
            json.dumps(_asked(tokens, count)).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return list(json.load(answer)["tokens"])


def _asked(tokens: Sequence[int], count: int) -> dict[str, Any]:
    return {
        "prompt": list(tokens),
        "n_predict": count,
        "temperature": 0.0,
        "cache_prompt": True,
        "ignore_eos": True,
        "return_tokens": True,
    }


def _source(weights: str) -> str:
    return (Path(weights) / "source").read_text().strip()


if __name__ == "__main__":
    main(LlamaCpp)

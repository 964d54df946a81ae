"""How an engine is set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from local_backend.errors import EngineConfigError
from local_backend.kvcache.caches import CACHES, POLICIES
from local_backend.kvcache.sequence import Container


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Sizes, limits and habits of an engine.

    Attributes:
        page_size: Tokens in a page.
        pages: How many pages each group of layers gets; a number for all, or one by group's name.
            None where ``memory_bytes`` decides.
        memory_bytes: Bytes for K and V of all groups together, split so that all hold equally many
            tokens. None where ``pages`` decides.
        step_tokens: Most tokens in one pass: one for each answer that grows, the rest for prompts.
            More than ``max_running``, so that prompts always advance.
        alone_tokens: Most tokens in one pass while no answer grows, so that none is held up: longer
            passes read the weights less often. None, or less: ``step_tokens``.
        max_running: Most requests that are computed side by side.
        max_waiting: Most requests beyond these; one more is turned away.
        context_length: Longest prompt and answer together; None for what the model is meant for.
        cache: Which prefix cache: ``radix``, ``hash`` or ``naive``.
        policy: Order of eviction: ``lru``, ``lfu`` or ``cost``.
        tails: Whether hits are exact to the token, by copying a part of a page.
        container: Whether a request gets its pages as it grows, or all at admission.
        share_in_flight: Whether a prompt that begins like one being computed waits for its pages.
        deterministic: Whether to refuse a model whose results depend on batching or caching.

    Raises:
        EngineConfigError: A value is out of range, or two contradict each other.
    """

    page_size: int = 16
    pages: Mapping[str, int] | int | None = None
    memory_bytes: int | None = None
    step_tokens: int = 512
    alone_tokens: int | None = 2048
    max_running: int = 64
    max_waiting: int = 256
    context_length: int | None = None
    cache: str = "radix"
    policy: str = "lru"
    tails: bool = True
    container: Container = Container.DYNAMIC
    share_in_flight: bool = True
    deterministic: bool = False

    def __post_init__(self) -> None:
        for name in ("page_size", "step_tokens", "max_running"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1")
        _require(self.max_waiting >= 0, "max_waiting must not be negative")
        _require(
            self.context_length is None or self.context_length >= 1,
            "context_length must be at least 1",
        )
        _require(
            self.step_tokens > self.max_running,
            f"step_tokens ({self.step_tokens}) must be more than max_running ({self.max_running})",
        )
        _require(
            self.alone_tokens is None or self.alone_tokens >= 1, "alone_tokens must be at least 1"
        )
        _require(
            self.pages is None or self.memory_bytes is None,
            "pages and memory_bytes both say how large the cache is; give one of them",
        )
        _require(self.cache in CACHES, f"cache must be one of {', '.join(sorted(CACHES))}")
        _require(self.policy in POLICIES, f"policy must be one of {', '.join(sorted(POLICIES))}")

    def pass_tokens(self, growing: int) -> int:
        """Most tokens in a pass in which a number of answers grow."""
        return self.step_tokens if growing else max(self.step_tokens, self.alone_tokens or 0)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise EngineConfigError(message)

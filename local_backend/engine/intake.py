"""Checks requests before anything is done for them. It only reads, so any thread may call it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_backend.engine.api import GenerationRequest, Sampling
from local_backend.errors import EngineRequestError, RequestTooLargeError
from local_backend.kvcache.keys import Namespace, TokenKey

if TYPE_CHECKING:
    from local_backend.engine.config import EngineConfig
    from local_backend.kvcache.manager import CacheManager
    from local_backend.models.base import Model


class Intake:
    """What a request must be to be taken.

    Args:
        model: Whose tokens they are.
        config: Limits.
        manager: Of the pages.
    """

    def __init__(self, model: Model, config: EngineConfig, manager: CacheManager) -> None:
        self._vocabulary = model.config.vocab_size
        self._namespace = (model.weights_id, model.numerics)
        self.pool_tokens = min(g.pool.total for g in manager.groups) * manager.page_size
        wanted = config.context_length or model.config.context_length
        self.model_tokens = min(wanted, model.config.context_length)
        self.context_length = min(self.model_tokens, self.pool_tokens)

    def key(self, request: GenerationRequest) -> TokenKey:
        """The prompt, with all that its K and V depend on."""
        weights, numerics = self._namespace
        namespace = Namespace(
            weights=weights,
            salt=request.salt or "",
            adapter=request.adapter or "",
            numerics=numerics,
        )
        return TokenKey(namespace, request.tokens, request.spans)

    def room(self, request: GenerationRequest) -> int:
        """Most tokens that the answer may have; it ends with the context at the latest."""
        return min(request.max_tokens, self.context_length - len(request.tokens))

    def check(self, request: GenerationRequest) -> None:
        """Check a request.

        Raises:
            EngineRequestError: It makes no sense.
            RequestTooLargeError: It is longer than the context or the cache.
        """
        tokens = request.tokens
        _require(len(tokens) > 0, request, "has no tokens")
        _require(
            set(map(type, tokens)) == {int} and min(tokens) >= 0 and max(tokens) < self._vocabulary,
            request,
            f"has token ids outside 0 to {self._vocabulary - 1}",
        )
        _require(request.max_tokens >= 0, request, "has negative max_tokens")
        _require(all(request.stop_sequences), request, "has an empty stop sequence")
        limit = request.hit_limit
        _require(limit is None or limit >= 0, request, "has a negative hit_limit")
        _check_sampling(request, request.sampling)
        _check_spans(request)
        self._check_length(request)

    def _check_length(self, request: GenerationRequest) -> None:
        wanted = len(request.tokens) + min(1, request.max_tokens)
        if wanted <= self.context_length:
            return
        is_pool = self.pool_tokens < self.model_tokens
        where = "the pages of the cache hold" if is_pool else "the context has"
        raise RequestTooLargeError(
            f"request {request.name!r} has {len(request.tokens)} tokens, and {where}"
            f" {self.context_length}, the answer included",
            "give the cache more pages, or shorten it" if is_pool else "shorten it",
        )


def _check_sampling(request: GenerationRequest, sampling: Sampling) -> None:
    _require(0.0 <= sampling.temperature < float("inf"), request, "has a temperature below 0")
    _require(0.0 < sampling.top_p <= 1.0, request, "has a top_p outside 0 to 1")
    _require(sampling.top_k is None or sampling.top_k >= 1, request, "has a top_k below 1")


def _check_spans(request: GenerationRequest) -> None:
    end = 0
    for span in request.spans:
        is_inside = end <= span.start and span.length > 0
        end = span.start + span.length
        is_inside = is_inside and end <= len(request.tokens)
        _require(is_inside, request, "has media spans that overlap or leave the prompt")


def _require(condition: bool, request: GenerationRequest, problem: str) -> None:
    if not condition:
        raise EngineRequestError(f"request {request.name!r} {problem}")

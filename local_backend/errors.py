"""Roots of the exceptions that the engine raises on purpose.

The engine may not import the auditor, so it has a tree of its own; the kernels, which stand below
the engine, have theirs in ``local_backend.kernels.errors``. ``error_code`` is stable and is what
callers branch on; messages may change.
"""

from __future__ import annotations


class LocalBackendError(Exception):
    """Root of the tree.

    Args:
        message: What happened and on which item.
        hint: What the reader can do about it.
    """

    error_code = "local_backend_error"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            self.add_note(hint)


class CacheError(LocalBackendError):
    """Something about the KV cache."""

    error_code = "cache_error"


class OutOfPagesError(CacheError):
    """More pages were asked for than are free or may be evicted; nothing was changed."""

    error_code = "out_of_pages"


class RequestTooLargeError(CacheError):
    """A request can never fit, however long it waits."""

    error_code = "request_too_large"


class QueueFullError(CacheError):
    """As many requests wait as may wait."""

    error_code = "queue_full"


class CacheStateError(CacheError):
    """A call that the state of a sequence, a pin or a cache forbids."""

    error_code = "cache_state"


class CacheIntegrityError(CacheError):
    """The books of a cache contradict each other: a bug."""

    error_code = "cache_integrity"


class UnsupportedSpecError(CacheError):
    """A model asks for a kind of layer state that this version does not manage."""

    error_code = "unsupported_spec"


class TierError(CacheError):
    """An offload tier cannot be reached or set up. Single pages that fail are misses instead."""

    error_code = "tier_error"


class RecordError(TierError):
    """A stored page cannot be used; ``reason`` says why."""

    error_code = "record_error"

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class SnapshotError(CacheError):
    """A snapshot is torn, of another version, or of another memory layout."""

    error_code = "snapshot_error"


class ModelError(LocalBackendError):
    """Something about a model, its weights or its tokenizer."""

    error_code = "model_error"


class MissingPackageError(ModelError):
    """A package is not installed; the hint holds the command that installs it."""

    error_code = "missing_package"


class UnknownModelError(ModelError):
    """No model has this name, or no family reads this kind of file."""

    error_code = "unknown_model"


class WeightsError(ModelError):
    """A file of weights is damaged, or does not hold what its model needs."""

    error_code = "weights_error"


class TokenizerError(ModelError):
    """A tokenizer cannot be built, or was given something that it cannot encode or decode."""

    error_code = "tokenizer_error"


class TemplateError(ModelError):
    """A chat template refuses the messages."""

    error_code = "template_error"


class ForwardError(ModelError):
    """A batch that does not fit the model or the memory it is to run on."""

    error_code = "forward_error"


class EngineError(LocalBackendError):
    """Something about running requests."""

    error_code = "engine_error"


class EngineConfigError(EngineError):
    """A setting of the engine is out of range, or two contradict each other."""

    error_code = "engine_config"


class EngineRequestError(EngineError):
    """A request that makes no sense; which part, and why."""

    error_code = "engine_request"


class EngineBusyError(EngineError):
    """As many requests run and wait as may; the same request may be sent again later."""

    error_code = "engine_busy"


class EngineClosedError(EngineError):
    """The engine takes no more requests."""

    error_code = "engine_closed"


class NotDeterministicError(EngineError):
    """A model cannot give equal bits however its tokens are batched, cut and cached."""

    error_code = "not_deterministic"


class SamplingError(EngineError):
    """No token can be drawn from the scores of a model: they are no numbers."""

    error_code = "sampling_error"


class SoakError(LocalBackendError):
    """A soak could not run; what it finds are problems in its result, not errors."""

    error_code = "soak_error"

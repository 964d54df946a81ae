"""Puts an engine together: pages for the model's layers, their cache, the engine on top."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from local_backend.engine.config import EngineConfig
from local_backend.engine.core import Engine
from local_backend.errors import EngineConfigError, NotDeterministicError
from local_backend.kvcache.coordinator import make_groups
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.specs import GroupSpec, group_layers
from local_backend.layers.memory import KVMemory

if TYPE_CHECKING:
    from local_backend.kvcache.offload import Offload
    from local_backend.models.base import Model
    from local_backend.tokenizer.base import Tokenizer

_DEFAULT_BYTES = 1 << 30


def build_engine(
    model: Model,
    tokenizer: Tokenizer,
    config: EngineConfig | None = None,
    *,
    offload: Offload | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Engine:
    """Build an engine.

    The number of threads that torch uses is a matter of the process and is left as it is; a
    process that computes with the compiled kernels calls ``torch.set_num_threads(1)`` first.

    Args:
        model: What to run.
        tokenizer: Its tokenizer.
        config: Sizes, limits and habits; as they come where not given.
        offload: Tiers to move pages to and to restore them from.
        clock: Seconds; for deadlines and times in events.

    Raises:
        EngineConfigError: The pages do not fit the model.
        NotDeterministicError: The configuration asks for equal bits and the model cannot give them.
        UnsupportedSpecError: The model keeps something else than K and V.
    """
    chosen = config or EngineConfig()
    specs = group_layers(model.specs, chosen.page_size)
    pages = count_pages(specs, chosen, model.config.context_length)
    memory = KVMemory(model.specs, specs, pages)
    groups = make_groups(
        specs,
        pages,
        cache=chosen.cache,
        policy=chosen.policy,
        tails=chosen.tails,
        stores=memory.stores,
    )
    manager = CacheManager(groups, offload=offload)
    engine = Engine(model, tokenizer, chosen, manager, memory, clock=clock)
    if chosen.deterministic and not engine.exactness.is_exact:
        raise NotDeterministicError(
            f"results of {model.numerics} depend on batching or caching:"
            f" {engine.exactness.describe()}",
            "load the model with exact operators, or set deterministic to False",
        )
    return engine


def count_pages(
    specs: Sequence[GroupSpec], config: EngineConfig, context_length: int
) -> dict[str, int]:
    """How many pages each group gets.

    Args:
        specs: The groups.
        config: Says so by number or by bytes; where it does neither, 1 GiB is shared out, or less
            where four contexts of the greatest length need less.
        context_length: What the model is meant for.

    Raises:
        EngineConfigError: A group is not named or unknown, or gets no page.
    """
    names = [spec.name for spec in specs]
    if isinstance(config.pages, int):
        found = dict.fromkeys(names, config.pages)
    elif config.pages is not None:
        if set(config.pages) != set(names):
            raise EngineConfigError(
                f"pages are given for {sorted(config.pages)}; the groups of this model are {names}"
            )
        found = dict(config.pages)
    else:
        each = sum(spec.page_bytes for spec in specs)
        count = (config.memory_bytes or _DEFAULT_BYTES) // each
        if config.memory_bytes is None:
            length = min(config.context_length or context_length, context_length)
            count = min(count, 4 * -(-length // config.page_size))
        found = dict.fromkeys(names, count)
    if any(count < 1 for count in found.values()):
        raise EngineConfigError(
            f"the cache would have no page: {found}", "give it more memory or pages"
        )
    return found

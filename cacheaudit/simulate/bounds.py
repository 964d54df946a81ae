"""The two ends of the scale: no cache, and one that forgets nothing and writes nothing in vain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cacheaudit.simulate.request import Outcome, SimRequest, known_prefix
from cacheaudit.simulate.run import SimCall


def without_cache(rows: Iterable[SimCall]) -> list[Outcome | None]:
    """Send every token of every simulated call uncached."""
    return [
        None
        if row.predicted is None
        else Outcome(
            read=0,
            writes={},
            uncached=row.predicted.read + row.predicted.written + row.predicted.uncached,
        )
        for row in rows
    ]


def ideal(requests: Sequence[SimRequest | None], ttl: str) -> list[Outcome | None]:
    """Read every token of a prefix that was sent before; write what a later request repeats.

    Lifetimes, lookback, minimum size and the wait for a first response are left out of account;
    what scopes and models keep apart stays apart. No request can read more.

    Args:
        requests: In order of start; ``None`` for those that cannot be simulated.
        ttl: Lifetime that writes are billed at.
    """
    later: dict[str, dict[bytes, None]] = {}
    repeated: list[int] = []
    for request in reversed(requests):
        if request is None:
            repeated.append(0)
            continue
        seen = later.setdefault(request.scope, {})
        repeated.append(_learn(request, seen))
    repeated.reverse()
    earlier: dict[str, dict[bytes, None]] = {}
    outcomes: list[Outcome | None] = []
    for request, blocks in zip(requests, repeated, strict=True):
        if request is None:
            outcomes.append(None)
            continue
        read = _size(request, _learn(request, earlier.setdefault(request.scope, {})))
        kept = max(read, _size(request, blocks))
        writes = {ttl: kept - read} if kept > read else {}
        outcomes.append(Outcome(read=read, writes=writes, uncached=request.total - kept))
    return outcomes


def _learn(request: SimRequest, seen: dict[bytes, None]) -> int:
    """Count the leading content blocks seen before, and add the others."""
    digests = request.digests
    shared = known_prefix(digests, seen)
    seen.update(dict.fromkeys(digests[shared:]))
    return shared


def _size(request: SimRequest, blocks: int) -> int:
    return request.sizes[blocks - 1] if blocks else 0

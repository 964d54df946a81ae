"""How large a replay gets, and how far it is worth scaling down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cacheaudit.jobs.replaying.body import scaled
from cacheaudit.jobs.replaying.filler import follow, root
from cacheaudit.jobs.replaying.plan import Step

# The little decoder computes 10,000 to 20,000 tokens a second up to this length.
_COMFORTABLE_PROMPT: Final = 10_000
_COMFORTABLE_WORK: Final = 50_000
_NICE: Final = (1, 2, 5)
# JSON around a tool or a tool call; a token for the speaker and one to answer.
_JSON_ROOM: Final = 96
_ROOM: Final = 32


class Extent:
    """Tokens that some steps need at a scale.

    Args:
        steps: What is sent.
        scale: Recorded tokens that one token stands for.

    Attributes:
        longest: Of the longest prompt, with room for its answer.
        distinct: That an engine has to hold so that nothing is evicted.
    """

    def __init__(self, steps: Iterable[Step], scale: int) -> None:
        self.longest = self.distinct = 0
        seen: set[bytes] = set()
        for step in steps:
            total, prefix = 0, root() + step.scope.encode()
            for block, size in zip(step.blocks, step.sizes, strict=True):
                tokens = scaled(size, scale)
                if block.kind in ("tool", "tool_use", "image"):
                    tokens = max(tokens, _JSON_ROOM)
                tokens += 2
                total += tokens
                prefix = follow(prefix, block.digest)
                if prefix not in seen:
                    seen.add(prefix)
                    self.distinct += tokens
            self.longest = max(self.longest, total + _ROOM)
            self.distinct += _ROOM


def comfortable(steps: Sequence[Step]) -> int:
    """Choose a scale, 1, 2, 5, 10 …, at which the local engine needs seconds, not minutes."""
    if not steps:
        return 1
    longest = max(step.sums[-1] for step in steps)
    work = _work(steps)
    factor = 1
    while True:
        for nice in _NICE:
            scale = nice * factor
            if longest <= _COMFORTABLE_PROMPT * scale and work <= _COMFORTABLE_WORK * scale:
                return scale
        factor *= 10


def _work(steps: Iterable[Step]) -> int:
    """Recorded tokens that are computed where everything that was sent before is still held."""
    seen: set[bytes] = set()
    work = 0
    for step in steps:
        prefix = root()
        for block, size in zip(step.blocks, step.sizes, strict=True):
            prefix = follow(prefix, block.digest)
            if prefix not in seen:
                seen.add(prefix)
                work += size
    return work

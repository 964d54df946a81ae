"""Which cache markers a request has, and which combinations are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from local_backend.rules.base import TTLS, Block, MarkerError, Prompt

MOST = 4


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker.

    Attributes:
        index: Of the content block that it stands on.
        ttl: Lifetime that it asks for.
    """

    index: int
    ttl: str


def marks_of(prompt: Prompt) -> list[Mark]:
    """All markers of a request in the order of rendering, the automatic one included.

    Raises:
        MarkerError: There are too many, one stands where none may, or lifetimes are out of order.
    """
    found = [_explicit(i, block) for i, block in enumerate(prompt.blocks) if block.ttl is not None]
    if len(found) > MOST:
        raise MarkerError(
            prompt.blocks[found[MOST].index].path,
            f"at most {MOST} blocks may have cache_control; found {len(found)}",
        )
    if prompt.automatic is not None:
        _add_automatic(found, prompt.blocks, _known(prompt.automatic, "cache_control.ttl"))
    shorter: Mark | None = None
    for mark in found:
        if shorter is not None and TTLS[mark.ttl] > TTLS[shorter.ttl]:
            raise MarkerError(
                prompt.blocks[mark.index].path or "cache_control",
                f"a block with ttl {mark.ttl} must not come after one with ttl {shorter.ttl}"
                " (order: tools, system, messages)",
            )
        shorter = mark
    return found


def _explicit(index: int, block: Block) -> Mark:
    if not block.markable:
        raise MarkerError(block.path, f"cache_control cannot be set for this block ({block.kind})")
    return Mark(index, _known(block.ttl or "", f"{block.path}.cache_control.ttl"))


def _known(ttl: str, path: str) -> str:
    if ttl not in TTLS:
        raise MarkerError(path, f"must be one of {', '.join(TTLS)}")
    return ttl


def _add_automatic(found: list[Mark], blocks: Sequence[Block], ttl: str) -> None:
    """Put the automatic marker on the last block that may bear one."""
    target = next((i for i in reversed(range(len(blocks))) if blocks[i].markable), None)
    if found and found[-1].index == target:
        if found[-1].ttl != ttl:
            raise MarkerError(
                "cache_control", f"the last block has cache_control with ttl {found[-1].ttl}"
            )
        return
    if len(found) == MOST:
        raise MarkerError(
            "cache_control",
            f"uses one of the {MOST} places for cache_control, and all are taken",
        )
    if target is not None:
        found.append(Mark(target, ttl))

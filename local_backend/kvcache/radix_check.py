"""Whether a radix tree is what its counters and links say."""

from __future__ import annotations

from collections.abc import Sequence

from local_backend.kvcache.base import require
from local_backend.kvcache.radix_node import Node


def check_tree(
    nodes: Sequence[Node],
    step: int,
    count: int,
    cached: int,
    evictable: int,
    queued: int,
    idle_ends: int | None,
) -> None:
    """Compare a tree with its counters.

    Args:
        nodes: All, with the starts of namespaces.
        step: Bytes of a page.
        count: Nodes that hold pages.
        cached: Pages in all of them.
        evictable: Pages in unpinned ones.
        queued: Candidates for eviction.
        idle_ends: Idle pages that never became full; None where continuations are not ordered.

    Raises:
        CacheIntegrityError: Something contradicts.
    """
    holding = [node for node in nodes if node.parent is not None]
    require(len(holding) == count, "the number of nodes is wrong")
    ends = [end for node in nodes for end in node.ends.values()]
    pages = sum(len(node.pages) for node in holding)
    require(pages + len(ends) == cached, "the number of pages is wrong")
    idle = [node for node in holding if node.lock == 0]
    loose = sum(1 for end in ends if end.lock == 0)
    pages = sum(len(node.pages) for node in idle)
    require(pages + loose == evictable, "evictable pages are miscounted")
    require(loose == (idle_ends or 0), "idle ends are miscounted")
    leaves = [node for node in idle if not node.children]
    require(all(node.ticket for node in leaves), "an idle leaf is no candidate")
    require(sum(1 for node in holding if node.ticket) == queued, "candidates are miscounted")
    require(queued == len(leaves), "a node is a candidate that is in use or has continuations")
    for node in nodes:
        _check_node(node, step)
        order = [] if idle_ends is None else sorted([*node.children, *node.ends])
        require([*node.order] == order, "the order of children is wrong")
        for name, end in node.ends.items():
            _check_end(name, end, node, step)


def _check_end(name: bytes, end: Node, parent: Node, step: int) -> None:
    filed = name == end.name == end.first_key(step)
    require(end.parent is parent and filed, "an end is filed wrongly")
    require(0 < len(end.data) < step and len(end.pages) == 1, "an end is no part of one page")
    require(not (end.children or end.ends or end.ticket), "an end is continued or a candidate")
    require(0 <= end.lock <= parent.lock, "an end is pinned and its parent is not")


def _check_node(node: Node, step: int) -> None:
    parent = node.parent
    require(node.lock >= 0, "a node was unpinned too often")
    require(len(node.data) == len(node.pages) * step, "a node has not as many pages as tokens")
    if parent is None:
        require(not node.pages, "the start of a namespace holds pages")
        used = bool(node.children or node.ends) or node.lock > 0
        require(used, "an empty namespace was kept")
        return
    require(len(node.pages) > 0, "a node is empty")
    filed = node.name == node.first_key(step) and parent.children.get(node.name) is node
    require(filed, "a node is filed wrongly")
    require(node.start == parent.start + len(parent.pages), "a node begins at the wrong page")
    require(node.lock <= parent.lock, "a node is pinned and its parent is not")
    require(all(page < len(node.pages) for page in node.extras), "an extra has no page")
    require(len(node.chain) <= len(node.pages), "a node has more identities than pages")

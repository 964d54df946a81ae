"""A radix tree as a list of stretches, which is what a snapshot keeps."""

from __future__ import annotations

from collections.abc import Iterable

from local_backend.kvcache.base import Segment
from local_backend.kvcache.radix_node import Node


def segments_of(nodes: Iterable[Node]) -> list[Segment]:
    """All stretches, parents before their continuations.

    Args:
        nodes: Likewise, with the starts of namespaces.
    """
    found: list[Segment] = []
    places: dict[int, int] = {}
    roots: dict[int, bytes] = {}
    for node in nodes:
        if node.parent is None:
            places[id(node)], roots[id(node)] = -1, node.chain[0]
            continue
        parent, root = places[id(node.parent)], roots[id(node.parent)]
        places[id(node)], roots[id(node)] = len(found), root
        found.append(
            Segment(parent, root, node.data, node.pages[:], node.stamp, node.hits, node.extras)
        )
    return found

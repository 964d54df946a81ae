"""Pages of a radix tree that never became full: they hang at the end of a node, to be copied from.

Such a page is a node of its own with one page and fewer tokens than a page has. It is no child:
nothing continues it, and it does not keep its parent from being evicted next.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from itertools import islice

from local_backend.kvcache.compare import branch_key, common_tokens, nearest, within
from local_backend.kvcache.keys import TOKEN_BYTES, PageExtra
from local_backend.kvcache.radix_node import NO_EXTRAS, Node


def near(node: Node, wanted: bytes) -> list[tuple[bytes, Node]]:
    """What goes on behind a node, as far as it may have the longest common beginning."""
    found = []
    for name in nearest(node.order, wanted):
        other = node.children.get(name) or node.ends.get(name)
        if other is not None:
            found.append((name, other))
    return found


class Ends:
    """All of one tree; the idle ones in the order in which they were last used.

    Args:
        step: Bytes of a whole page.

    Attributes:
        idle: Those that nobody uses; others only read it.
    """

    __slots__ = ("_step", "idle")

    def __init__(self, step: int) -> None:
        self._step = step
        self.idle: OrderedDict[int, Node] = OrderedDict()

    def add(
        self, node: Node, data: bytes, extra: PageExtra | None, page: int, stamp: int
    ) -> list[Node] | None:
        """Hang a page behind a node.

        Args:
            node: What it continues.
            data: Its tokens.
            extra: What distinguishes it beyond them.
            page: The page.
            stamp: Now.

        Returns:
            Idle ones that it covers, already taken out; None where the tree has as much already.
        """
        wanted = branch_key(data, extra)
        tokens = len(data) // TOKEN_BYTES
        for _, other in near(node, wanted):
            theirs, beyond = other.data[: self._step], other.extras.get(0)
            if common_tokens(data, extra, theirs, beyond) == tokens:
                return None
        gone = self.covered(node, data, extra)
        extras = NO_EXTRAS if extra is None else {0: extra}
        end = Node(data, array("i", [page]), node, stamp, extras, wanted)
        node.put_end(end)
        self.idle[id(end)] = end
        return gone

    def covered(self, node: Node, page: bytes, extra: PageExtra | None) -> list[Node]:
        """Take out idle ones that are the beginning of a page which comes in their place."""
        gone = []
        for tokens in range(1, len(page) // TOKEN_BYTES) if node.ends else ():
            name = branch_key(page[: tokens * TOKEN_BYTES], within(extra, tokens))
            end = node.ends.get(name)
            if end is not None and end.lock == 0:
                self._take_out(end, node)
                gone.append(end)
        return gone

    def oldest(self, count: int) -> list[Node]:
        """Take out up to as many idle ones, those first whose last use is longest ago."""
        gone = list(islice(self.idle.values(), count))
        for end in gone:
            if end.parent is not None:
                self._take_out(end, end.parent)
        return gone

    def _take_out(self, end: Node, parent: Node) -> None:
        parent.take_end(end)
        del self.idle[id(end)]

    def use(self, node: Node) -> None:
        """A node is about to be pinned."""
        self.idle.pop(id(node), None)

    def leave(self, end: Node) -> None:
        """Nobody uses it any more."""
        self.idle[id(end)] = end

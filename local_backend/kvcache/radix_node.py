"""One node of the radix tree."""

from __future__ import annotations

from array import array

from local_backend.kvcache.compare import branch_key
from local_backend.kvcache.evict import Entry
from local_backend.kvcache.keys import PageExtra, page_key


class Node(Entry):
    """One stretch.

    Attributes:
        data: Its tokens.
        pages: Its pages.
        start: Pages before it.
        parent: What it continues; None for the start of a namespace, which holds no pages.
        children: Continuations by their first page.
        order: The keys of ``children`` and ``ends``, sorted; kept where tails are looked for.
        ends: Pages that hang at its end and never became full, by their tokens; each is a node
            of its own, only ever copied from.
        extras: By page inside the node; empty for plain text.
        chain: Identities of its first pages, as far as someone asked; for the start of a
            namespace, that of the namespace.
    """

    __slots__ = ("chain", "children", "data", "ends", "extras", "order", "pages", "parent", "start")

    def __init__(
        self,
        data: bytes,
        pages: array[int],
        parent: Node | None,
        stamp: int,
        extras: dict[int, PageExtra],
    ) -> None:
        self.lock = self.hits = self.ticket = 0
        self.stamp = stamp
        self.data = data
        self.pages = pages
        self.start: int = 0 if parent is None else parent.start + len(parent.pages)
        self.parent = parent
        self.children: dict[bytes, Node] = {}
        self.order: list[bytes] = []
        self.ends: dict[bytes, Node] = {}
        self.extras = extras
        self.chain: list[bytes] = []

    def first_key(self, step: int) -> bytes:
        """What its parent files it under."""
        if not self.extras:
            return self.data[:step]
        return branch_key(self.data[:step], self.extras.get(0))

    def identities(self, step: int) -> list[bytes]:
        """Of all its pages; those that nobody asked for before are computed now.

        Args:
            step: Bytes of a page.
        """
        path: list[Node] = [self]
        while path[-1].parent is not None and len(path[-1].chain) < max(1, len(path[-1].pages)):
            path.append(path[-1].parent)
        parent = path[-1].chain[-1]
        for walk in reversed(path):
            chain = walk.chain
            parent = chain[-1] if chain else parent
            for index in range(len(chain), len(walk.pages)):
                page = walk.data[index * step : (index + 1) * step]
                parent = page_key(parent, page, walk.extras.get(index))
                chain.append(parent)
        return self.chain

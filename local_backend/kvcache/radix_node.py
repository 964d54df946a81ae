"""One node of the radix tree."""

from __future__ import annotations

from array import array

from local_backend.kvcache.compare import branch_key
from local_backend.kvcache.evict import Entry
from local_backend.kvcache.keys import PageExtra


class Node(Entry):
    """One stretch.

    Attributes:
        data: Its tokens.
        pages: Its pages.
        start: Pages before it.
        parent: What it continues; None for the start of a namespace, which holds no pages.
        children: Continuations by their first page.
        order: The keys of ``children``, sorted; kept where tails are looked for.
        extras: By page inside the node; empty for plain text.
        chain: Identities of its first pages, as far as someone asked; for the start of a
            namespace, that of the namespace.
    """

    __slots__ = ("chain", "children", "data", "extras", "order", "pages", "parent", "start")

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
        self.extras = extras
        self.chain: list[bytes] = []

    def first_key(self, step: int) -> bytes:
        """What its parent files it under."""
        if not self.extras:
            return self.data[:step]
        return branch_key(self.data[:step], self.extras.get(0))

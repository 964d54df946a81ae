"""One node of the radix tree."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from local_backend.kvcache.compare import branch_key
from local_backend.kvcache.evict import Entry
from local_backend.kvcache.keys import PageExtra, page_key
from local_backend.kvcache.pages import no_pages

# What most nodes have of continuations and extras. Nobody can write to it.
NO_NODES: Final[Mapping[bytes, Node]] = MappingProxyType({})
NO_EXTRAS: Final[Mapping[int, PageExtra]] = MappingProxyType({})


class Node(Entry):
    """One stretch. Its containers come into being when something goes into them.

    Attributes:
        data: Its tokens.
        pages: Its pages.
        start: Pages before it.
        parent: What it continues; None for the start of a namespace, which holds no pages.
        name: What its parent files it under; for the start of a namespace, its identity.
        children: Continuations by their names.
        order: The names of ``children`` and ``ends``, sorted; kept where tails are looked for.
        ends: Pages that hang at its end and never became full, by their tokens; each is a node
            of its own, only ever copied from.
        extras: By page inside the node; empty for plain text.
        chain: Identities of its first pages, as far as someone asked; for the start of a
            namespace, that of the namespace.
    """

    __slots__ = (
        "chain",
        "children",
        "data",
        "ends",
        "extras",
        "name",
        "order",
        "pages",
        "parent",
        "start",
    )

    def __init__(
        self,
        data: bytes,
        pages: array[int],
        parent: Node | None,
        stamp: int,
        extras: Mapping[int, PageExtra],
        name: bytes,
    ) -> None:
        self.lock = self.hits = self.ticket = 0
        self.stamp = stamp
        self.data = data
        self.pages = pages
        self.start: int = 0 if parent is None else parent.start + len(parent.pages)
        self.parent = parent
        self.name = name
        self.children: Mapping[bytes, Node] = NO_NODES
        self.order: Sequence[bytes] = ()
        self.ends: Mapping[bytes, Node] = NO_NODES
        self.extras = extras
        self.chain: Sequence[bytes] = ()

    @classmethod
    def start_of(cls, root: bytes) -> Node:
        """The start of a namespace of that identity."""
        node = cls(b"", no_pages(), None, 0, NO_EXTRAS, root)
        node.chain = [root]
        return node

    def first_key(self, step: int) -> bytes:
        """The name that its first page has to have."""
        if not self.extras:
            return self.data[:step]
        return branch_key(self.data[:step], self.extras.get(0))

    def split(self, count: int, step: int, parent: Node, *, is_sorted: bool) -> Node:
        """Cut it behind its first pages; it becomes the lower part, and the upper one is new.

        Args:
            count: Pages of the upper part.
            step: Bytes of a page.
            parent: What it continues.
            is_sorted: Whether the order of continuations is kept.
        """
        data, pages, extras = self.data, self.pages, self.extras
        cut = count * step
        upper = Node(data[:cut], pages[:count], parent, self.stamp, NO_EXTRAS, self.name)
        upper.hits, upper.lock = self.hits, self.lock
        self.data = data[cut:]
        self.pages = pages[count:]
        if self.chain:
            upper.chain, self.chain = self.chain[:count], self.chain[count:]
        if extras:
            upper.extras = {page: extra for page, extra in extras.items() if page < count}
            self.extras = {page - count: x for page, x in extras.items() if page >= count}
        self.start += count
        self.parent = upper
        self.name = self.first_key(step)
        parent.put_child(upper)
        upper.children = {self.name: self}
        if is_sorted:
            upper.order = [self.name]
        return upper

    def trim(self, count: int, step: int) -> None:
        """Keep its first pages only.

        Args:
            count: How many.
            step: Bytes of a page.
        """
        self.pages = self.pages[:count]
        self.data = self.data[: count * step]
        self.chain = self.chain[:count]
        if self.extras:
            self.extras = {page: extra for page, extra in self.extras.items() if page < count}

    def put_child(self, child: Node) -> None:
        """File a continuation, in the place of one that has its name."""
        if isinstance(self.children, dict):
            self.children[child.name] = child
        else:
            self.children = {child.name: child}

    def take_child(self, child: Node) -> None:
        """Remove a continuation."""
        if isinstance(self.children, dict):
            del self.children[child.name]

    def put_end(self, end: Node) -> None:
        """Hang a page behind it that never became full."""
        if isinstance(self.ends, dict):
            self.ends[end.name] = end
        else:
            self.ends = {end.name: end}
        self.sort_in(end.name)

    def take_end(self, end: Node) -> None:
        """Remove such a page."""
        if isinstance(self.ends, dict):
            del self.ends[end.name]
        self.sort_out(end.name)

    def sort_in(self, name: bytes) -> None:
        """Put a name where it belongs in the order."""
        if isinstance(self.order, list):
            insort(self.order, name)
        else:
            self.order = [name]

    def sort_out(self, name: bytes) -> None:
        """Remove a name from the order."""
        if isinstance(self.order, list):
            del self.order[bisect_left(self.order, name)]

    def identities(self, step: int) -> Sequence[bytes]:
        """Of all its pages; those that nobody asked for before are computed now.

        Args:
            step: Bytes of a page.
        """
        path: list[Node] = [self]
        while path[-1].parent is not None and len(path[-1].chain) < max(1, len(path[-1].pages)):
            path.append(path[-1].parent)
        parent = b""
        for walk in reversed(path):
            chain = list(walk.chain)
            parent = chain[-1] if chain else parent
            for index in range(len(chain), len(walk.pages)):
                page = walk.data[index * step : (index + 1) * step]
                parent = page_key(parent, page, walk.extras.get(index))
                chain.append(parent)
            walk.chain = chain
        return self.chain

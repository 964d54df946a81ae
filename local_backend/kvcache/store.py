"""Where the bytes of pages are. The cache moves them and never looks inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from local_backend.kvcache.specs import GroupSpec


class PageStore(Protocol):
    """The memory of one group's pages."""

    def read_page(self, page: int) -> bytes:
        """The bytes of a page. May be called from another thread while the page is pinned."""
        ...

    def write_page(self, page: int, payload: bytes) -> None:
        """Replace the bytes of a page."""
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Make one page equal to another."""
        ...


class BytesStore:
    """Pages in one block of memory.

    Args:
        pages: How many, without the null page.
        page_bytes: Size of each.
    """

    def __init__(self, pages: int, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._memory = bytearray((pages + 1) * page_bytes)

    def _place(self, page: int) -> slice:
        start = page * self.page_bytes
        if not 0 <= start < len(self._memory):
            raise IndexError(f"there is no page {page}")
        return slice(start, start + self.page_bytes)

    def read_page(self, page: int) -> bytes:
        """The bytes of a page."""
        return bytes(self._memory[self._place(page)])

    def write_page(self, page: int, payload: bytes) -> None:
        """Replace the bytes of a page.

        Raises:
            ValueError: The payload has another size.
        """
        if len(payload) != self.page_bytes:
            raise ValueError(f"a page has {self.page_bytes} bytes, the payload {len(payload)}")
        self._memory[self._place(page)] = payload

    def copy_page(self, source: int, target: int) -> None:
        """Make one page equal to another."""
        self._memory[self._place(target)] = self._memory[self._place(source)]

    def write_at(self, page: int, offset: int, part: bytes) -> None:
        """Replace a part of a page, as a token's KV does.

        Raises:
            ValueError: It would reach beyond the page.
        """
        if offset < 0 or offset + len(part) > self.page_bytes:
            raise ValueError(f"{len(part)} bytes at {offset} reach beyond the page")
        start = self._place(page).start + offset
        self._memory[start : start + len(part)] = part


def bytes_stores(groups: tuple[GroupSpec, ...], pages: Mapping[str, int]) -> dict[str, BytesStore]:
    """A store for each group."""
    return {spec.name: BytesStore(pages[spec.name], spec.page_bytes) for spec in groups}

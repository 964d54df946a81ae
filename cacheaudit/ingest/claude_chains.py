"""Tells the sidechains of one transcript apart: each begins at a line whose parent is outside."""

from __future__ import annotations


class Sidechains:
    """Which sidechain a line belongs to, by the chain of parents."""

    def __init__(self) -> None:
        self._roots: dict[str, str] = {}

    def root(self, uuid: str | None, parent: str | None) -> str | None:
        """Place a line of a sidechain.

        Returns:
            Id of the line that its sidechain began with; ``None`` where the line has no id.
        """
        known = self._roots.get(parent) if parent is not None else None
        found = known or uuid
        if uuid is not None and found is not None:
            self._roots[uuid] = found
        return found

    def join(self, uuid: str | None, root: str) -> None:
        """Place a line whose sidechain is known."""
        if uuid is not None:
            self._roots[uuid] = root

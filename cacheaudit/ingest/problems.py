"""Counts what could not be read, with a few examples of each kind; nothing is lost in silence."""

from __future__ import annotations

EXAMPLES_KEPT = 5


class Problems:
    """A :class:`cacheaudit.model.ports.ProblemSink` that remembers counts and examples.

    Kinds in use: ``truncated_line``, ``invalid_json``, ``wrong_type``, ``too_long_line``,
    ``encoding``, ``too_deep``, ``unreadable_file``, ``vanished_file``, ``symlink_loop``,
    ``not_a_file``, ``source_failed``,
    ``unknown_format``, ``missing_usage``, and the flags of ``cacheaudit.model.usage``.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}

    def __call__(self, kind: str, where: str, detail: str = "") -> None:
        """Count one problem; the first few are kept as ``where: detail``."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < EXAMPLES_KEPT:
            examples.append(_text(f"{where}: {detail}" if detail else where))

    def count(self, kind: str) -> int:
        """Return how often a kind was counted."""
        return self._counts.get(kind, 0)

    def __bool__(self) -> bool:
        return bool(self._counts)

    def items(self) -> list[tuple[str, int, tuple[str, ...]]]:
        """Return (kind, count, examples), most frequent first."""
        return sorted(
            ((kind, n, tuple(self._examples[kind])) for kind, n in self._counts.items()),
            key=lambda row: (-row[1], row[0]),
        )


def _text(example: str) -> str:
    """Make an example text on one line; file names may hold bytes that are none, and line ends."""
    return " ".join(example.encode("utf-8", "backslashreplace").decode().splitlines())

"""Roots of the exceptions that the engine raises on purpose.

The engine may not import the auditor, so it has a tree of its own; the kernels, which stand below
the engine, have theirs in ``local_backend.kernels.errors``. ``error_code`` is stable and is what
callers branch on; messages may change.
"""

from __future__ import annotations


class LocalBackendError(Exception):
    """Root of the tree.

    Args:
        message: What happened and on which item.
        hint: What the reader can do about it.
    """

    error_code = "local_backend_error"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            self.add_note(hint)

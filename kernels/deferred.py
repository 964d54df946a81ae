"""Calls of compiled kernels that are noted down first and then run in one go.

A decode step is some hundred calls of a few microseconds of Python each, and each of them finds the
processor's caches full of weights and pages: noting them all down before the first one runs takes
half the time. Meanwhile no tensor that such a call fills may be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from local_backend.kernels.cpu import _native


@contextmanager
def deferred() -> Iterator[_native.Later]:
    """Let compiled kernels that are called inside, by this thread, run at the end.

    Their results are tensors without content until then. Whoever looks at one earlier, or calls
    something else on it, calls ``run`` of what is yielded before. Where the block ends by an error
    nothing more is run.

    Raises:
        IndexRangeError: At the end: a page, slot or position does not exist. What was called before
            that has been computed, what was called after it has not.
    """
    later = _native.Later(_native.native())
    token = _native.LATER.set(later)
    try:
        yield later
    finally:
        _native.LATER.reset(token)
    later.run()


def current() -> _native.Later | None:
    """What the block that this thread is in collects; None outside of such a block."""
    return _native.LATER.get()

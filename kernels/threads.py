"""How many threads the compiled kernels use, and how long an idle one stays awake.

The kernels have a pool of their own. A call takes the threads that are awake and never waits for
one that is not; after the call each looks for more work for ``spin_us`` and then sleeps, so that an
idle engine uses no processor. One thread of Python at a time has the pool; the others compute
alone. Results do not depend on any of this.
"""

from __future__ import annotations

from local_backend.kernels.cpu._native import native


def set_threads(threads: int, spin_us: int = 50) -> None:
    """Let every call use up to ``threads`` threads, its caller included.

    Args:
        threads: At least 1. Without a call: ``CACHEAUDIT_THREADS``, or the processors at hand.
        spin_us: Microseconds that a thread looks for work before it sleeps; 0 to sleep at once.
    """
    if threads < 1 or spin_us < 0:
        raise ValueError(f"threads={threads} must be at least 1 and spin_us={spin_us} at least 0")
    native().set_threads(threads, spin_us)


def threads() -> int:
    """Threads that a call may use; 1 where the kernels could not be compiled."""
    return native().threads()


def native_status() -> str:
    """Say in one line what the kernels run on, or why nothing was compiled."""
    found = native()
    if found.library is None:
        return f"not compiled: {found.reason}"
    return f"compiled, {'matrix unit' if found.uses_amx else 'vectors'}, {found.threads()} threads"

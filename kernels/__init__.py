"""Small numeric operations, each with a reference and perhaps faster implementations.

The folder stands at the top of the repository, but the package is ``local_backend.kernels``: the
top-level name belongs to another distribution, beside which this one must work.
"""

from __future__ import annotations

if __name__ == "kernels":  # a checkout on the import path, found under the other package's name
    raise ImportError(
        "This folder is the package local_backend.kernels; import it under that name."
    )

from local_backend.kernels.errors import KernelError, UnsupportedKernelError
from local_backend.kernels.registry import (
    SWITCH,
    Implementation,
    Operation,
    available,
    get,
    operations,
)

__all__ = [
    "SWITCH",
    "Implementation",
    "KernelError",
    "Operation",
    "UnsupportedKernelError",
    "available",
    "get",
    "operations",
]

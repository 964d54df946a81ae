"""What the kernels raise on purpose."""

from __future__ import annotations


class KernelError(Exception):
    """Root of the tree; ``error_code`` is stable."""

    error_code = "kernel_error"


class UnsupportedKernelError(KernelError):
    """No implementation can do what was asked: unknown operation, switched off, or wrong input."""

    error_code = "unsupported_kernel"

"""What the kernels raise on purpose."""

from __future__ import annotations


class KernelError(Exception):
    """Root of the tree; ``error_code`` is stable."""

    error_code = "kernel_error"


class UnsupportedKernelError(KernelError):
    """No implementation can do what was asked: unknown operation, switched off, or wrong input."""

    error_code = "unsupported_kernel"


class ShapeError(KernelError):
    """An argument breaks the contract of its operation: wrong shape, type or place."""

    error_code = "kernel_shape"


class IndexRangeError(KernelError):
    """A page, slot or position that would be used lies outside of what there is."""

    error_code = "kernel_index_range"

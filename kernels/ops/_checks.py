"""What operations check of their arguments, and how their answers are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.errors import IndexRangeError, ShapeError

if TYPE_CHECKING:
    import torch

# Absolute and relative distance from the answer computed in float64.
TOLERANCE = {
    "torch.float64": (1e-14, 1e-13),
    "torch.float32": (2e-6, 1e-5),
    "torch.float16": (2e-3, 4e-3),
    "torch.bfloat16": (1.6e-2, 1.6e-2),
}


def need(is_met: bool, message: str, **tensors: torch.Tensor) -> None:
    """Raise where a condition of the contract is not met; with the shapes of the tensors."""
    if not is_met:
        shapes = [f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items()]
        raise ShapeError(message + ", ".join(shapes))


def are_int32(*tensors: torch.Tensor) -> bool:
    """Whether all hold 32-bit whole numbers."""
    import torch

    return all(tensor.dtype is torch.int32 for tensor in tensors)


def are_float32(*tensors: torch.Tensor) -> bool:
    """Whether all hold 32-bit floats."""
    import torch

    return all(tensor.dtype is torch.float32 for tensor in tensors)


def need_range(indices: torch.Tensor, end: int, what: str) -> None:
    """Raise where an index is negative or not below ``end``."""
    if indices.numel() and not (int(indices.min()) >= 0 and int(indices.max()) < end):
        raise IndexRangeError(f"there is a {what} outside of 0 to {end - 1}")


def close(got: Any, right: Any) -> bool:
    """Whether tensors agree: exactly where their types are equal, else within ``TOLERANCE``."""
    import torch

    if isinstance(right, tuple):
        return len(got) == len(right) and all(map(close, got, right))
    if got.shape != right.shape:
        return False
    if got.dtype == right.dtype and (got.dtype is not torch.float64 or bool(right.isnan().any())):
        return bool(torch.equal(got.nan_to_num(nan=1e30), right.nan_to_num(nan=1e30)))
    absolute, relative = TOLERANCE[str(got.dtype)]
    return bool(torch.allclose(got.double(), right.double(), atol=absolute, rtol=relative))


def check_pages(key_pages: torch.Tensor, value_pages: torch.Tensor) -> None:
    """Check that keys and values are pages of the same layout."""
    need(
        key_pages.ndim == 4 and key_pages.shape == value_pages.shape,
        "pages are [pages, page_size, kv_heads, head_dim], the same for keys and values, not ",
        key=key_pages,
        value=value_pages,
    )
    need(key_pages.dtype == value_pages.dtype, "keys and values must have one type")


def check_tables(page_tables: torch.Tensor, lengths: torch.Tensor, batch: int) -> None:
    """Check that there is one int32 table and one int32 length a sequence."""
    need(
        page_tables.ndim == 2
        and lengths.ndim == 1
        and page_tables.shape[0] == batch == len(lengths),
        f"{batch} sequences need tables [{batch}, pages] and lengths [{batch}], not ",
        page_tables=page_tables,
        lengths=lengths,
    )
    need(
        are_int32(page_tables, lengths),
        f"tables and lengths must be int32, not {page_tables.dtype} and {lengths.dtype}",
    )


def check_query(query: torch.Tensor, key_pages: torch.Tensor) -> None:
    """Check that queries fit the pages."""
    need(
        query.ndim == 3 and query.shape[2] == key_pages.shape[3],
        "queries are [tokens, heads, head_dim], not ",
        query=query,
        pages=key_pages,
    )
    need(
        query.shape[1] % max(1, key_pages.shape[2]) == 0,
        f"{query.shape[1]} query heads cannot share {key_pages.shape[2]} key-value heads evenly",
    )
    need(query.dtype == key_pages.dtype, f"queries {query.dtype}, pages {key_pages.dtype}")


def check_window(window: int | None) -> None:
    """Check that a sliding window holds at least the query itself."""
    need(window is None or window >= 1, f"a window holds at least 1 key, not {window}")

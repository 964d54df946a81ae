# ruff: noqa: ANN001, ANN202 - the language of kernels has no annotations
# mypy: ignore-errors
"""Kernels with a program for each row, token or page."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def norm(x, weight, residual, out, x_row, residual_row, out_row, epsilon, offset, size:
tl.constexpr,
         width: tl.constexpr, has_residual: tl.constexpr):  # fmt: skip
    """Root-mean-square norm of one row."""
    row = tl.program_id(0)
    i = tl.arange(0, width)
    inside = i < size
    v = tl.load(x + row * x_row + i, mask=inside, other=0.0).to(tl.float32)
    if has_residual:
        at = residual + row * residual_row + i
        v += tl.load(at, mask=inside, other=0.0).to(tl.float32)
        v = v.to(residual.dtype.element_ty)
        tl.store(at, v, mask=inside)
        v = v.to(tl.float32)
    factor = 1.0 / tl.sqrt_rn(tl.sum(v * v, 0) / size + epsilon)
    w = tl.load(weight + i, mask=inside, other=0.0).to(tl.float32) + offset
    tl.store(out + row * out_row + i, (v * factor * w).to(out.dtype.element_ty), mask=inside)


@triton.jit
def gate(x, out, x_row, out_row, size, width: tl.constexpr, is_silu: tl.constexpr):
    """Activation of one half of a row times the other half."""
    row = tl.program_id(0)
    i = tl.program_id(1) * width + tl.arange(0, width)
    inside = i < size
    a = tl.load(x + row * x_row + i, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + row * x_row + size + i, mask=inside, other=0.0).to(tl.float32)
    inner = a
    if not is_silu:  # tanh(y) = 2 sigmoid(2y) - 1
        inner = 1.5957691216057308 * (a + 0.044715 * a * a * a)
    e = tl.exp(-tl.abs(inner))  # does not overflow
    active = a * tl.where(inner >= 0, 1.0, e) / (1.0 + e)
    tl.store(out + row * out_row + i, (active * b).to(out.dtype.element_ty), mask=inside)


@triton.jit
def turn(
    x,
    positions,
    cosines,
    sines,
    token,
    head,
    half,
    width: tl.constexpr,
    is_interleaved: tl.constexpr,
):
    """Rotary embedding of one head of one token."""
    t = tl.program_id(0)
    i = tl.arange(0, width)
    inside = i < half
    place = tl.load(positions + t).to(tl.int64)
    c = tl.load(cosines + place * half + i, mask=inside, other=0.0)
    s = tl.load(sines + place * half + i, mask=inside, other=0.0)
    base = x + t * token + tl.program_id(1) * head
    if is_interleaved:
        first = base + 2 * i
        second = first + 1
    else:
        first = base + i
        second = first + half
    a = tl.load(first, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(second, mask=inside, other=0.0).to(tl.float32)
    tl.store(first, (a * c - b * s).to(x.dtype.element_ty), mask=inside)
    tl.store(second, (b * c + a * s).to(x.dtype.element_ty), mask=inside)


@triton.jit
def store(
    x,
    pages,
    slots,
    x_token,
    x_head,
    page,
    page_token,
    page_head,
    page_size,
    dim,
    width: tl.constexpr,
):
    """One head of one token into its slot."""
    t = tl.program_id(0)
    h = tl.program_id(1)
    slot = tl.load(slots + t).to(tl.int64)
    if slot < 0:
        return
    d = tl.arange(0, width)
    inside = d < dim
    v = tl.load(x + t * x_token + h * x_head + d, mask=inside)
    to = (slot // page_size) * page + (slot % page_size) * page_token + h * page_head
    tl.store(pages + to + d, v, mask=inside)


@triton.jit
def copy(pages, pairs, page, size, width: tl.constexpr):
    """A stretch of one page."""
    pair = tl.program_id(0)
    source = tl.load(pairs + 2 * pair).to(tl.int64)
    target = tl.load(pairs + 2 * pair + 1).to(tl.int64)
    i = tl.program_id(1) * width + tl.arange(0, width)
    inside = i < size
    v = tl.load(pages + source * page + i, mask=inside)
    tl.store(pages + target * page + i, v, mask=inside)


def power(size: int) -> int:
    """Return the next power of two."""
    return int(triton.next_power_of_2(max(1, size)))


def multiply(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Rows times a matrix [outputs, inputs] in float32, by tiles of one size."""
    rows, inputs = x.shape
    outputs = matrix.shape[0]
    out = torch.empty((rows, outputs), dtype=torch.float32, device=x.device)
    if rows and outputs:
        grid = (triton.cdiv(rows, 16), triton.cdiv(outputs, 64))
        _multiply[grid](x, matrix, out, rows, outputs, x.stride(0), matrix.stride(0), inputs=inputs)
    return out


@triton.jit
def _multiply(x, matrix, out, rows, outputs, x_row, matrix_row, inputs: tl.constexpr):
    m = tl.program_id(0) * 16 + tl.arange(0, 16)
    n = tl.program_id(1) * 64 + tl.arange(0, 64)
    total = tl.zeros([16, 64], tl.float32)
    for start in range(0, inputs, 32):
        k = start + tl.arange(0, 32)
        is_k = k < inputs
        is_a = (m < rows)[:, None] & is_k[None, :]
        is_b = (n < outputs)[None, :] & is_k[:, None]
        a = tl.load(x + m[:, None] * x_row + k[None, :], mask=is_a, other=0.0)
        b = tl.load(matrix + n[None, :] * matrix_row + k[:, None], mask=is_b, other=0.0)
        total += tl.dot(a, b, input_precision="ieee").to(tl.float32)
    inside = (m < rows)[:, None] & (n < outputs)[None, :]
    tl.store(out + m[:, None] * outputs + n[None, :], total, mask=inside)

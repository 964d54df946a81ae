"""Attention over pages beside full softmax, and the memory that the pages lie in."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from local_backend.errors import UnsupportedSpecError  # noqa: E402
from local_backend.kvcache.specs import (  # noqa: E402
    FullKV,
    LatentKV,
    LayerSpec,
    SharedKV,
    WindowKV,
    group_layers,
)
from local_backend.layers.attention import GatherAttention, TiledAttention  # noqa: E402
from local_backend.layers.context import Chunk, ForwardContext  # noqa: E402
from local_backend.layers.memory import KVMemory  # noqa: E402
from local_backend.layers.operators import ExactOperators  # noqa: E402
from local_backend.layers.rope import TorchRope  # noqa: E402

Tensor = torch.Tensor


def memory_for(spec: LayerSpec, pages: int, page_size: int) -> KVMemory:
    groups = group_layers([spec], page_size)
    return KVMemory([spec], groups, {group.name: pages for group in groups})


def full_softmax(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """One sequence, ``[token, head, number]``, all of it, by the book."""
    count, heads, dim = query.shape
    total, kv_heads = key.shape[:2]
    out = torch.empty((count, heads, value.shape[2]), dtype=torch.float64)
    for row in range(count):
        at = total - count + row
        seen = slice(max(0, at - window + 1) if window else 0, at + 1)
        for head in range(heads):
            source = head // (heads // kv_heads)
            scores = key[seen, source].double() @ query[row, head].double() / math.sqrt(dim)
            out[row, head] = torch.softmax(scores, 0) @ value[seen, source].double()
    return out


@settings(max_examples=40)
@given(
    past=st.integers(0, 90),
    count=st.integers(1, 40),
    heads=st.sampled_from([(4, 4), (4, 2), (6, 1), (9, 3)]),
    window=st.sampled_from([0, 1, 7, 64]),
    page_size=st.sampled_from([1, 5, 16]),
    tiled=st.booleans(),
)
def test_equals_full_softmax(
    past: int, count: int, heads: tuple[int, int], window: int, page_size: int, tiled: bool
) -> None:
    source = torch.Generator().manual_seed(past * 100 + count)
    total, (many, few), dim = past + count, heads, 8

    def drawn(rows: int, width: int) -> Tensor:
        return torch.randn((rows, width, dim), generator=source, dtype=torch.float64)

    query, key, value = drawn(count, many), drawn(total, few), drawn(total, few)
    kept = {"kv_heads": few, "head_dim": dim, "dtype": "float64", "element_bytes": 8}
    spec = WindowKV(size=window, **kept) if window else FullKV(**kept)
    pages = -(-total // page_size)
    memory = memory_for(spec, pages, page_size)
    table = torch.randperm(pages, generator=source).add(1).tolist()
    attention = TiledAttention() if tiled else GatherAttention()
    for start, end in ((0, past), (past, total)):
        if start == end:
            continue
        # What has left the window may be gone: its entries lead to the null page.
        first = max(0, start - window + 1) // page_size if window else 0
        seen = [0] * first + table[first:]
        context = ForwardContext.build([Chunk([0] * (end - start), start, [seen])], memory)
        layer, batch = context.layer(0)
        attention.write(key[start:end], value[start:end], layer, batch)
    got = attention.attend(query, layer, batch, dim**-0.5, window)
    assert float((got - full_softmax(query, key, value, window)).abs().max()) < 1e-13


def test_running_softmax_of_the_source() -> None:
    """B08: weights 1/6, 1/3, 1/2 of values; then a larger score arrives."""
    scores, values = [0.0, math.log(2), math.log(3)], [3.0, 6.0, 7.0]
    attention, spec = TiledAttention(tile=1), FullKV(kv_heads=1, head_dim=2, dtype="float64")
    for more, right in (((), 6.0), ((math.log(12),), None)):
        every = [*scores, *more]
        given_values = [*values, *([9.0] * len(more))]
        weights = [math.exp(score) for score in every]
        mean = sum(w * v for w, v in zip(weights, given_values, strict=True)) / sum(weights)
        memory = memory_for(spec, len(every), 1)
        table = [list(range(1, len(every) + 1))]
        context = ForwardContext.build([Chunk([0] * len(every), 0, table)], memory)
        layer, batch = context.layer(0)
        key = torch.tensor([[[score, 0.0]] for score in every], dtype=torch.float64)
        value = torch.tensor([[[v, 0.0]] for v in given_values], dtype=torch.float64)
        attention.write(key, value, layer, batch)
        query = torch.tensor([[[1.0, 0.0]]] * len(every), dtype=torch.float64)
        got = float(attention.attend(query, layer, batch, 1.0)[-1, 0, 0])
        assert got == pytest.approx(mean, abs=1e-15)
        assert right is None or got == pytest.approx(right, abs=1e-15)


def test_heads_of_keys_for_eight_query_heads() -> None:
    """B09: 5 tokens: 40, 10 and 5 pairs; 32 layers of 32,768 tokens in 2 bytes: 16, 4, 0.5 GiB."""
    for heads, kv_heads, pairs in ((8, 8, 40), (8, 2, 10), (8, 1, 5)):
        spec = FullKV(kv_heads=kv_heads, head_dim=4)
        memory = memory_for(spec, 5, 1)
        context = ForwardContext.build([Chunk([0] * 5, 0, [[1, 2, 3, 4, 5]])], memory)
        layer, batch = context.layer(0)
        key = torch.randn((5, kv_heads, 4)) + 9
        TiledAttention().write(key, key, layer, batch)
        assert int((layer.key != 0).all(-1).sum()) == pairs
        query = torch.randn((5, heads, 4))
        assert GatherAttention().attend(query, layer, batch, 0.5).shape == (5, heads, 4)
    for kv_heads, gib in ((32, 16), (8, 4), (1, 0.5)):
        spec = FullKV(kv_heads=kv_heads, head_dim=128, dtype="bfloat16", element_bytes=2)
        assert 32 * 32_768 * spec.token_bytes == gib * 2**30


def test_rotations_depend_on_distance_only() -> None:
    """B15."""
    rope = TorchRope(10_000.0, 8, torch.float64)
    source = torch.Generator().manual_seed(0)
    query, key = torch.randn((2, 1, 1, 8), generator=source, dtype=torch.float64)

    def product(n: int, m: int) -> float:
        turned, _ = rope.at(torch.tensor([n]))(query, key)
        _, other = rope.at(torch.tensor([m]))(query, key)
        return float((turned * other).sum())

    near = product(7, 3)
    assert near != pytest.approx(product(7, 4), abs=1e-3)
    for shift in (1, 100, 5_000):
        assert product(7 + shift, 3 + shift) == pytest.approx(near, abs=1e-11)
    assert product(5, 5) == pytest.approx(float((query * key).sum()), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_products_of_one_shape_are_the_same_for_any_batch(dtype: torch.dtype) -> None:
    """What the exact operators and the tiled attention rest on, asked of this machine."""
    source = torch.Generator().manual_seed(1)
    x = torch.randn((100, 48), generator=source).to(dtype)
    multiply = ExactOperators().linear(torch.randn((40, 48), generator=source).to(dtype))
    every = multiply(x)
    for start, end in ((0, 1), (17, 18), (3, 20), (50, 100)):
        assert torch.equal(multiply(x[start:end]), every[start:end])
    rows = torch.randn((40, 16, 8), generator=source).to(dtype)
    keys = torch.randn((40, 8, 64), generator=source).to(dtype)
    products = torch.bmm(rows, keys)
    for count in (2, 3, 5, 16, 39):
        assert torch.equal(torch.bmm(rows[:count], keys[:count]), products[:count])


def test_pages_as_bytes() -> None:
    specs: list[LayerSpec] = [
        FullKV(kv_heads=2, head_dim=4),
        WindowKV(kv_heads=1, head_dim=4, size=8, dtype="bfloat16", element_bytes=2),
        SharedKV(source=0),
        FullKV(kv_heads=1, head_dim=6, value_dim=2),
    ]
    groups = group_layers(specs, 4)
    memory = KVMemory(specs, groups, {group.name: 3 for group in groups})
    assert memory.layers[2] is memory.layers[0]
    assert [layer.group for layer in memory.layers] == [0, 1, 0, 0]
    source = torch.Generator().manual_seed(2)
    for layer in memory.layers:
        for part in (layer.key, layer.value):
            part.copy_(torch.randn(part.shape, generator=source))
    for group in groups:
        store = memory.stores[group.name]
        before = [store.read_page(page) for page in range(4)]
        assert {len(page) for page in before} == {store.page_bytes} == {group.page_bytes}
        store.copy_page(1, 2)
        assert store.read_page(2) == before[1]
        store.write_page(2, before[2])
        assert [store.read_page(page) for page in range(4)] == before
        with pytest.raises(ValueError, match="a page has"):
            store.write_page(1, b"short")
        with pytest.raises(IndexError):
            store.read_page(4)
    first = memory.stores["full"].read_page(1)
    assert first[: 4 * 2 * 4 * 4] == memory.layers[0].key[1].numpy().tobytes()


def test_other_kinds_of_state_have_no_memory_here() -> None:
    spec = LatentKV(rank=8)
    with pytest.raises(UnsupportedSpecError, match="LatentKV"):
        memory_for(spec, 2, 4)

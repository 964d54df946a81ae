"""The memory that K and V of all layers lie in, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from local_backend.errors import UnsupportedSpecError
from local_backend.kernels.functional import empty_pages
from local_backend.kvcache.specs import FullKV, GroupSpec, LayerSpec, SharedKV, WindowKV


@dataclass(frozen=True, slots=True)
class LayerPages:
    """Where one layer keeps its K and V.

    Attributes:
        key: ``[page, token, head, number]``; page 0 is the null page.
        value: Likewise.
        group: Index of the group whose tables lead here.
    """

    key: Tensor
    value: Tensor
    group: int

    @property
    def page_size(self) -> int:
        """Tokens in a page."""
        return self.key.shape[1]


class GroupStore:
    """The pages of one group as bytes, which is how tiers and copies see them.

    The bytes of a page are, layer by layer, its keys and then its values.

    Args:
        layers: Those of the group, in order.
    """

    def __init__(self, layers: Sequence[LayerPages]) -> None:
        self._parts = [part for layer in layers for part in (layer.key, layer.value)]
        self._pages = self._parts[0].shape[0]
        self.page_bytes = sum(part[0].numel() * part.element_size() for part in self._parts)

    def read_page(self, page: int) -> bytes:
        """The bytes of a page. May be called from another thread while the page is pinned."""
        self._check(page)
        whole = torch.cat([part[page].reshape(-1).view(torch.uint8) for part in self._parts])
        return whole.numpy().tobytes()

    def write_page(self, page: int, payload: bytes) -> None:
        """Replace the bytes of a page.

        Raises:
            ValueError: The payload has another size.
        """
        self._check(page)
        if len(payload) != self.page_bytes:
            raise ValueError(f"a page has {self.page_bytes} bytes, the payload {len(payload)}")
        whole = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        start = 0
        for part in self._parts:
            end = start + part[page].numel() * part.element_size()
            part[page].view(-1).copy_(whole[start:end].clone().view(part.dtype))
            start = end

    def copy_page(self, source: int, target: int) -> None:
        """Make one page equal to another."""
        self._check(source)
        self._check(target)
        for part in self._parts:
            part[target].copy_(part[source])

    def _check(self, page: int) -> None:
        if not 0 <= page < self._pages:
            raise IndexError(f"there is no page {page}")


class KVMemory:
    """K and V of every layer of a model.

    Args:
        specs: What each layer keeps, in order.
        groups: The same layers, grouped; see :func:`local_backend.kvcache.specs.group_layers`.
        pages: By group, how many pages, without the null page.
        device: Where they lie.

    Raises:
        UnsupportedSpecError: A layer keeps something else than K and V.
    """

    def __init__(
        self,
        specs: Sequence[LayerSpec],
        groups: Sequence[GroupSpec],
        pages: Mapping[str, int],
        device: torch.device | str = "cpu",
    ) -> None:
        self.groups = tuple(groups)
        self.page_size = groups[0].page_size
        found: dict[int, LayerPages] = {}
        for index, group in enumerate(groups):
            for layer in group.layers:
                found[layer] = _allocate(specs[layer], group, index, pages[group.name], device)
        for layer, spec in enumerate(specs):
            if isinstance(spec, SharedKV):
                found[layer] = found[spec.source]
        self.layers = tuple(found[layer] for layer in range(len(specs)))
        self._stores = {
            group.name: GroupStore([found[layer] for layer in group.layers]) for group in groups
        }

    @property
    def stores(self) -> Mapping[str, GroupStore]:
        """The pages of each group as bytes, under the group's name."""
        return self._stores


def _allocate(
    spec: LayerSpec, group: GroupSpec, index: int, pages: int, device: torch.device | str
) -> LayerPages:
    if not isinstance(spec, FullKV | WindowKV):
        raise UnsupportedSpecError(f"no memory for layers of kind {spec.kind}")
    dtype = getattr(torch, spec.dtype)
    value_dim = getattr(spec, "value_dim", None) or spec.head_dim
    # Zeros, so that a page is never read with what the process had there before.
    key, value = (
        _zeros((pages + 1, group.page_size, spec.kv_heads, dim), dtype, device)
        for dim in (spec.head_dim, value_dim)
    )
    return LayerPages(key, value, index)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    if torch.device(device).type == "cpu":
        return empty_pages(shape, dtype)
    return torch.zeros(shape, dtype=dtype, device=device)

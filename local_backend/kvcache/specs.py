"""What each layer of a model keeps, and which layers keep it in the same way.

A layer names its state; everything that follows from it (bytes, which pages a continuation needs,
which layers share a table) is derived here. A new kind of layer state is a new class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from local_backend._typing import override
from local_backend.errors import UnsupportedSpecError
from local_backend.kvcache.keys import tagged


class Needs(StrEnum):
    """Which pages must be there to continue behind a prefix."""

    PREFIX = "prefix"
    """All of the prefix."""
    WINDOW = "window"
    """Its last pages."""
    BOUNDARY = "boundary"
    """One state, taken exactly at its end."""
    NOTHING = "nothing"
    """None: the state follows from the token ids, or another layer keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """What one layer keeps.

    Attributes:
        dtype: Name of the element type, part of the layout.
        element_bytes: Size of one element.
    """

    dtype: str = "float32"
    element_bytes: int = 4

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return type(self).__name__

    @property
    def needs(self) -> Needs:
        """Which pages a continuation needs."""
        return Needs.PREFIX

    @property
    def window(self) -> int:
        """Tokens that a position can see, itself included; 0 for all."""
        return 0

    @property
    def token_bytes(self) -> int:
        """Bytes for each token."""
        return 0

    @property
    def state_bytes(self) -> int:
        """Bytes that do not depend on the number of tokens."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FullKV(LayerSpec):
    """K and V of every token (MHA, GQA, MQA).

    Attributes:
        kv_heads: Heads that are stored.
        head_dim: Numbers in a key.
        value_dim: Numbers in a value; None for as many.
    """

    kv_heads: int
    head_dim: int
    value_dim: int | None = None

    @property
    @override
    def token_bytes(self) -> int:
        """K and V of all stored heads."""
        value = self.head_dim if self.value_dim is None else self.value_dim
        return self.kv_heads * (self.head_dim + value) * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowKV(LayerSpec):
    """K and V of the most recent tokens.

    Attributes:
        kv_heads: Heads that are stored.
        head_dim: Numbers in a key, and in a value.
        size: Tokens that a position can see, itself included.
    """

    kv_heads: int
    head_dim: int
    size: int

    @property
    @override
    def needs(self) -> Needs:
        """The last pages."""
        return Needs.WINDOW

    @property
    @override
    def window(self) -> int:
        """``size``."""
        return self.size

    @property
    @override
    def token_bytes(self) -> int:
        """K and V of all stored heads."""
        return 2 * self.kv_heads * self.head_dim * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentKV(LayerSpec):
    """One compressed vector and one rotated part for each token (MLA)."""

    rank: int
    rope_dim: int = 0

    @property
    @override
    def token_bytes(self) -> int:
        """The vector and the rotated part."""
        return (self.rank + self.rope_dim) * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKeys(LayerSpec):
    """A short key for each token, by which records are selected."""

    dim: int

    @property
    @override
    def token_bytes(self) -> int:
        """The key."""
        return self.dim * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageKV(LayerSpec):
    """K and V of image positions that a layer keeps beside those of the text."""

    kv_heads: int
    head_dim: int

    @property
    @override
    def token_bytes(self) -> int:
        """K and V of all stored heads."""
        return 2 * self.kv_heads * self.head_dim * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKV(LayerSpec):
    """Nothing of its own: the layer reads what another layer keeps.

    Attributes:
        source: Index of that layer.
    """

    source: int

    @property
    @override
    def needs(self) -> Needs:
        """What the source needs."""
        return Needs.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState(LayerSpec):
    """One state of fixed size (linear attention, SSM), valid at one position only."""

    elements: int

    @property
    @override
    def needs(self) -> Needs:
        """A snapshot at the end of the prefix."""
        return Needs.BOUNDARY

    @property
    @override
    def state_bytes(self) -> int:
        """One state."""
        return self.elements * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHistory(LayerSpec):
    """The last token ids (n-gram tables); they are in the prompt itself."""

    length: int

    @property
    @override
    def needs(self) -> Needs:
        """Nothing that a prompt does not bring."""
        return Needs.NOTHING


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Layers whose pages come and go together.

    Attributes:
        name: Unique in a model.
        needs: Which pages a continuation needs.
        layers: Their indexes.
        page_size: Tokens in a page.
        page_bytes: Bytes of a page, all layers together.
        window: Tokens that a position can see; 0 for all.
        layout: Digest of all that decides how the bytes of a page are read.
    """

    name: str
    needs: Needs
    layers: tuple[int, ...]
    page_size: int
    page_bytes: int
    window: int
    layout: bytes

    def first_needed(self, length: int) -> int:
        """The first page that a continuation behind ``length`` tokens can read."""
        if self.needs is Needs.PREFIX:
            return 0
        if self.needs is Needs.WINDOW:
            return max(0, length - self.window + 1) // self.page_size
        if self.needs is Needs.BOUNDARY:
            return max(0, length // self.page_size - 1)
        return -(-length // self.page_size)


def group_layers(specs: Sequence[LayerSpec], page_size: int) -> tuple[GroupSpec, ...]:
    """Put layers with the same needs together; those that need no pages have no group.

    Args:
        specs: One for each layer, in order.
        page_size: Tokens in a page.

    Raises:
        UnsupportedSpecError: A layer shares the state of one that does not exist or shares
            itself, or no layer keeps pages.
    """
    found: dict[tuple[Needs, int], list[int]] = {}
    for index, spec in enumerate(specs):
        if isinstance(spec, SharedKV):
            _check_source(specs, index, spec.source)
        if spec.needs is not Needs.NOTHING:
            found.setdefault((spec.needs, spec.window), []).append(index)
    if not found:
        raise UnsupportedSpecError("no layer keeps anything that could be cached")
    return tuple(
        _group(specs, needs, window, layers, page_size)
        for (needs, window), layers in sorted(found.items(), key=lambda item: item[1])
    )


def _check_source(specs: Sequence[LayerSpec], index: int, source: int) -> None:
    if not 0 <= source < len(specs) or isinstance(specs[source], SharedKV):
        raise UnsupportedSpecError(
            f"layer {index} shares the state of layer {source}, which keeps none"
        )


def _group(
    specs: Sequence[LayerSpec], needs: Needs, window: int, layers: list[int], page_size: int
) -> GroupSpec:
    name = {Needs.PREFIX: "full", Needs.BOUNDARY: "state"}.get(needs, f"window-{window}")
    own = [specs[index] for index in layers]
    per_token = sum(spec.token_bytes for spec in own)
    page_bytes = per_token * page_size + sum(spec.state_bytes for spec in own)
    described = [tagged("page", page_size.to_bytes(4, "little"))]
    described += [
        tagged("layer", f"{index}:{spec!r}".encode())
        for index, spec in zip(layers, own, strict=True)
    ]
    layout = hashlib.blake2b(b"".join(described), digest_size=16, person=b"kv-layout").digest()
    return GroupSpec(name, needs, tuple(layers), page_size, page_bytes, window, layout)


def simple_group(
    page_size: int, page_bytes: int, *, name: str = "full", window: int = 0, layout: str = ""
) -> GroupSpec:
    """A group that no model stands behind, for tools, traces and tests."""
    needs = Needs.WINDOW if window else Needs.PREFIX
    text = f"{page_size}:{page_bytes}:{window}:{layout}".encode()
    digest = hashlib.blake2b(text, digest_size=16, person=b"kv-layout").digest()
    return GroupSpec(name, needs, (), page_size, page_bytes, window, digest)

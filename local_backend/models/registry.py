"""Finds models by name or file, and loads them with tokenizer and chat template."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_backend._lazy import TORCH, need
from local_backend.errors import UnknownModelError, WeightsError
from local_backend.models.packages import PACKAGES
from local_backend.tokenizer.base import Tokenizer
from local_backend.tokenizer.template import ChatTemplate

if TYPE_CHECKING:
    from local_backend.layers.operators import Operators
    from local_backend.models.base import Family, Model

TINY = "tiny"
DTYPES = ("float32", "bfloat16", "float64")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with all that is needed to talk to it.

    Attributes:
        model: The model.
        tokenizer: Its tokenizer.
        template: Its chat template; None where it has none.
    """

    model: Model
    tokenizer: Tokenizer
    template: ChatTemplate | None


def names() -> tuple[str, ...]:
    """Names that :func:`load` knows, installed or not."""
    return (TINY, *(package.name for package in PACKAGES))


@cache
def families() -> Mapping[str, Family]:
    """Every family under the name that files call it by."""
    found = {}
    for info in pkgutil.iter_modules(importlib.import_module(__package__).__path__):
        module = importlib.import_module(f"{__package__}.{info.name}")
        if (family := getattr(module, "FAMILY", None)) is not None:
            found[family.name] = family
    return found


def load(
    source: str | Path,
    dtype: str = "float32",
    *,
    operators: Operators | None = None,
    seed: int = 0,
) -> Loaded:
    """Load a model.

    Args:
        source: A name (see :func:`names`) or a GGUF file.
        dtype: Type of weights, activations, K and V: ``float32``, ``bfloat16`` or ``float64``.
        operators: What computes it. Where not given, plain torch; for the little decoder, torch
            with results that do not depend on batching.
        seed: Of the weights of the little decoder.

    Raises:
        UnknownModelError: There is no such model, type or family.
        MissingPackageError: A package is not installed; the hint holds the command.
        WeightsError: The file is damaged.
    """
    need("torch", "running a model", TORCH)
    if dtype not in DTYPES:
        raise UnknownModelError(f"no type {dtype!r}; there are: {', '.join(DTYPES)}")
    if source == TINY:
        return _load_tiny(seed, dtype, operators)
    for package in PACKAGES:
        if source == package.name:
            return load_pieces(package.find(), dtype, operators, digest=package.digest)
    path = Path(source)
    if not path.is_file():
        raise UnknownModelError(
            f"no model and no file {str(source)!r}; models are: {', '.join(names())}"
        )
    return load_pieces((path,), dtype, operators)


def _load_tiny(seed: int, dtype: str, operators: Operators | None) -> Loaded:
    tiny = importlib.import_module("local_backend.models.tiny")
    byte_level = importlib.import_module("local_backend.tokenizer.byte_level")
    tokenizer = byte_level.ByteTokenizer()
    model = tiny.tiny_decoder(seed, dtype, operators=operators)
    return Loaded(model, tokenizer, ChatTemplate(byte_level.TEMPLATE, tokenizer))


def load_pieces(
    pieces: tuple[Path, ...],
    dtype: str = "float32",
    operators: Operators | None = None,
    *,
    digest: str = "",
) -> Loaded:
    """Load a model from a file, or from the pieces that it was cut into.

    Args:
        pieces: The pieces, in order.
        dtype: See :func:`load`.
        operators: See :func:`load`.
        digest: What the SHA-256 of the file must be; empty where it is not known.

    Raises:
        UnknownModelError: No family reads this file.
        WeightsError: The file is damaged.
    """
    torch = need("torch", "running a model", TORCH)
    gguf_file = importlib.import_module("local_backend.models.gguf_file")
    weights_module = importlib.import_module("local_backend.models.weights")
    file = gguf_file.GgufFile(pieces)
    family = _family(file.metadata, pieces[0])
    weights = weights_module.FileWeights(file, getattr(torch, dtype))
    if digest and weights.identity != f"sha256:{digest}":
        raise WeightsError(
            f"{pieces[0].name} is not the file that it should be: {weights.identity}"
        )
    if operators is None:
        operators = importlib.import_module("local_backend.layers.operators").TorchOperators()
    model = family.build(family.read_config(file.metadata, dtype), weights, operators)
    tokenizer = importlib.import_module("local_backend.tokenizer.from_file").read_tokenizer(
        file.metadata
    )
    text = file.metadata.get("tokenizer.chat_template") or family.template
    return Loaded(model, tokenizer, ChatTemplate(text, tokenizer) if text else None)


def _family(metadata: Mapping[str, Any], path: Path) -> Family:
    name = metadata.get("general.architecture")
    known = families()
    if not isinstance(name, str) or name not in known:
        raise UnknownModelError(
            f"{path.name} is of the family {name!r}; there are: {', '.join(sorted(known))}"
        )
    return known[name]

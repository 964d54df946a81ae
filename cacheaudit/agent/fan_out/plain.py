"""Turns the arguments of an SDK's call into the body that the SDK would make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return a copy made of dicts, lists and scalars; the SDK's own objects become dicts."""
    if value is None or isinstance(value, str | int | float | bool | bytes):
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    dump = getattr(value, "to_dict", None) or getattr(value, "model_dump", None)
    if callable(dump):
        return plain(dump())
    return [plain(item) for item in value] if isinstance(value, Iterable) else value

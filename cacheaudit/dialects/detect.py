"""Picks the dialect of a usage record by its field names, never by the model's name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

from cacheaudit import dialects as dialects_package
from cacheaudit.model.ports import Dialect
from cacheaudit.model.usage import Usage


@cache
def all_dialects() -> tuple[Dialect, ...]:
    """Return one instance of every dialect, the most specific first (``DIALECT.rank``, then name).

    A dialect module defines ``DIALECT``.
    """
    names = sorted(info.name for info in pkgutil.iter_modules(dialects_package.__path__))
    modules = (importlib.import_module(f"{dialects_package.__name__}.{name}") for name in names)
    found = [module.DIALECT for module in modules if hasattr(module, "DIALECT")]
    return tuple(sorted(found, key=lambda d: (getattr(d, "rank", 50), d.name)))


def normalise(usage: Mapping[str, Any]) -> Usage | None:
    """Normalise a usage record of any provider; ``None`` where no dialect knows its fields."""
    for dialect in all_dialects():
        if dialect.matches(usage):
            return dialect.normalise(usage)
    return None

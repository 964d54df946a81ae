"""Picks the dialect of a usage record by its field names, never by the model's name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache, lru_cache
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
    dialect = _dialect_of(frozenset(usage))
    return None if dialect is None else dialect.normalise(usage)


@lru_cache(maxsize=512)
def _dialect_of(names: frozenset[str]) -> Dialect | None:
    """Find the dialect of a set of field names; a log repeats a few such sets millions of times."""
    record = dict.fromkeys(names)
    return next((dialect for dialect in all_dialects() if dialect.matches(record)), None)

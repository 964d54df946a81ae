"""Late import of optional parts, with the exact command that installs a missing one."""

from __future__ import annotations

import importlib
from types import ModuleType

from cacheaudit.errors import MissingExtraError


def need(module: str, extra: str) -> ModuleType:
    """Import ``module``, which the extra ``extra`` brings.

    Raises:
        MissingExtraError: The module is not installed; the message holds the pip command.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name.split(".")[0]):
            raise
        raise MissingExtraError(
            f"{module!r} is not installed.", f"Run: pip install 'cacheaudit[{extra}]'"
        ) from error

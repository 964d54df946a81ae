"""Late import of what is not always installed, with the exact command that installs it."""

from __future__ import annotations

import importlib
from types import ModuleType

from local_backend.errors import MissingPackageError

ALL = "pip install 'cacheaudit[local]'"
TORCH = "pip install 'cacheaudit-local[torch]'"


def need(module: str, purpose: str, command: str = ALL) -> ModuleType:
    """Import a module, or say what it is for and how to get it.

    Raises:
        MissingPackageError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise MissingPackageError(
            f"{package!r} is not installed; {purpose} needs it.", f"Run: {command}"
        ) from error

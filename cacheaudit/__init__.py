"""Says why a prompt cache missed, what that cost, and whether a fix would have helped."""

from __future__ import annotations

import importlib
from typing import Any

from cacheaudit._version import __version__

__all__ = [
    "CacheAudit",
    "CacheAuditError",
    "CodeLimits",
    "Inputs",
    "OutputBudget",
    "OutputFilter",
    "OutputStore",
    "ToolDirectory",
    "ToolOutput",
    "__version__",
    "audit",
    "usage",
    "wrap",
]

_HOMES = {
    "CacheAudit": "cacheaudit.agent.audit",
    "CacheAuditError": "cacheaudit.errors",
    "CodeLimits": "cacheaudit.agent.codemode.settings",
    "Inputs": "cacheaudit.jobs.inputs",
    "OutputBudget": "cacheaudit.agent.outputs.filter",
    "OutputFilter": "cacheaudit.agent.outputs.filter",
    "OutputStore": "cacheaudit.agent.outputs.store",
    "ToolDirectory": "cacheaudit.agent.tools.directory",
    "ToolOutput": "cacheaudit.agent.tools.tool",
    "audit": "cacheaudit.jobs.audit",
    "usage": "cacheaudit.jobs.usage",
    "wrap": "cacheaudit.agent.audit",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the command line starts fast."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

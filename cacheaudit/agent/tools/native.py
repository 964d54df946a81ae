"""Where the Messages API itself can load tools later, and what it needs from the first request on.

Tools that are known when a session opens are declared with ``defer_loading`` and unlocked by a
``tool_reference`` in the result of a search. Those that come later travel by value, in a
``tool_addition`` inside a system message behind the results. A placeholder that is never loaded
stands in every request: the first deferred tool of a conversation is reported to change what the
provider puts in front of it, and so to cost the whole prefix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from cacheaudit.agent.tools.tool import PLACEHOLDER, Tool

BETAS: Final = ("mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15")
"""Sent with every request of such a session: the set of betas is part of what is cached."""

# As of 2026-11-30. Mid-conversation system messages, in which additions travel, came with these
# models and on these surfaces; elsewhere they are not documented, and the fixed pair is used.
_MODELS: Final = re.compile(
    r"claude-(?:opus-(?:4-[89]|4-\d{2}|[5-9])|(?:fable|mythos)-[5-9])(?![0-9])"
)
_SURFACES: Final = frozenset({"claude_api"})


def unsupported(model: str | None, surface: str | None) -> str | None:
    """Say why tools cannot be loaded later; ``None``: they can.

    Args:
        model: Model of the session.
        surface: Where it is called.
    """
    if model is None:
        return "no model was named when the session was opened"
    if surface not in _SURFACES:
        return f"it is not documented for {surface or 'an unknown surface'}"
    if not _MODELS.match(model.removeprefix("anthropic/")):
        return f"it is not documented for {model}"
    return None


def placeholder() -> dict[str, Any]:
    """Return the declaration that keeps the beginning of the prompt the same."""
    return {
        "name": PLACEHOLDER,
        "description": "Reserved. Never available.",
        "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
        "defer_loading": True,
    }


def deferred(tool: Tool) -> dict[str, Any]:
    """Return the declaration of a tool that is known from the start but not loaded."""
    return {**tool.definition(), "defer_loading": True}


def references(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the content blocks that load tools which are declared."""
    return [{"type": "tool_reference", "tool_name": name} for name in names]


def addition(tool: Tool) -> dict[str, Any]:
    """Return the block that brings a tool which is not declared."""
    return {
        "type": "tool_addition",
        "tool": {"type": "tool_definition", "definition": tool.definition()},
    }


def removal(name: str) -> dict[str, Any]:
    """Return the block that withdraws a tool."""
    return {"type": "tool_removal", "tool": {"type": "tool_reference", "name": name}}

"""Keeps tools in the order, and written as, a session saw them first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cacheaudit.agent.planner.memory import SessionMemory
from cacheaudit.agent.planner.order import encode, is_same

# Names that are new in every request would be remembered for ever.
_MOST: Final = 2_048


def in_order(body: Mapping[str, Any], session: SessionMemory) -> Mapping[str, Any]:
    """Return the request with its tools in the session's order, new ones last, by name.

    Tools that differ from what was sent first in key order alone are sent as they were then. The
    first tools of a session are sorted too, so that other programs send them alike. The request
    itself is returned where nothing differs, where tools have no names or one name twice, and
    where one carries a marker: that speaks of its place.
    """
    tools = body.get("tools")
    if not isinstance(tools, list) or not tools:
        return body
    names = [_name(tool) for tool in tools]
    if not all(names) or len(set(names)) != len(names) or len(session.tools) > _MOST:
        return body
    if any("cache_control" in tool for tool in tools):
        return body
    given = dict(zip(names, tools, strict=True))
    for name in sorted(given.keys() - session.tools.keys()):
        session.tools[name] = given[name]
    made = [
        _as_before(known, given[name]) for name, known in session.tools.items() if name in given
    ]
    if all(new is old for new, old in zip(made, tools, strict=True)):
        return body
    session.notes.hints["tools sent in the order of the first request"] += 1
    return {**body, "tools": made}


def _as_before(known: Any, tool: Any) -> Any:
    """Return the tool as it was sent first, where only its key order differs."""
    if known is tool or known != tool or encode(known) == encode(tool):
        return tool
    return known if is_same(known, tool) else tool


def _name(tool: Any) -> str:
    """Return what tells a tool apart; empty where nothing does."""
    if not isinstance(tool, dict):
        return ""
    inner = tool.get("function")
    name = tool.get("name") or (inner.get("name") if isinstance(inner, dict) else None)
    name = name or tool.get("mcp_server_name") or tool.get("server_label") or tool.get("type")
    return name if isinstance(name, str) else ""

"""Keeps tools in the order in which a session saw them first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheaudit.agent.planner.memory import SessionMemory


def in_order(body: Mapping[str, Any], session: SessionMemory) -> Mapping[str, Any]:
    """Return the request with its tools in the session's order, new ones last.

    The request itself where the order is that one already, or where tools have no names or one
    name twice.
    """
    tools = body.get("tools")
    if not isinstance(tools, list) or not tools:
        return body
    names = [_name(tool) for tool in tools]
    if not all(names) or len(set(names)) != len(names):
        return body
    for name in names:
        session.tools.setdefault(name, len(session.tools))
    ordered = sorted(range(len(tools)), key=lambda index: session.tools[names[index]])
    if ordered == list(range(len(tools))):
        return body
    session.notes.hints["tools sent in the order of the first request"] += 1
    return {**body, "tools": [tools[index] for index in ordered]}


def _name(tool: Any) -> str:
    """Return what tells a tool apart; empty where nothing does."""
    if not isinstance(tool, dict):
        return ""
    inner = tool.get("function")
    name = tool.get("name") or (inner.get("name") if isinstance(inner, dict) else None)
    name = name or tool.get("mcp_server_name") or tool.get("server_label") or tool.get("type")
    return name if isinstance(name, str) else ""

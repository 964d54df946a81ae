"""Tools for tests."""

from __future__ import annotations

from typing import Any

from cacheaudit.agent.tools.tool import Tool


def log_query(run_id: str, lines: int = 20) -> str:
    """Read test logs of a run.

    Args:
        run_id: Which run, such as run_42.
        lines: How many lines.
    """
    return f"{run_id}: {lines} lines"


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


async def fetch_page(url: str) -> str:
    """Fetch a page from the web."""
    return f"page at {url}"


def plain_tool(name: str, description: str = "", **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return Tool(name=name, description=description, input_schema=schema, run=lambda given: given)


def use(name: str, arguments: Any, number: int = 1) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}


def reply(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}

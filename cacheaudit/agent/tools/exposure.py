"""What a session declares: a list that depends on nothing that may change while it lasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

from cacheaudit.agent.tools import native
from cacheaudit.agent.tools.tool import CALL, SEARCH, Tool

Exposure = Literal["direct", "search", "deferred", "codemode"]
Style = Literal["anthropic", "openai_chat", "openai_responses"]
EXPOSURES: Final[tuple[str, ...]] = get_args(Exposure)
MOST_RESULTS: Final = 10
DEFAULT_RESULTS: Final = 5

_QUERY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "What the tool should do, in a few words, or its exact name.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_RESULTS,
            "description": f"Most tools to return; {DEFAULT_RESULTS} by default.",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}
_SEARCH: Final[dict[str, Any]] = {
    "name": SEARCH,
    "description": (
        "Finds tools that are not listed here, by what they do. Returns their names, descriptions"
        f" and argument schemas. Read a schema first, then use the tool through {CALL} in a later"
        " reply: a search and a call that relies on it do not work in one reply."
    ),
    "input_schema": _QUERY,
}
_CALL: Final[dict[str, Any]] = {
    "name": CALL,
    "description": (
        f"Runs a tool that {SEARCH} has returned. The arguments must fit the schema that was"
        " returned with it; what is wrong is told in the result."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Name of the tool, as it was returned."},
            "arguments": {"type": "object", "description": "Its arguments, by its schema."},
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    },
}
_LOAD: Final[dict[str, Any]] = {
    "name": SEARCH,
    "description": (
        "Finds tools that are not loaded yet, by what they do, and loads them. They can be called"
        " by name from the next reply on."
    ),
    "input_schema": _QUERY,
}


def declared(
    exposure: Exposure, known: Sequence[Tool], fixed: Sequence[Tool], script: Tool | None
) -> list[dict[str, Any]]:
    """Build the list of declarations.

    Args:
        exposure: How tools are shown.
        known: Tools of the directory when the session opens.
        fixed: Tools that are in every list, such as the readers of stored outputs.
        script: The tool that runs scripts, for ``codemode``.

    Returns:
        Active ones by name, then those of the exposure, then deferred ones by name.
    """
    tools = sorted(known, key=lambda tool: tool.name)
    pinned = [tool.definition() for tool in tools if tool.pinned or exposure == "direct"]
    always = [tool.definition() for tool in fixed]
    if exposure == "direct":
        return pinned + always
    if exposure == "codemode":
        return pinned + always + ([script.definition()] if script else [])
    if exposure == "search":
        return [*pinned, *always, _SEARCH, _CALL]
    later = [native.deferred(tool) for tool in tools if not tool.pinned]
    return [*pinned, *always, _LOAD, native.placeholder(), *later]


def in_style(tools: Sequence[dict[str, Any]], style: Style) -> list[dict[str, Any]]:
    """Write declarations for another API.

    Args:
        tools: As the Messages API takes them.
        style: Whose form to use.
    """
    if style == "anthropic":
        return list(tools)
    functions = [
        {
            "name": tool["name"],
            "description": tool["description"],
            "parameters": tool["input_schema"],
        }
        for tool in tools
    ]
    if style == "openai_chat":
        return [{"type": "function", "function": function} for function in functions]
    # Strict is the default there, and refuses schemas with optional arguments.
    return [{"type": "function", **function, "strict": False} for function in functions]


def search_problems(arguments: Any) -> list[dict[str, str]]:
    """Check the arguments of a search; the fixed entries need no library for it."""
    if not isinstance(arguments, dict):
        return [{"at": "/", "problem": "the arguments are not an object"}]
    found: list[dict[str, str]] = []
    query, limit = arguments.get("query"), arguments.get("limit", DEFAULT_RESULTS)
    if not isinstance(query, str) or not query.strip():
        found.append({"at": "/query", "problem": "it must be text that is not empty"})
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_RESULTS:
        found.append({"at": "/limit", "problem": f"it must be a number from 1 to {MOST_RESULTS}"})
    return found

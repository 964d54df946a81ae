"""Writes the types of tools as Python: what the checker reads, and what the model is told."""

from __future__ import annotations

import builtins
import hashlib
import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cacheaudit.agent.tools.tool import Tool

_UNFIT: Final = re.compile(r"\W")
_DEEPEST: Final = 8
_SIMPLE: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "array": "list[Any]",
    "object": "dict[str, Any]",
}
TEXTUAL: Final = "str | int | float | bool | None | list[Any] | dict[str, Any] | tuple[Any, ...]"
HELPERS: Final[dict[str, str]] = {
    "text": f"def text(*values: {TEXTUAL}) -> None: ...",
    "store": "def store(key: str, value: Any) -> None: ...",
    "load": "def load(key: str, default: Any = None) -> Any: ...",
    "search_tools": "def search_tools(query: str, limit: int = 5) -> list[dict[str, str]]: ...",
    "describe_tool": "def describe_tool(name: str) -> str: ...",
    "excerpt": "def excerpt(value: str, max_tokens: int = 500) -> str: ...",
    "save_output": "def save_output(value: str) -> str: ...",
    "read_output": "def read_output(handle: str, offset: int = 1, limit: int = 200) -> str: ...",
    "search_output": "def search_output(handle: str, pattern: str, limit: int = 50) -> str: ...",
}
WITH_STORE: Final = ("save_output", "read_output", "search_output")


def function_name(tool: str) -> str:
    """Name the function of a tool: its own name where that can be one in Python."""
    made = _UNFIT.sub("_", tool)
    if made[:1].isdigit():
        made = f"tool_{made}"
    elif made.startswith("_"):  # to the checker such a name is private to the stubs
        made = f"tool{made}"
    if keyword.iskeyword(made) or hasattr(builtins, made) or made in HELPERS:
        made += "_"
    return made


def functions_of(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Name the functions of all tools; where two would have one name, the second gets a digest."""
    found: dict[str, Tool] = {}
    for tool in sorted(tools, key=lambda tool: tool.name):
        name = function_name(tool.name)
        if name in found:
            name += "_" + hashlib.blake2b(tool.name.encode(), digest_size=3).hexdigest()
        found[name] = tool
    return found


def parameters(tool: Tool) -> list[tuple[str, str, bool]]:
    """Return the parameters of a tool: name, type, whether it is required; required ones first."""
    schema = tool.input_schema
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    needed = set(required) if isinstance(required, list | tuple) else set()
    found = [
        (name, _type(part, schema, 0), name in needed)
        for name, part in properties.items()
        if isinstance(name, str)
    ]
    return sorted(found, key=lambda item: not item[2])


def stub(name: str, tool: Tool) -> str:
    """Write the signature of a tool."""
    known = parameters(tool)
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part, _, _ in known):
        return f"async def {name}(**arguments: Any) -> Any: ..."
    listed = [f"{part}: {kind}" + ("" if needed else " = ...") for part, kind, needed in known]
    if tool.input_schema.get("additionalProperties", True) is not False and not known:
        listed.append("**arguments: Any")
    return f"async def {name}({', '.join(listed)}) -> Any: ..."


def checked(code: str, functions: Mapping[str, Tool], *, stored: bool) -> str:
    """Write the stubs that a script needs: those of the tools that it names, and of all helpers."""
    named = set(re.findall(r"\w+", code))
    lines = ["from typing import Any"]
    lines += [line for name, line in HELPERS.items() if stored or name not in WITH_STORE]
    lines += [stub(name, functions[name]) for name in sorted(named & functions.keys())]
    return "\n".join(lines) + "\n"


def _type(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    """Name the type of a value.

    Kept wide on purpose: a type that is narrower than what the checker can follow would refuse
    scripts that work. Enumerations, items and fields are checked when the tool is called.
    """
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "Any"
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _type(_resolved(reference, root), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list) and options:
            return _union(_type(option, root, depth + 1) for option in options)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union(_SIMPLE.get(str(name), "Any") for name in kind)
    return _SIMPLE.get(kind, "Any") if isinstance(kind, str) else "Any"


def _union(kinds: Iterable[str]) -> str:
    known = list(dict.fromkeys(kinds))
    return "Any" if "Any" in known or not known else " | ".join(known)


def _resolved(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
    return found

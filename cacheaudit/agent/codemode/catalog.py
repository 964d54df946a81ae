"""What the model is told of scripts: fixed when a session opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cacheaudit.agent.codemode.stubs import HELPERS, WITH_STORE, stub
from cacheaudit.agent.outputs.size import estimated
from cacheaudit.agent.tools.tool import Tool

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"script": {"type": "string", "description": "Python source."}},
    "required": ["script"],
    "additionalProperties": False,
}
_RULES: Final = """\
Runs a Python script that calls tools and returns only what it says: use it for several calls, and
to filter what they return. You see text(), print(), the value of the last expression and errors;
results of tools stay in the script.
Tools are functions; await them, together with asyncio.gather (import asyncio first; it takes no
return_exceptions). A failed call raises; other calls and output so far remain. Types are checked
before anything runs.
The language is a part of Python: no generators (yield), no files, no network; of the standard
library json, re, math, datetime, asyncio, collections, itertools, functools, random, csv, base64,
hashlib, dataclasses, typing, time. Nothing is kept between scripts but what store() keeps.
Helpers:"""
_NOTES: Final = {
    "text": "output for you",
    "store": "keep a JSON value for later scripts",
    "load": "get it back",
    "search_tools": "find more tools: name, function, description",
    "describe_tool": "signature and schema of one",
    "excerpt": "beginning, end and failures of a long text",
    "save_output": "keep a full text outside; returns a handle",
    "read_output": "rows of a kept text",
    "search_output": "rows that match a regular expression",
}


def description(functions: Mapping[str, Tool], most: int, *, stored: bool) -> str:
    """Describe the tool that runs scripts.

    Args:
        functions: Tools of this program, by the name of their function. Those of servers are not
            listed, since they may come late: scripts find them.
        most: Estimated tokens that the list may take; what does not fit is found by search.
        stored: Whether there is a store of outputs.
    """
    lines = [_RULES]
    for name, line in HELPERS.items():
        if stored or name not in WITH_STORE:
            lines.append(f"{line.removesuffix(': ...')}  # {_NOTES[name]}")
    listed = [_entry(name, tool) for name, tool in sorted(functions.items()) if not tool.source]
    kept: list[str] = []
    for entry in listed:
        most -= estimated(entry + "\n")
        if most < 0:
            break
        kept.append(entry)
    if kept:
        lines += ["Tools:", *kept]
    lines.append("More tools may exist: search_tools() finds them, in a script too.")
    return "\n".join(lines)


def _entry(name: str, tool: Tool) -> str:
    first = tool.description.strip().split("\n")[0]
    return f"{stub(name, tool).removesuffix(': ...')}  # {first}"

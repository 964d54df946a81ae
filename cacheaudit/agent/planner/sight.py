"""Text at the front that looks made anew, told from the first request on: nothing is proved yet.

What two requests show counts more (:mod:`~cacheaudit.agent.planner.volatile`); this comes before
the second one is paid for. Nothing of a text leaves this module but kind and place.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cacheaudit.agent.planner.notes import Notes

_LOG: Final = logging.getLogger("cacheaudit.agent.planner")
_PATTERNS: Final = (
    (
        "clock",
        re.compile(
            r"\b\d{4}-\d{2}-\d{2}[T ]\d{1,2}:\d{2}"
            r"|\b\d{1,2}[./]\d{1,2}[./]\d{2,4},? \d{1,2}:\d{2}"
            r"|(?i:\b(?:time|now|clock)\b\W{1,5}(?:is\W{1,5})?\d{1,2}:\d{2}\b)"
        ),
    ),
    (
        "id",
        re.compile(
            r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
            r"|(?i:\b(?:nonce|(?:request|trace|run|turn|correlation)[ _-]?id)\b"
            r"['\"]?\s*[=:]\s*['\"]?(?=[\w-]*\d)[\w-]{4,})"
            r"|\b\w{2,24}=(?=[0-9a-f]*\d)[0-9a-f]{5,}\b"
        ),
    ),
    ("git", re.compile(r"(?m)^(?i:git[ _]?status\b)|^On branch \S+$|^Untracked files:")),
)
_EXAMPLE: Final = re.compile(r"(?i)(?:e\.g\.?|example|such as|format|like|i\.e\.?|pattern)\W*\Z")
_BEFORE: Final = 24
# Longer texts are not looked through: it would hold up the call.
_LONGEST: Final = 200_000


def look(body: Mapping[str, Any], notes: Notes) -> None:
    """Note what looks made anew in the tools and the system prompt of a first request."""
    for path, text in _texts(body):
        kind = looks_like(text) if len(text) <= _LONGEST else None
        if kind is not None and notes.suspects(path, kind):
            _LOG.info(
                "%s holds what looks like %s: whatever stands behind it misses once it changes",
                path,
                "an id" if kind == "id" else f"a {kind}",
            )


def looks_like(text: str) -> str | None:
    """Return the kind of the first text that looks made anew; ``None``: there is none."""
    hits = [
        (match.start(), kind)
        for kind, pattern in _PATTERNS
        for match in pattern.finditer(text)
        if not _EXAMPLE.search(text[max(0, match.start() - _BEFORE) : match.start()])
    ]
    return min(hits)[1] if hits else None


def _texts(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        text = tool.get("description") if isinstance(tool, dict) else None
        if isinstance(text, str):
            yield f"tools[{index}].description", text
    system = body.get("system")
    blocks = [{"text": system}] if isinstance(system, str) else system
    for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            yield f"system[{index}]", text

"""Request bodies for tests of ``lint``, and the problems found in them."""

from __future__ import annotations

from typing import Any

from cacheaudit.jobs.lint import lint_body
from cacheaudit.jobs.linting.catalogue import CHECKS, Problem

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
# 2026-11-30
NOW = 1_795_996_800.0
LONG = "The quick brown fox jumps over the lazy dog and runs into the deep forest. " * 400


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def body(**changes: Any) -> dict[str, Any]:
    """A healthy request: long, marked at its end."""
    made: dict[str, Any] = {
        "model": "claude-sonnet-4-6",
        "max_tokens": 100,
        "system": [text(LONG)],
        "messages": [{"role": "user", "content": [text("Go on.", cache_control=MARK)]}],
    }
    made.update(changes)
    return made


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"Does {name}.",
        "input_schema": {"type": "object"},
        **more,
    }


def found(request: dict[str, Any], **settings: Any) -> list[Problem]:
    return lint_body(request, at=NOW, **settings)


def by_rule(request: dict[str, Any], **settings: Any) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for item in found(request, **settings):
        assert item.level == CHECKS[item.rule].level
        grouped.setdefault(item.rule, []).append(item.path)
    return grouped


def turn(*blocks: dict[str, Any], role: str = "user", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks), **more}

"""The record's own request bodies, for replays that are asked to send them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.ingest.lines import parse, raw_lines
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Call

_HOLDERS: Final = ("request", "body")
_ROOM: Final = 4_096
_KEPT: Final = (
    "messages", "system", "tools", "tool_choice", "cache_control", "thinking", "output_config",
    "speed",
)  # fmt: skip


def own_bodies(calls: Iterable[Call]) -> dict[str, dict[str, Any]]:
    """Read the bodies of calls that stand in a file with one record a line, by call id."""
    wanted: dict[str, dict[int, str]] = {}
    for call in calls:
        if call.origin is not None and call.origin.line:
            wanted.setdefault(call.origin.file, {})[call.origin.line] = call.id
    found: dict[str, dict[str, Any]] = {}
    for file, lines in wanted.items():
        path = Path(file)
        if not path.is_file():
            continue
        problems = Problems()
        for number, _, line in raw_lines(path, problems):
            name = lines.get(number)
            body = None if name is None else _body(parse(line, f"{file}:{number}", problems))
            if name is not None and body is not None:
                found[name] = body
    return found


def longest_body(bodies: Mapping[str, Mapping[str, Any]]) -> int:
    """Bytes of the longest body: no server counts more tokens, but for pictures."""
    return max((len(msgspec.json.encode(body)) for body in bodies.values()), default=0) + _ROOM


def sendable(body: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Ask the same with an answer of one token."""
    made = {name: body[name] for name in _KEPT if body.get(name) is not None}
    thinking = made.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        made["thinking"] = {**thinking, "type": "adaptive"}
    return {**made, "model": model, "max_tokens": 1, "temperature": 0}


def _body(record: Any) -> dict[str, Any] | None:
    if not isinstance(record, dict):
        return None
    for name in _HOLDERS:
        body = record.get(name)
        if isinstance(body, str):
            try:
                body = msgspec.json.decode(body)
            except msgspec.DecodeError:
                continue
        if isinstance(body, dict) and isinstance(body.get("messages"), list):
            return body
    return record if isinstance(record.get("messages"), list) else None

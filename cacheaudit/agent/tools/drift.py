"""Names where the tools of a request differ from those that a session began with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cacheaudit._typing import override

# Markers are no part of the prompt.
_APART = frozenset({"cache_control"})
# Name, and how many of that name come before it.
_Key = tuple[str, int]


class Drift(msgspec.Struct, frozen=True):
    """One difference.

    Attributes:
        tool: Name of the tool; empty where an entry has none.
        field: What of it differs, such as ``input_schema.properties.run_id.type``; ``tools`` where
            the tool itself is too much, missing, or in another place.
        what: ``added``, ``removed``, ``moved`` or ``changed``.
    """

    tool: str
    field: str
    what: str

    @override
    def __str__(self) -> str:
        return f"{self.tool!r}: {self.field} {self.what}"


def compare(before: Sequence[Any], after: Sequence[Any]) -> list[Drift]:
    """Compare two lists of declarations; the first difference in the order of the list is first."""
    old, new = _keyed(before), _keyed(after)
    found = [(key, Drift(key[0], "tools", "removed")) for key in old if key not in new]
    common: list[_Key] = []
    for key, tool in new.items():
        if key not in old:
            found.append((key, Drift(key[0], "tools", "added")))
            continue
        common.append(key)
        found += [(key, Drift(key[0], field, "changed")) for field in fields(old[key], tool)]
    order = [key for key in old if key in new]
    found += [
        (key, Drift(key[0], "tools", "moved"))
        for key, other in zip(common, order, strict=True)
        if key != other
    ]
    places = {key: place for place, key in enumerate(dict.fromkeys([*old, *new]))}
    return [drift for _, drift in sorted(found, key=lambda item: places[item[0]])]


def _keyed(tools: Sequence[Any]) -> dict[_Key, Any]:
    """Tell tools of one name apart: a tool that is declared twice is one more declaration."""
    seen: Counter[str] = Counter()
    made: dict[_Key, Any] = {}
    for tool in tools:
        name = _name(tool)
        made[name, seen[name]] = tool
        seen[name] += 1
    return made


def fields(before: Any, after: Any, path: str = "") -> list[str]:
    """Name the fields in which two declarations differ; the order of keys counts as one."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _of_mappings(before, after, path)
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        if len(before) != len(after):
            return [path or "tool"]
        found: list[str] = []
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            found += fields(old, new, f"{path}[{index}]")
        return found
    same = type(before) is type(after) and before == after
    return [] if same else [path or "tool"]


def _of_mappings(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[str]:
    old = [key for key in before if key not in _APART]
    new = [key for key in after if key not in _APART]
    found: list[str] = []
    for key in dict.fromkeys([*old, *new]):
        inner = f"{path}.{key}" if path else str(key)
        if key in before and key in after:
            found += fields(before[key], after[key], inner)
        else:
            found.append(inner)
    if not found and old != new:
        found.append(f"{path or 'tool'} (order of keys)")
    return found


def _name(tool: Any) -> str:
    if not isinstance(tool, Mapping):
        return ""
    name = tool.get("name") or tool.get("type")
    return name if isinstance(name, str) else ""

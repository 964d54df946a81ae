"""Names where the tools of a request differ from those that a session began with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cacheaudit._typing import override

# Markers are no part of the prompt.
_APART = frozenset({"cache_control"})


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
    old = {_name(tool): tool for tool in before}
    new = {_name(tool): tool for tool in after}
    found = [Drift(name, "tools", "removed") for name in old if name not in new]
    common: list[str] = []
    for name, tool in new.items():
        if name not in old:
            found.append(Drift(name, "tools", "added"))
            continue
        common.append(name)
        found += [Drift(name, field, "changed") for field in fields(old[name], tool)]
    order = [name for name in old if name in new]
    found += [
        Drift(name, "tools", "moved")
        for name, other in zip(common, order, strict=True)
        if name != other
    ]
    places = {name: place for place, name in enumerate(dict.fromkeys([*old, *new]))}
    return sorted(found, key=lambda item: places[item.tool])


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

"""JSON that fits a schema, with what a model wrote at its leaves.

The shape is fixed before the model says anything: all properties (beyond a depth only those that
are required), the fewest items of a list, the first alternative. Each leaf takes a few tokens and
makes a valid value of them, whatever they are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from local_backend.server.errors import InvalidRequestError
from local_backend.server.patterns import MOST_CHARACTERS, CannotFitError, fitting

Schema = Mapping[str, Any]

_DEEP = 4
_DEEPEST = 12
_MOST_PARTS = 10_000
# Every part costs this much, and what is copied for it as many as there are keys.
_PART_WORK = 100
_MOST_WORK = _MOST_PARTS * _PART_WORK
_FORMATS: Mapping[str, str] = {
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "date-time": "2026-01-01T00:00:00Z",
    "duration": "PT1S",
    "email": "nobody@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A place that the model fills.

    Attributes:
        schema: What must stand there.
    """

    schema: Schema = field(default_factory=dict)

    @property
    def is_too_long(self) -> bool:
        """Whether it wants a text of more characters than are made here."""
        return (_whole(self.schema.get("minLength")) or 0) > MOST_CHARACTERS

    def fill(self, tokens: Sequence[int], text: str) -> str:
        """JSON of a valid value.

        Args:
            tokens: What the model wrote for it; may be nothing.
            text: The same as text.
        """
        return _dump(_value(self.schema, tokens, text))


def outline(schema: Schema) -> list[str | Leaf]:
    """Fixed JSON and leaves, in order; put together they are the document.

    Raises:
        InvalidRequestError: The smallest document would be too large, or takes too long to find.
    """
    merged: list[str | Leaf] = []
    for item in _Outline(schema).parts():
        if isinstance(item, str) and merged and isinstance(merged[-1], str):
            merged[-1] += item
        else:
            merged.append(item)
    return merged


class _Outline:
    """Walks through a schema; the work is bounded, since references can multiply it."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_WORK

    def parts(self) -> Iterator[str | Leaf]:
        yield from self._walk(self._resolved(self._root, 0), 0)

    def _spend(self, work: int) -> None:
        self._left -= work
        if self._left < 0:
            raise _too_much()

    def _walk(self, schema: Schema, depth: int) -> Iterator[str | Leaf]:
        kind = _kind(schema)
        if "const" in schema or "enum" in schema or kind not in ("object", "array"):
            leaf = Leaf(schema)
            if leaf.is_too_long:
                raise _too_much()
            yield leaf
        elif kind == "object":
            yield "{"
            for index, (name, inner) in enumerate(_properties(schema, depth)):
                yield f"{',' if index else ''}{_dump(name)}:"
                yield from self._walk(self._resolved(inner, depth + 1), depth + 1)
            yield "}"
        else:
            yield "["
            for index, inner in enumerate(_items(schema, depth)):
                yield "," if index else ""
                yield from self._walk(self._resolved(inner, depth + 1), depth + 1)
            yield "]"

    def _resolved(self, schema: Any, depth: int) -> Schema:
        """A schema without references and alternatives at its top."""
        self._spend(_PART_WORK)
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return {}
        found: Schema = schema
        for _ in range(_DEEPEST):
            self._spend(_size(found))
            if isinstance(found.get("$ref"), str):
                found = self._referred(found)
            elif parts := _listed(found, "allOf"):
                found = self._merged([*parts, _without(found, "allOf")])
            elif parts := _listed(found, "anyOf") or _listed(found, "oneOf"):
                base = _without(_without(found, "anyOf"), "oneOf")
                found = self._merged([base, parts[0]])
            else:
                break
        return found

    def _merged(self, parts: Sequence[Schema]) -> Schema:
        merged: dict[str, Any] = {}
        for part in parts:
            shown = part
            if isinstance(part.get("$ref"), str):
                shown = self._referred(part)
            self._spend(_size(shown) + _size(merged))
            for key, value in shown.items():
                merged[key] = _joined(key, merged.get(key), value)
        return merged

    def _referred(self, schema: Schema) -> Schema:
        """What a schema refers to, with what it says besides."""
        reference = schema["$ref"]
        self._spend(len(reference))
        return {**_pointed(self._root, reference), **_without(schema, "$ref")}


def _joined(key: str, before: Any, value: Any) -> Any:
    """What two schemas that both apply say under one key."""
    if key == "properties" and isinstance(before, Mapping) and isinstance(value, Mapping):
        return {**before, **value}
    if key == "required" and isinstance(before, list) and isinstance(value, list):
        return list(dict.fromkeys(v for v in (*before, *value) if isinstance(v, str)))
    return value


def _size(schema: Schema) -> int:
    """How many things have to be copied with a schema."""
    inner = (schema.get(key) for key in ("properties", "required", "allOf", "anyOf", "oneOf"))
    return len(schema) + sum(len(value) for value in inner if isinstance(value, Mapping | list))


def _too_much() -> InvalidRequestError:
    return InvalidRequestError("", "a schema asks for more than this server fills in")


def _properties(schema: Schema, depth: int) -> list[tuple[str, Any]]:
    known = schema.get("properties")
    known = known if isinstance(known, Mapping) else {}
    listed = schema.get("required")
    listed = listed if isinstance(listed, list) else []
    required = dict.fromkeys(name for name in listed if isinstance(name, str))
    chosen = [name for name in known if depth < _DEEP or name in required]
    chosen += [name for name in required if name not in known]
    return [(name, known.get(name, {})) for name in chosen]


def _items(schema: Schema, depth: int) -> list[Any]:
    prefix = schema.get("prefixItems")
    prefix = list(prefix) if isinstance(prefix, list) else []
    rest = schema.get("items", {})
    rest = rest if isinstance(rest, Mapping) else {}
    least = _whole(schema.get("minItems")) or 0
    most = _whole(schema.get("maxItems"))
    if least > _MOST_PARTS:
        raise _too_much()
    count = max(least, len(prefix) if prefix else int(depth < _DEEP))
    count = count if most is None else min(count, most)
    return (prefix + [rest] * count)[:count]


def _listed(schema: Schema, key: str) -> list[Schema]:
    parts = schema.get(key)
    return [p for p in parts if isinstance(p, Mapping)] if isinstance(parts, list) else []


def _pointed(root: Schema, reference: str) -> Schema:
    """What a reference inside the document points to; nothing where it leads nowhere."""
    found: Any = root
    for name in reference.removeprefix("#").split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _without(schema: Schema, key: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != key}


def _kind(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "string"


def _value(schema: Schema, tokens: Sequence[int], text: str) -> Any:
    draw = _draw(tokens)
    if "const" in schema:
        return schema["const"]
    options = schema.get("enum")
    if isinstance(options, list) and options:
        return options[draw % len(options)]
    kind = _kind(schema)
    if kind == "boolean":
        return draw % 2 == 1
    if kind == "null":
        return None
    if kind in ("integer", "number"):
        with suppress(OverflowError):  # bounds that no number of the machine can hold
            number = _number(schema, draw, whole=kind == "integer")
            return number if math.isfinite(number) else 0
        return 0
    return _string(schema, draw, text)


def _draw(tokens: Sequence[int]) -> int:
    """A number that depends on all tokens; 0 for none."""
    if not tokens:
        return 0
    state = hashlib.blake2b(repr(tuple(tokens)).encode(), digest_size=4)
    return int.from_bytes(state.digest(), "little")


def _number(schema: Schema, draw: int, *, whole: bool) -> float:
    step = schema.get("multipleOf")
    step = step if isinstance(step, int | float) and step > 0 else 1
    if whole:
        step = max(1, math.ceil(step)) if step != int(step) else int(step)
    low, high = _edge(schema, "inimum", math.ceil, step), _edge(schema, "aximum", math.floor, step)
    if low is None:
        low = 0 if high is None or high >= 0 else high - 100
    if high is None:
        high = low + 100
    return (low + draw % max(1, high - low + 1)) * step


def _edge(schema: Schema, name: str, rounding: Any, step: float) -> int | None:
    """A bound in steps, the bound itself left out where it is exclusive."""
    inward = 1 if name == "inimum" else -1
    found = []
    for key, exclusive in ((f"m{name}", False), (f"exclusiveM{name}", True)):
        value = schema.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            edge = rounding(value / step)
            found.append(edge + inward if exclusive and edge * step == value else edge)
    return (max(found) if inward > 0 else min(found)) if found else None


def _string(schema: Schema, draw: int, text: str) -> str:
    known = _FORMATS.get(str(schema.get("format")))
    if known is not None:
        return known
    text = "".join(c for c in text if c.isprintable() or c in "\n\t").replace("\ufffd", "?")
    most, least = _whole(schema.get("maxLength")), _whole(schema.get("minLength")) or 0
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        with suppress(CannotFitError):
            return fitting(pattern, draw, least)
    return text[:most].ljust(least, "x")


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

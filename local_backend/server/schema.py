"""JSON that fits a schema, with what a model wrote at its leaves.

The shape is fixed before the model says anything: all properties (beyond a depth only those that
are required), the fewest items of a list, the first alternative. Each leaf takes a few tokens and
makes a valid value of them, whatever they are.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Schema = Mapping[str, Any]

_DEEP = 4
_DEEPEST = 12
_MOST_ITEMS = 64
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

    def fill(self, tokens: Sequence[int], text: str) -> str:
        """JSON of a valid value.

        Args:
            tokens: What the model wrote for it; may be nothing.
            text: The same as text.
        """
        return _dump(_value(self.schema, tokens, text))


def outline(schema: Schema) -> list[str | Leaf]:
    """Fixed JSON and leaves, in order; put together they are the document."""
    merged: list[str | Leaf] = []
    for item in _walk(_resolve(schema, schema, 0), schema, 0):
        if isinstance(item, str) and merged and isinstance(merged[-1], str):
            merged[-1] += item
        else:
            merged.append(item)
    return merged


def _walk(schema: Schema, root: Schema, depth: int) -> Iterator[str | Leaf]:
    kind = _kind(schema)
    if "const" in schema or "enum" in schema or kind not in ("object", "array"):
        yield Leaf(schema)
    elif kind == "object":
        yield "{"
        for index, (name, inner) in enumerate(_properties(schema, depth)):
            yield f"{',' if index else ''}{_dump(name)}:"
            yield from _walk(_resolve(inner, root, depth + 1), root, depth + 1)
        yield "}"
    else:
        yield "["
        for index, inner in enumerate(_items(schema, depth)):
            yield "," if index else ""
            yield from _walk(_resolve(inner, root, depth + 1), root, depth + 1)
        yield "]"


def _properties(schema: Schema, depth: int) -> list[tuple[str, Any]]:
    known = schema.get("properties")
    known = known if isinstance(known, Mapping) else {}
    required = [name for name in schema.get("required") or () if isinstance(name, str)]
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
    count = max(least, len(prefix) if prefix else int(depth < _DEEP))
    count = min(count, _MOST_ITEMS if most is None else most)
    return (prefix + [rest] * count)[:count]


def _resolve(schema: Any, root: Schema, depth: int) -> Schema:
    """A schema without references and alternatives at its top."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return {}
    found: Schema = schema
    for _ in range(_DEEPEST):
        if isinstance(found.get("$ref"), str):
            found = {**_pointed(root, found["$ref"]), **_without(found, "$ref")}
        elif parts := _listed(found, "allOf"):
            found = _merged([*parts, _without(found, "allOf")], root)
        elif parts := _listed(found, "anyOf") or _listed(found, "oneOf"):
            base = _without(_without(found, "anyOf"), "oneOf")
            found = _merged([base, parts[0]], root)
        else:
            break
    return found


def _listed(schema: Schema, key: str) -> list[Schema]:
    parts = schema.get(key)
    return [p for p in parts if isinstance(p, Mapping)] if isinstance(parts, list) else []


def _merged(parts: Sequence[Schema], root: Schema) -> Schema:
    merged: dict[str, Any] = {}
    for part in parts:
        shown = part
        if isinstance(part.get("$ref"), str):
            shown = {**_pointed(root, part["$ref"]), **_without(part, "$ref")}
        for key, value in shown.items():
            if key == "properties" and isinstance(value, Mapping):
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required" and isinstance(value, list):
                merged[key] = [
                    *merged.get(key, []),
                    *(v for v in value if v not in merged.get(key, [])),
                ]
            else:
                merged[key] = value
    return merged


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
        return _number(schema, draw, whole=kind == "integer")
    return _string(schema, text)


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


def _string(schema: Schema, text: str) -> str:
    known = _FORMATS.get(str(schema.get("format")))
    if known is not None:
        return known
    text = "".join(c for c in text if c.isprintable() or c in "\n\t").replace("\ufffd", "?")
    most, least = _whole(schema.get("maxLength")), _whole(schema.get("minLength")) or 0
    text = text[:most].ljust(least, "x")
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        return _fitting(pattern, text, least, most)
    return text


def _fitting(pattern: str, text: str, least: int, most: int | None) -> str:
    """A text that fits a pattern, out of a few guesses; the first one where none does."""
    lengths = range(least, (most if most is not None else least + 40) + 1)
    guesses = [text, *(c * n for n in lengths[:41] for c in "a0A-_/.")]
    try:
        compiled = re.compile(pattern)
    except re.error:
        return text
    return next((guess for guess in guesses if compiled.search(guess)), text)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

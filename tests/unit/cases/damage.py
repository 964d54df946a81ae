"""Damage done to files at random, by seed: bytes, lines, values and structure."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, -(10**30), 1.5, 1e308, 1e18, 1e300, 2**63, 2**64, 253402300800, "",
    "x", "-5", "1e999", "NaN", "\0", "é" * 50, "a" * 5000, "2026-13-45T99:99:99Z", "<synthetic>",
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", [], {}, [[]], [None], {"a": None}, "{",
    {"type": "x"}, [{"type": "text"}], [{"type": 1}], {"usage": {}}, {"text": 5}, {"content": 5},
    {"input_tokens": "5"}, [{"role": 5, "content": 5}], '{"a": 1}', "../../../etc/passwd",
)  # fmt: skip
_NUMBERS = (b"NaN", b"Infinity", b"9" * 400, b"1e400", b"-1", b"00", b"0x1F")


def _nested(chance: random.Random) -> Any:
    value: Any = 1
    for _ in range(chance.choice([50, 300])):
        value = {"a": value} if chance.random() < 0.5 else [value]
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def _value(chance: random.Random, value: Any) -> Any:
    places = _places(value) if isinstance(value, dict | list) else []
    for _ in range(chance.choice([1, 1, 2, 5]) if places else 0):
        holder, key = chance.choice(places)
        other, place = chance.choice(places)
        try:
            match chance.randrange(5):
                case 0:
                    holder[key] = _nested(chance)
                case 1:
                    holder[key] = json.loads(json.dumps(other[place]))
                case 2:
                    del holder[key]
                case 3 if isinstance(holder, dict):
                    holder[f"{key}_"] = holder.pop(key)
                case _:
                    holder[key] = json.loads(json.dumps(chance.choice(WRONG)))
        except (KeyError, IndexError):
            continue
    return value


def _text(chance: random.Random, line: str) -> str:
    try:
        return json.dumps(_value(chance, json.loads(line)), ensure_ascii=chance.random() < 0.5)
    except ValueError:
        mark = "," if "," in line else "\t"
        cells = line.split(mark)
        cells[chance.randrange(len(cells))] = str(chance.choice(WRONG))
        return mark.join(cells)


def _structure(chance: random.Random, data: bytes) -> bytes:
    text = data.decode(errors="replace")
    try:
        json.loads(text)
        return _text(chance, text).encode("utf-8", "surrogatepass")
    except ValueError:
        lines = text.split("\n")[:60]
    for _ in range(chance.choice([1, 3, 8])):
        place = chance.randrange(len(lines))
        lines[place] = _text(chance, lines[place])
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _cut(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data))]


def _hole(chance: random.Random, data: bytes) -> bytes:
    start = chance.randrange(len(data))
    return data[:start] + bytes(chance.choice([0, 0, 90])) + data[start + chance.randrange(300) :]


def _flips(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 5, 50])):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _numbers(chance: random.Random, data: bytes) -> bytes:
    def one(found: re.Match[bytes]) -> bytes:
        return chance.choice(_NUMBERS) if chance.random() < 0.1 else found[0]

    return re.sub(rb"\d+", one, data)


def _coded(chance: random.Random, data: bytes) -> bytes:
    name = chance.choice(["utf-16", "utf-16-be", "utf-32", "latin-1", "cp037", "utf-8-sig"])
    return data.decode(errors="replace").encode(name, errors="replace")


def _repeated_keys(chance: random.Random, data: bytes) -> bytes:
    return data.replace(b"{", b'{"id": "twice", "usage": 5, "type": [],', chance.choice([1, 9]))


def _halves(chance: random.Random, data: bytes) -> bytes:
    return data.replace(b'": "', rb'": "\ud83d', chance.choice([1, 30]))


def _line_ends(chance: random.Random, data: bytes) -> bytes:
    return data.replace(b"\n", chance.choice([b"\r\n", b"\r", b"\n\n \n"]))


def _too_deep(chance: random.Random, data: bytes) -> bytes:
    return b"[" * chance.choice([600, 100_000]) + data


_WAYS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _cut, _hole, _flips, _numbers, _coded, _repeated_keys, _halves, _line_ends, _too_deep,
)  # fmt: skip


def damaged(seed: int, data: bytes) -> bytes:
    """Damage a file; the same seed does the same damage."""
    chance = random.Random(seed)
    if not data or chance.random() < 0.6:
        return _structure(chance, data)
    return chance.choice(_WAYS)(chance, data[:50_000])

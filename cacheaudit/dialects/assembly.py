"""Puts the content of a streamed response together, block by block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

_TEXT_DELTAS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "compaction_delta": "content",
}


class _Block:
    """A block under construction: fields as they came, and pieces of text to be joined once."""

    __slots__ = ("fields", "json", "pieces")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.pieces: dict[str, list[str]] = {}
        self.json: list[str] = []

    def add(self, field: str, piece: Any) -> None:
        """Append text to a field."""
        if isinstance(piece, str):
            self.pieces.setdefault(field, []).append(piece)

    def finish(self) -> dict[str, Any]:
        """Return the block as far as it came."""
        done = dict(self.fields)
        for field, pieces in self.pieces.items():
            before = done.get(field)
            done[field] = (before if isinstance(before, str) else "") + "".join(pieces)
        if self.json:
            text = "".join(self.json)
            use = done.get("toolUse")
            target = dict(use) if isinstance(use, dict) else done
            try:
                target["input"] = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                target["partial_json"] = text
            if target is not done:
                done["toolUse"] = target
        return done


class Assembly:
    """Collects content blocks from the events of any supported API."""

    def __init__(self) -> None:
        self._open: dict[Any, _Block] = {}
        self._whole: list[dict[str, Any]] | None = None

    def blocks(self) -> tuple[dict[str, Any], ...]:
        """Return the blocks in the order of their index."""
        if self._whole is not None:
            return tuple(self._whole)
        return tuple(block.finish() for block in self._open.values())

    def _at(self, key: Any, fields: dict[str, Any]) -> _Block:
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = _Block(fields)
        return found

    def messages(self, kind: str, event: Mapping[str, Any]) -> None:
        """Take an event of the Messages API."""
        index = event.get("index")
        index = index if isinstance(index, int) else len(self._open)
        if kind == "content_block_start":
            block = event.get("content_block")
            self._open[index] = _Block(dict(block) if isinstance(block, dict) else {})
            return
        delta = event.get("delta")
        if kind != "content_block_delta" or not isinstance(delta, dict):
            return
        block = self._at(index, {})
        name = delta.get("type")
        if name == "input_json_delta":
            piece = delta.get("partial_json")
            if isinstance(piece, str) and piece:
                block.json.append(piece)
        elif name == "citations_delta":
            old = block.fields.get("citations")
            block.fields["citations"] = [*(old or []), delta.get("citation")]
        elif isinstance(name, str) and name in _TEXT_DELTAS:
            block.add(_TEXT_DELTAS[name], delta.get(_TEXT_DELTAS[name]))

    def chat(self, delta: Any) -> None:
        """Take the delta of a Chat Completions chunk."""
        if not isinstance(delta, dict):
            return
        for field in ("reasoning_content", "reasoning"):
            if isinstance(delta.get(field), str) and delta[field]:
                self._at("reasoning", {"type": "reasoning"}).add("text", delta[field])
                break
        if isinstance(delta.get("content"), str) and delta["content"]:
            self._at("text", {"type": "text"}).add("text", delta["content"])
        calls = delta.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else []):
            if isinstance(call, dict):
                self._call(call, position)

    def _call(self, call: Mapping[str, Any], position: int) -> None:
        index = call.get("index")
        key = ("call", index if isinstance(index, int) else position)
        block = self._at(key, {"type": "tool_call", "id": None, "name": None, "arguments": ""})
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        for field, value in (("id", call.get("id")), ("name", function.get("name"))):
            if isinstance(value, str) and value:
                block.fields[field] = value
        block.add("arguments", function.get("arguments"))

    def gemini(self, content: Any) -> None:
        """Take the content of a Gemini chunk; runs of text become one part."""
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else []:
            if not isinstance(part, dict):
                continue
            last = next(reversed(self._open.values()), None)
            if set(part) <= {"text", "thought"} and isinstance(part.get("text"), str):
                kind = {k: v for k, v in part.items() if k != "text"}
                if last is None or last.fields != kind:
                    last = self._open[len(self._open)] = _Block(kind)
                last.add("text", part["text"])
            else:
                self._open[len(self._open)] = _Block(dict(part))

    def converse(self, event: Mapping[str, Any]) -> None:
        """Take an event of the Converse stream."""
        start, delta = event.get("contentBlockStart"), event.get("contentBlockDelta")
        if isinstance(start, dict):
            begun = start.get("start")
            self._open[start.get("contentBlockIndex")] = _Block(
                {key: dict(v) for key, v in begun.items() if isinstance(v, dict)}
                if isinstance(begun, dict)
                else {}
            )
        inner = delta.get("delta") if isinstance(delta, dict) else None
        if not isinstance(delta, dict) or not isinstance(inner, dict):
            return
        block = self._at(delta.get("contentBlockIndex"), {})
        block.add("text", inner.get("text"))
        use = inner.get("toolUse")
        if isinstance(use, dict) and isinstance(use.get("input"), str):
            block.json.append(use["input"])

    def item(self, item: Any) -> None:
        """Take a finished output item of the Responses API."""
        if isinstance(item, dict):
            self._open[len(self._open)] = _Block(dict(item))

    def output(self, output: Any) -> None:
        """Take the whole output of the Responses API, which replaces what came before."""
        if isinstance(output, list):
            self._whole = [dict(item) for item in output if isinstance(item, dict)]

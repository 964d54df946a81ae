"""One recorded content block as one of the Messages API with a wanted number of tokens.

What a block is stays: a tool, a call of one, its result, thinking, a picture, a document; the rest
is sent as text. JSON around a content takes tokens too; a content that shall be smaller than its
JSON is sent as small as it gets, and the comparison goes by content blocks, not by tokens sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cacheaudit.jobs.replaying.filler import filler
from cacheaudit.model.prompt import ContentBlock

_MOST_NAME: Final = 64
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_SCHEMA: Final[Mapping[str, Any]] = {"type": "object"}


class Encoding(msgspec.Struct, frozen=True):
    """How a server turns a request into tokens.

    Attributes:
        bytes_per_token: Of text; 1 for a byte-level tokenizer.
        turn_tokens: That stand where the speaker changes.
        is_ours: Whether it is this project's server, which takes thinking without a signature and
            pictures by address.
    """

    bytes_per_token: float = 1.0
    turn_tokens: int = 1
    is_ours: bool = True


BYTES: Final = Encoding()


class Names:
    """Short names in place of recorded ones, the same for the same."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._tools: dict[bytes, str] = {}

    def call(self, recorded: str) -> str:
        """Name a tool call by its recorded id."""
        return self._calls.setdefault(recorded, f"c{len(self._calls)}")

    def tool(self, digest: bytes) -> str:
        """Name a tool by the digest of its definition."""
        return self._tools.setdefault(digest, f"t{len(self._tools)}")


class Content(msgspec.Struct, frozen=True):
    """What one content block is to become.

    Attributes:
        block: As recorded.
        room: Bytes that it shall take.
        turn: Tokens that name the speaker before it.
        lead: First character of its text.
        is_paired: Whether a tool call has its result, and a result its call.
    """

    block: ContentBlock
    room: int
    turn: int
    lead: str
    is_paired: bool = False

    def text(self, room: int) -> str:
        """Draw text for some bytes."""
        return (self.lead + filler(self.block.digest, room)[1:]) if room > 0 else ""


def tool(content: Content, names: Names) -> dict[str, Any]:
    """Write a tool definition."""
    name = names.tool(content.block.digest)
    made: dict[str, Any] = {"name": name, "input_schema": _SCHEMA}
    spare = content.room - _length(made)
    if spare <= 0:
        return made
    described = {"name": name, "description": "", "input_schema": _SCHEMA}
    rest = content.room - _length(described)
    if rest > 0:
        return described | {"description": content.text(rest)}
    return made | {"name": name + _padding(spare)}


def written(content: Content, names: Names, encoding: Encoding) -> dict[str, Any]:
    """Write a content block of system or messages, without its marker."""
    block = content.block
    if block.level == "messages" and block.name is not None and content.is_paired:
        if block.kind == "tool_use":
            return {"type": "tool_use", **_tool_use(content, names.call(block.name))}
        if block.kind == "tool_result":
            return _tool_result(content, names.call(block.name))
    if encoding.is_ours and block.kind in _THINKING and block.role == "assistant":
        return {"type": "thinking", "thinking": content.text(content.room), "signature": ""}
    if block.role == "user" and block.kind == "image" and encoding.is_ours:
        return {"type": "image", "source": {"type": "url", "url": filler(block.digest, 16)}}
    if block.role == "user" and block.kind == "document":
        source = {"type": "text", "media_type": "text/plain", "data": content.text(_room(content))}
        return {"type": "document", "source": source}
    return {"type": "text", "text": content.text(_room(content))}


def _room(content: Content) -> int:
    return max(content.room, 1)


def _tool_use(content: Content, name: str) -> dict[str, Any]:
    made: dict[str, Any] = {"id": name, "name": "u", "input": {}}
    spare = content.room - _length(made)
    if spare <= 0:
        return made
    rest = content.room - _length(made | {"input": {"x": ""}})
    if rest > 0:
        return made | {"input": {"x": content.text(rest)}}
    return made | {"name": "u" + _padding(spare)}


def _tool_result(content: Content, name: str) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": name}
    # A line with the id stands before what the tool returned.
    rest = content.room - len(name) - 1
    if rest > 0:
        made["content"] = [{"type": "text", "text": content.text(rest)}]
    return made


def _padding(length: int) -> str:
    return "_" * min(length, _MOST_NAME)


def _length(value: Mapping[str, Any]) -> int:
    """Bytes of what the server shows the model."""
    return len(json.dumps(value, separators=(",", ":")))

"""Request bodies for an engine: every content block with its recorded size, without its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from cacheaudit.jobs.replaying.blocks import BYTES, Content, Encoding, Names, tool, written
from cacheaudit.jobs.replaying.filler import Leads, follow, root
from cacheaudit.jobs.replaying.settings import Sent, settings_of
from cacheaudit.model.prompt import ContentBlock, Marker, Prompt

_ROLES: Final = {
    "assistant": "assistant", "model": "assistant", "system": "system", "developer": "system",
}  # fmt: skip


class Body(msgspec.Struct, frozen=True):
    """A request as it is sent.

    Attributes:
        json: The body.
        planned: Tokens that each content block shall have on the server, in render order.
        turns: How many of these name the speaker, where it changes.
        unsent: Settings in the cache key that the server cannot be told.
    """

    json: dict[str, Any]
    planned: tuple[int, ...]
    turns: tuple[int, ...]
    unsent: tuple[str, ...] = ()


class Writer:
    """Writes the requests of a session; equal content behind an equal prefix stays equal.

    Args:
        scale: Recorded tokens that one token stands for.
        marked: Whether the server goes by markers and levels. Otherwise only the text counts, and
            tools are sent as text, so that different ones differ from their first token.
        encoding: How the server turns text into tokens.
    """

    def __init__(self, scale: int = 1, *, marked: bool = True, encoding: Encoding = BYTES) -> None:
        self._scale = scale
        self._marked = marked
        self._encoding = encoding
        self._names = Names()
        self._leads = Leads()

    def write(
        self, prompt: Prompt, blocks: Sequence[ContentBlock], tokens: Sequence[int], model: str
    ) -> Body:
        """Write one request.

        Args:
            prompt: Whose settings and automatic marker it gets.
            blocks: Content blocks in render order.
            tokens: Their recorded sizes.
            model: Name to ask for.
        """
        planned = tuple(scaled(size, self._scale) for size in tokens)
        contents = self._contents(blocks, planned)
        body: dict[str, Any] = {"model": model, "max_tokens": 1, "temperature": 0}
        made = [(c.block, tool(c, self._names)) for c in contents if self._is_tool(c)]
        tools = [self._marker(definition, block) for block, definition in made]
        system = [self._block(c) for c in contents if self._is_front(c)]
        messages = list(self._messages(contents))
        sent = Sent()
        if self._marked:
            named = {block.name: definition["name"] for block, definition in made}
            sent = settings_of(prompt.parameters, named, is_ours=self._encoding.is_ours)
            body |= sent.fields
            if prompt.automatic_marker is not None:
                body["cache_control"] = _marker(prompt.automatic_marker)
        if tools:
            body["tools"] = tools
        if system:
            body["system"] = system
        body["messages"] = messages or [{"role": "user", "content": "."}]
        return Body(body, planned, tuple(c.turn for c in contents), sent.unsent)

    def _contents(self, blocks: Sequence[ContentBlock], planned: Sequence[int]) -> list[Content]:
        paired = _paired(blocks)
        found: list[Content] = []
        prefix, speaker = root(), ""
        for index, (block, tokens) in enumerate(zip(blocks, planned, strict=True)):
            now = _speaker(block)
            turn = self._encoding.turn_tokens if now != speaker else 0
            room = max(0, round((tokens - turn) * self._encoding.bytes_per_token))
            identity = block.digest + tokens.to_bytes(8, "little")
            lead = self._leads.lead(prefix, identity)
            found.append(Content(block, room, turn, lead, index in paired))
            prefix, speaker = follow(prefix, identity), now
        return found

    def _is_tool(self, content: Content) -> bool:
        return self._marked and content.block.level == "tools"

    def _is_front(self, content: Content) -> bool:
        return content.block.level != "messages" and not self._is_tool(content)

    def _messages(self, contents: Sequence[Content]) -> Iterator[dict[str, Any]]:
        current: dict[str, Any] | None = None
        place: tuple[int, str] | None = None
        for content in contents:
            block = content.block
            if block.level != "messages":
                continue
            here = (block.message, _speaker(block))
            if current is None or here != place:
                if current is not None:
                    yield current
                current, place = {"role": here[1], "content": []}, here
            current["content"].append(self._block(content))
        if current is not None:
            yield current

    def _block(self, content: Content) -> dict[str, Any]:
        made = written(content, self._names, self._encoding)
        return self._marker(made, content.block)

    def _marker(self, made: dict[str, Any], block: ContentBlock) -> dict[str, Any]:
        if block.marker is not None and self._marked:
            made["cache_control"] = _marker(block.marker)
        return made


def scaled(tokens: int, scale: int) -> int:
    """Divide a size, to the nearest whole token and never to nothing."""
    return max(1, (2 * tokens + scale) // (2 * scale))


def _marker(marker: Marker) -> dict[str, str]:
    found = {"type": "ephemeral"}
    return found if marker.ttl is None else found | {"ttl": marker.ttl}


def _speaker(block: ContentBlock) -> str:
    if block.level != "messages":
        return "system"
    return _ROLES.get(block.role or "", "user")


class _Turn(msgspec.Struct):
    """What one speaker says in a row: tool calls and results by id."""

    role: str
    tool_use: dict[str, int] = {}
    tool_result: dict[str, int] = {}

    def note(self, block: ContentBlock, index: int) -> None:
        """Note a tool call or a result."""
        kinds = {"tool_use": self.tool_use, "tool_result": self.tool_result}
        found = kinds.get(block.kind)
        if found is not None and block.name is not None:
            found.setdefault(block.name, index)


def _paired(blocks: Sequence[ContentBlock]) -> set[int]:
    """Find the tool calls and results that a server accepts: each call answered in the next turn.

    Calls of the last turn need no answer yet.
    """
    turns: list[_Turn] = []
    for index, block in enumerate(blocks):
        role = _speaker(block)
        if block.level != "messages" or role == "system":
            continue
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role))
        turns[-1].note(block, index)
    found: set[int] = set()
    for place, turn in enumerate(turns):
        if turn.role != "assistant":
            continue
        if place + 1 == len(turns):
            found.update(turn.tool_use.values())
            continue
        results = turns[place + 1].tool_result
        found.update(i for name, i in turn.tool_use.items() if name in results)
        found.update(i for name, i in results.items() if name in turn.tool_use)
    return found

"""Requests with the usage that follows from them, for rules whose examples need bodies.

Content blocks get fixed sizes by what they are, so that every figure of an example can be checked
by hand. What is read and written comes from a cache that is played naively here: small on purpose,
and without anything of :mod:`cacheaudit.simulate`, which the examples are a test of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cacheaudit.model.call import Call, CallError, MissReason, Session
from cacheaudit.model.prompt import ContentBlock, Prompt
from cacheaudit.model.tokens import with_recorded_tokens
from cacheaudit.model.usage import Usage
from cacheaudit.providers.registry import expand

MODEL = "claude-opus-5"
TOOL, SYSTEM, TEXT = 1_500, 4_000, 2_500
SIZES = {"thinking": 1_200, "image": 1_600, "tool_use": 300, "tool_result": 6_000, "settings": 10}
MARKS = ("tools", "system", "last")
_MINIMUM = 1_024
_LIFETIME = 300.0
_LOOKBACK = 20
_STEP = 128
# Models whose automatic caches bill what they write.
_WRITING = ("gpt-5.6", "gpt-6")
_RUNS = ("tool_use", "tool_result")

Content = str | dict[str, Any] | Sequence[str | dict[str, Any]]


class Scene:
    """Sends requests one after the other; every method returns the scene.

    Args:
        provider: Provider of the calls; but for ``anthropic`` the cache needs no markers.
        model: Model of the calls.
        surface: Surface of the calls.
    """

    def __init__(
        self, *, provider: str = "anthropic", model: str = MODEL, surface: str | None = None
    ) -> None:
        self._provider = provider
        self._model = model
        self._surface = surface
        self._calls: list[Call] = []
        self._at = 0.0
        self._entries: dict[bytes, float] = {}

    def send(
        self,
        body: Mapping[str, Any],
        *,
        after: float = 35.0,
        lane: str = "main",
        purpose: str = "main",
        reason: str | None = None,
        read: int | None = None,
        refused: str | None = None,
        output: int = 100,
        **extra: Any,
    ) -> Scene:
        """Send a request.

        Args:
            body: As sent.
            after: Seconds since the request before it began.
            lane: Lane of the call.
            purpose: Purpose of the call.
            reason: What the provider says of the miss.
            read: Tokens read, where something else than the naive cache decides.
            refused: Message of the provider's refusal; there is no usage then.
            output: Output tokens.
            extra: Further fields of the record.
        """
        prompt = expand({"model": self._model, **body}, provider=self._provider)
        prompt = with_recorded_tokens(prompt, [size_of(block) for block in prompt.blocks])
        self._at += after if self._calls else 0.0
        self._calls.append(
            Call(
                id=f"call-{len(self._calls) + 1}",
                session="example",
                lane=lane,
                purpose=purpose,
                provider=self._provider,
                surface=self._surface,
                model=str(prompt.model),
                started_at=self._at,
                relative_time=True,
                first_token_at=self._at + 1,
                ended_at=self._at + 4,
                usage=None if refused else self._usage(prompt, read, output),
                prompt=prompt,
                diagnostics=None if reason is None else MissReason(reason),
                error=CallError("invalid_request_error", 400, refused) if refused else None,
                extra=extra,
            )
        )
        return self

    def session(self) -> Session:
        """Return the session."""
        return Session(id="example", source="example", calls=tuple(self._calls))

    def _usage(self, prompt: Prompt, read: int | None, output: int) -> Usage:
        sums = _sums(prompt)
        if self._provider != "anthropic":
            return self._automatic(prompt, sums, read, output)
        marks = _marks(prompt)
        hit = self._hit(prompt, marks)
        got = (sums[hit] if hit >= 0 else 0) if read is None else read
        last = got
        for mark in marks:
            if sums[mark] >= _MINIMUM:
                self._entries[prompt.prefix_digests[mark]] = self._at + _LIFETIME
                last = max(last, sums[mark])
        return Usage(
            total_input=sums[-1],
            uncached_input=sums[-1] - last,
            cache_read=got,
            write_5m=last - got,
            write_1h=0,
            output=output,
            dialect="anthropic",
        )

    def _hit(self, prompt: Prompt, marks: Sequence[int]) -> int:
        for mark in reversed(marks):
            for index in window(prompt.blocks, mark, collapse=self._surface != "bedrock"):
                digest = prompt.prefix_digests[index]
                if self._entries.get(digest, -1.0) > self._at:
                    self._entries[digest] = self._at + _LIFETIME
                    return index
        return -1

    def _automatic(self, prompt: Prompt, sums: list[int], read: int | None, output: int) -> Usage:
        """Keep every prefix; older models report reads in steps of 128 tokens and no writes."""
        known = [n for n, d in zip(sums, prompt.prefix_digests, strict=True) if d in self._entries]
        got = max(known, default=0) if read is None else read
        writes = self._model.startswith(_WRITING)
        if not writes and read is None:
            got = got // _STEP * _STEP
        self._entries.update(dict.fromkeys(prompt.prefix_digests, self._at + _LIFETIME))
        return Usage(
            total_input=sums[-1],
            uncached_input=0 if writes else sums[-1] - got,
            cache_read=got,
            write_30m=sums[-1] - got if writes else None,
            output=output,
            dialect="openai",
        )


def window(blocks: Sequence[ContentBlock], mark: int, *, collapse: bool) -> list[int]:
    """List the content blocks that a lookup from a marker visits, the marked one first."""
    visited: list[int] = []
    positions = 0
    for index in range(mark, -1, -1):
        kind = blocks[index].kind
        goes_on = collapse and visited and kind in _RUNS and kind == blocks[index + 1].kind
        positions += 0 if goes_on else 1
        if positions > _LOOKBACK:
            break
        visited.append(index)
    return visited


def size_of(block: ContentBlock) -> int:
    """Size of a content block of an example, in tokens."""
    if block.level == "tools":
        return TOOL
    return SYSTEM if block.level == "system" else SIZES.get(block.kind, TEXT)


def _sums(prompt: Prompt) -> list[int]:
    sums: list[int] = []
    for block in prompt.blocks:
        sums.append((sums[-1] if sums else 0) + (block.tokens or 0))
    return sums


def _marks(prompt: Prompt) -> list[int]:
    marks = [index for index, block in enumerate(prompt.blocks) if block.marker is not None]
    if prompt.automatic_marker is not None and len(prompt.blocks) - 1 not in marks:
        marks.append(len(prompt.blocks) - 1)
    return marks


def request(
    *messages: Content,
    tools: Sequence[str | dict[str, Any]] = ("read_file", "run_tests"),
    system: str | Sequence[str] = "You help with code.",
    mark: Sequence[str | int] = MARKS,
    **parameters: Any,
) -> dict[str, Any]:
    """Make a Messages API body; messages alternate between user and assistant.

    Args:
        messages: Content of the messages.
        tools: Names of tools, or whole definitions.
        system: System prompt, or its texts.
        mark: Where markers stand: ``tools``, ``system``, ``last``, or the number of a message.
        parameters: Further fields of the body.
    """
    sent = [{"role": _role(n), "content": _content(m)} for n, m in enumerate(messages)]
    texts = [system] if isinstance(system, str) else list(system)
    found: dict[str, Any] = {
        "tools": [tool(t) if isinstance(t, str) else dict(t) for t in tools],
        "system": [text(t) for t in texts],
        "messages": sent,
        **parameters,
    }
    for place in mark:
        blocks = found.get(str(place))
        if place == "last" or isinstance(place, int):
            blocks = sent[-1 if place == "last" else int(place)]["content"]
        if blocks:
            blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
    return found


def _role(number: int) -> str:
    return "assistant" if number % 2 else "user"


def _content(content: Content) -> list[dict[str, Any]]:
    parts = [content] if isinstance(content, str | dict) else content
    return [text(part) if isinstance(part, str) else dict(part) for part in parts]


def text(words: str) -> dict[str, Any]:
    """Make a text block."""
    return {"type": "text", "text": words}


def tool(name: str, description: str | None = None, **properties: Any) -> dict[str, Any]:
    """Make a tool definition."""
    return {
        "name": name,
        "description": description or f"The tool {name}.",
        "input_schema": {"type": "object", "properties": properties},
    }


def use(number: int, name: str = "read_file", **arguments: Any) -> dict[str, Any]:
    """Make a tool call."""
    return {"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments}


def result(number: int, words: str = "done") -> dict[str, Any]:
    """Make the result of a tool call."""
    return {"type": "tool_result", "tool_use_id": f"t{number}", "content": words}


def image(data: str = "aGVsbG8=") -> dict[str, Any]:
    """Make a picture."""
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def thinking(words: str, signature: str = "s") -> dict[str, Any]:
    """Make a thinking block."""
    return {"type": "thinking", "thinking": words, "signature": signature}


def function(name: str, **properties: Any) -> dict[str, Any]:
    """Make a tool definition of Chat Completions."""
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def chat(
    *messages: str,
    tools: Sequence[dict[str, Any]] = (),
    system: str = "You help with code.",
    **parameters: Any,
) -> dict[str, Any]:
    """Make a Chat Completions body; messages alternate between user and assistant."""
    sent = [{"role": "system", "content": system}]
    sent += [{"role": _role(n), "content": words} for n, words in enumerate(messages)]
    return {"messages": sent, "tools": list(tools), **parameters}


def continued(*first: Mapping[str, Any], **scene: Any) -> Session:
    """Send requests one after the other and return the session."""
    played = Scene(**scene)
    for body in first:
        played.send(body)
    return played.session()

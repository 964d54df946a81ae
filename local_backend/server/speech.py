"""What an answer consists of, whatever the wire format: texts, calls, and an end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from local_backend.engine.api import Event, Finished, FinishReason, Piece
from local_backend.server.service import Opened, failure
from local_backend.server.shaping import Shape, fill
from local_backend.tokenizer.base import Tokenizer


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A bit of text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool is called; its input follows."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A bit of the JSON of a call's input."""

    json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The end.

    Attributes:
        reason: As the Messages API words it.
        stop_sequence: The one that was met.
        output_tokens: Tokens generated.
    """

    reason: str
    stop_sequence: str | None
    output_tokens: int


Said = TextDelta | CallStart | CallDelta | Done


class Speech:
    """Turns the events of an answer into what it consists of.

    Args:
        opened: The answer.
        tokenizer: Of the model.
        new_id: Makes an identity that begins with a text.
    """

    def __init__(self, opened: Opened, tokenizer: Tokenizer, new_id: Callable[[str], str]) -> None:
        self._opened = opened
        self._tokenizer = tokenizer
        self._new_id = new_id
        self._end: Finished | None = None

    async def said(self) -> AsyncIterator[Said]:
        """All of it, ending with :class:`Done`.

        Raises:
            ApiError: The engine failed on the way.
        """
        opened = self._opened
        if opened.shape is not None and opened.limit:
            async for item in self._shaped(opened.shape):
                yield item
        else:
            async for piece in self._pieces(opened.events):
                if piece.text:
                    yield TextDelta(piece.text)
        async for _ in self._pieces(opened.events):
            pass  # tokens that no leaf had use for
        end = self._end
        if end is None or end.reason in _FAILED:
            raise failure(end or _NOTHING)
        if end.text and opened.shape is None:
            yield TextDelta(end.text)
        yield Done(
            reason=self._reason(end),
            stop_sequence=end.stop_sequence,
            output_tokens=end.output_tokens,
        )

    async def _pieces(self, events: AsyncIterator[Event]) -> AsyncIterator[Piece]:
        async for event in events:
            if isinstance(event, Finished):
                self._end = event
            elif isinstance(event, Piece):
                yield event

    async def _shaped(self, shape: Shape) -> AsyncIterator[Said]:
        pieces = self._pieces(self._opened.events)
        chosen, limit = 0, self._opened.limit
        if len(shape.outlines) > 1:
            first = await anext(pieces, None)
            chosen = shape.choose(first.token) if first is not None else 0
            limit -= 1
        if shape.tools:
            yield CallStart(self._new_id("toolu_"), shape.tools[chosen])
        async for text in fill(shape.outlines[chosen], pieces, limit, self._tokenizer):
            yield CallDelta(text) if shape.tools else TextDelta(text)

    def _reason(self, end: Finished) -> str:
        shape = self._opened.shape
        if shape is not None and self._opened.limit:
            return "tool_use" if shape.tools else "end_turn"
        if end.reason is FinishReason.STOP_SEQUENCE:
            return "stop_sequence"
        if end.reason is FinishReason.STOP_TOKEN:
            return "end_turn"
        wanted = self._opened.request.max_tokens or 0
        return "max_tokens" if end.output_tokens >= wanted else "model_context_window_exceeded"


_FAILED = (FinishReason.CANCELLED, FinishReason.DEADLINE, FinishReason.FAILED)
_NOTHING = Finished(name="", reason=FinishReason.FAILED, text="", output_tokens=0)

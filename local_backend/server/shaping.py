"""Answers whose form is fixed: a call of a tool, or JSON that fits a schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_backend.engine.api import Piece
from local_backend.server.request import MessagesRequest
from local_backend.server.schema import Leaf, outline
from local_backend.tokenizer.base import Tokenizer

LEAF_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """Which forms an answer may have.

    Attributes:
        tools: Names of the tools that may be called; none for plain JSON.
        outlines: Of each of them, or of the JSON: fixed text and leaves.
    """

    tools: tuple[str, ...]
    outlines: tuple[tuple[str | Leaf, ...], ...]

    @property
    def budget(self) -> int:
        """Most tokens that are of any use."""
        most = max(sum(isinstance(part, Leaf) for part in parts) for parts in self.outlines)
        return most * LEAF_TOKENS + int(len(self.outlines) > 1)

    def choose(self, token: int) -> int:
        """Which of the forms a token stands for."""
        return token % len(self.outlines)


def shape_of(request: MessagesRequest) -> Shape | None:
    """The form that a request asks for; None for free text."""
    choice = request.choice
    if choice.is_forced:
        names = choice.among or [t.ids or "" for t in request.tools if choice.kind == "any"]
        tools = tuple(names) or (choice.name or "",)
        schemas: Sequence[Mapping[str, Any]] = [request.tool_schemas.get(n, {}) for n in tools]
        return Shape(tools, tuple(tuple(outline({"type": "object", **s})) for s in schemas))
    if request.output_format is not None:
        return Shape((), (tuple(outline(request.output_format)),))
    return None


async def fill(
    parts: Sequence[str | Leaf], pieces: AsyncIterator[Piece], tokens: int, tokenizer: Tokenizer
) -> AsyncIterator[str]:
    """JSON bit by bit, as the model fills the leaves.

    Args:
        parts: Fixed text and leaves.
        pieces: What the model writes.
        tokens: How many that will be at most; the leaves share them.
        tokenizer: Of the model.
    """
    leaves = sum(isinstance(part, Leaf) for part in parts)
    each = max(1, min(LEAF_TOKENS, tokens // max(leaves, 1)))
    for part in parts:
        if isinstance(part, str):
            yield part
            continue
        taken: list[int] = []
        while len(taken) < each and (piece := await anext(pieces, None)) is not None:
            taken.append(piece.token)
        yield part.fill(taken, tokenizer.decode(taken))

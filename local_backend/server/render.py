"""A request to token ids, content block by content block.

Every content block is encoded on its own, so that its end is the end of a token and a prefix up
to it never depends on what follows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock

from local_backend.kvcache.keys import Span
from local_backend.rules import Block, Level, Prompt
from local_backend.rules.chain import fields
from local_backend.server.content import Media, Part, canonical
from local_backend.server.frames import ASSISTANT, SYSTEM, Frame
from local_backend.server.request import MessagesRequest
from local_backend.tokenizer.base import Tokenizer

_REMEMBERED_TOKENS = 2_000_000
_Place = tuple[Level, int, str, Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A prompt.

    Attributes:
        prompt: As the rules see it.
        spans: Placeholders among its tokens.
        content_tokens: Tokens of each content block, in render order.
        tail: Tokens behind the last content block, which begin the answer.
        drifts: Whether an earlier answer in it stands behind another text than when it was given.
    """

    prompt: Prompt
    spans: tuple[Span, ...]
    content_tokens: tuple[int, ...]
    tail: int
    drifts: bool = False

    @property
    def total(self) -> int:
        """All tokens."""
        return len(self.prompt.tokens)


class Renderer:
    """Renders requests for one model. Any thread may use it.

    Args:
        tokenizer: Of the model.
        frame: What stands around content.
        media_tokens: Tokens that stand for an image, or for a document that is not text.
    """

    def __init__(self, tokenizer: Tokenizer, frame: Frame, media_tokens: int = 256) -> None:
        self._tokenizer = tokenizer
        self._frame = frame
        self._media_tokens = media_tokens
        token = tokenizer.id_of(frame.media) if frame.media else None
        self._placeholder = 0 if token is None else token
        self._known: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._known_tokens = 0
        self._lock = Lock()

    def render(
        self,
        request: MessagesRequest,
        identity: str,
        workspace: str = "",
        *,
        tools_first: bool = True,
    ) -> Rendered:
        """Render a request.

        Args:
            request: What was asked.
            identity: Of its response.
            workspace: Whose cache it uses.
            tools_first: Whether tools stand before the system prompt.
        """
        tokens: list[int] = []
        spans: list[Span] = []
        blocks: list[Block] = []
        role, turn = "", -1
        for level, message, speaker, part in self._places(request, tools_first):
            begin = len(tokens)
            tokens += self._special(self._lead(role, speaker, is_new=message != turn))
            for segment in part.segments:
                self._add(segment, tokens, spans)
            blocks.append(_block(level, part, len(tokens) - begin))
            role, turn = speaker, message
        counts = tuple(block.tokens for block in blocks)
        tail = self._special(self._frame.answer.get(role, ""))
        if not tokens and not tail:
            tail = self._special(self._frame.begin[ASSISTANT])
        prompt = Prompt(
            id=identity,
            model=request.model,
            workspace=workspace,
            blocks=tuple(blocks),
            tokens=(*tokens, *tail),
            settings=_settings(request),
            speed=request.speed,
            automatic=request.automatic,
        )
        answered = any(role == ASSISTANT for role, _ in request.messages[:-1])
        return Rendered(
            prompt=prompt,
            spans=tuple(spans),
            content_tokens=counts,
            tail=len(tail),
            drifts=answered and self._frame.drifts,
        )

    def _places(self, request: MessagesRequest, tools_first: bool) -> Iterator[_Place]:
        """Content blocks in order, each with the number and the speaker of its turn."""
        tools = [(Level.TOOLS, 0, SYSTEM, part) for part in request.tools]
        system = [(Level.SYSTEM, 0, SYSTEM, part) for part in request.system]
        yield from (*tools, *system) if tools_first else (*system, *tools)
        for number, (role, parts) in enumerate(request.messages, 1):
            speaker = self._frame.late_system if role == SYSTEM else role
            yield from ((Level.MESSAGES, number, speaker, part) for part in parts)

    def _lead(self, before: str, role: str, *, is_new: bool) -> str:
        frame = self._frame
        if not before:
            return frame.begin[role]
        if before == role:
            return frame.between.get((role, role), frame.block) if is_new else frame.block
        return frame.between[before, role]

    def _special(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text)) if text else ()

    def _add(self, segment: str | Media, tokens: list[int], spans: list[Span]) -> None:
        if isinstance(segment, Media):
            spans.append(Span(len(tokens), self._media_tokens, segment.digest, kind=segment.kind))
            tokens += [self._placeholder] * self._media_tokens
        else:
            tokens += self._encode(segment)

    def _encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text; long conversations send the same texts again and again."""
        with self._lock:
            if (known := self._known.get(text)) is not None:
                self._known.move_to_end(text)
                return known
        found = tuple(self._tokenizer.encode(text, special=False))
        with self._lock:
            if text not in self._known:
                self._known[text] = found
                self._known_tokens += len(found)
            while self._known_tokens > _REMEMBERED_TOKENS and len(self._known) > 1:
                _, dropped = self._known.popitem(last=False)
                self._known_tokens -= len(dropped)
        return found


def _block(level: Level, part: Part, tokens: int) -> Block:
    return Block(
        level=level,
        kind=part.kind,
        digest=part.digest,
        tokens=tokens,
        ttl=part.ttl,
        markable=part.markable,
        path=part.path,
    )


def _settings(request: MessagesRequest) -> tuple[bytes, bytes, bytes]:
    """What a change of drops each level: nothing for tools, format and speed for system.

    Thinking and effort drop the messages only: no model here shows them before its tools.
    """
    parts = tuple(request.parts())
    schema = request.output_format
    system = (
        request.speed,
        "" if schema is None else canonical(schema),
        "cites" if any(part.cites for part in parts) else "",
    )
    choice = request.choice
    messages = (
        choice.kind,
        choice.name or "",
        "" if choice.parallel else "single",
        "images" if any(part.has_image for part in parts) else "",
        request.thinking or "",
        request.effort or "",
        request.context or "",
    )
    return (b"", _digest(system), _digest(messages))


def _digest(values: tuple[str, ...]) -> bytes:
    return fields(*(v.encode("utf-8", errors="surrogatepass") for v in values), tag=b"rules-set")

"""Turns the bytes of request bodies into prompts, and does again only what is new.

A conversation sends its whole history every time. Messages whose bytes stand at the same place of
the request before it are not decoded again: their content blocks are taken over. The outcome is the
one of :func:`cacheaudit.providers.registry.expand`; a test holds the two equal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cacheaudit.errors import PromptError
from cacheaudit.ingest.answers import Answer
from cacheaudit.ingest.lanes import Lanes
from cacheaudit.model.ports import ProblemSink
from cacheaudit.model.prompt import ContentBlock, Prompt, chain
from cacheaudit.providers.registry import all_providers, expand
from cacheaudit.providers.threads import ThreadStore

_LANES_KEPT: Final = 48
_THREADS_KEPT: Final = 256
_BULK: Final = frozenset({"messages", "tools", "system", "input", "contents", "instructions"})
_FRONT: Final = ("tools", "system")

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode


class Body(msgspec.Struct, frozen=True):
    """A request body, its small fields decoded.

    Attributes:
        fields: Every field but the bulk of the prompt.
        raw: Every field as it came.
    """

    fields: dict[str, Any]
    raw: dict[str, msgspec.Raw]

    def whole(self) -> dict[str, Any]:
        """Decode all of it."""
        return {
            name: self.fields[name] if name in self.fields else _decode(value)
            for name, value in self.raw.items()
        }


class _Held(msgspec.Struct, frozen=True):
    """The last request of a lane.

    Attributes:
        prompt: Its prompt.
        messages: Its messages as they came.
        front: Its tools and its system prompt as they came.
        provider: As which provider it was expanded.
    """

    prompt: Prompt
    messages: list[msgspec.Raw]
    front: tuple[msgspec.Raw | None, ...]
    provider: str | None


def read_body(data: bytes) -> Body | None:
    """Decode a request body; ``None`` where it is no JSON object."""
    try:
        raw = _decode_fields(data)
        fields = {name: _decode(value) for name, value in raw.items() if name not in _BULK}
    except (msgspec.DecodeError, RecursionError):
        return None
    return Body(fields, raw)


class Unfolder:
    """Remembers the last prompt of each lane, and the threads that servers keep.

    Args:
        problems: Counts bodies that do not have the shape of their API.
    """

    def __init__(self, problems: ProblemSink) -> None:
        self._problems = problems
        self._lanes = Lanes(_LANES_KEPT)
        self._held: OrderedDict[tuple[str, str], _Held] = OrderedDict()
        self._newest: dict[str, str] = {}
        self._threads = ThreadStore(_THREADS_KEPT)
        self._messages_api = next(p for p in all_providers() if p.name == "anthropic")

    def prompt(
        self, body: Body, *, session: str, lane: str | None, provider: str | None, where: str
    ) -> tuple[Prompt | None, str]:
        """Expand a body and find its lane.

        Args:
            body: The body.
            session: Its session.
            lane: Its lane, where it is known; else it is told from the content.
            provider: Whose API it is, where known.
            where: Identity of the call, for problems.
        """
        try:
            prompt, held = self._expand(body, session, lane, provider)
        except PromptError as error:
            self._problems("bad_body", where, error.message)
            return None, lane or "main"
        except (RecursionError, msgspec.DecodeError) as error:
            self._problems("bad_body", where, type(error).__name__)
            return None, lane or "main"
        chosen = self._lanes.guess(session, prompt) if lane is None else lane
        self._lanes.remember(session, chosen, prompt)
        self._hold(session, chosen, held)
        return prompt, chosen

    def remember(self, body: Body, answer: Answer) -> None:
        """Keep what a later request of the same thread builds on."""
        is_stored = "input" in body.raw and body.fields.get("store") is not False
        if answer.id is None or not (is_stored or isinstance(body.fields.get("thread"), dict)):
            return
        rebuilt = self._threads.rebuild(body.whole())
        if rebuilt.body is not None:
            self._threads.remember(answer.id, rebuilt.body, answer.content or None)

    def _expand(
        self, body: Body, session: str, lane: str | None, provider: str | None
    ) -> tuple[Prompt, _Held | None]:
        named = lane if lane is not None else self._newest.get(session, "main")
        held = self._held.get((session, named))
        if "thread" in body.fields or "previous_response_id" in body.fields:
            rebuilt = self._threads.rebuild(body.whole())
            if rebuilt.body is None:
                raise PromptError(rebuilt.reason or "The thread cannot be rebuilt.")
            previous = self._lanes.previous(session, lane)
            return expand(rebuilt.body, provider=provider, previous=previous), None
        if held is not None and held.provider == provider:
            grown = self._grown(body, held)
            if grown is not None:
                return grown
        previous = self._lanes.previous(session, lane)
        whole = body.whole()
        prompt = expand(whole, provider=provider, previous=previous)
        return prompt, self._fresh(body, whole, prompt, provider)

    def _fresh(
        self, body: Body, whole: Mapping[str, Any], prompt: Prompt, provider: str | None
    ) -> _Held | None:
        """Make what the next request may build on; ``None`` for bodies of another API."""
        speaks = getattr(self._messages_api, "speaks", None)
        if provider != "anthropic" or speaks is None or not speaks(whole):
            return None
        if not isinstance(whole.get("messages"), list):
            return None
        return _Held(prompt, _decode_list(body.raw["messages"]), _front(body), provider)

    def _grown(self, body: Body, held: _Held) -> tuple[Prompt, _Held] | None:
        """Build on the request before; ``None`` where the two share no message."""
        if "messages" not in body.raw:
            return None
        messages = _decode_list(body.raw["messages"])
        count = _common(messages, held.messages)
        if count == 0:
            return None
        front = _front(body)
        old = held.prompt
        part: dict[str, Any] = dict(body.fields)
        part["messages"] = [_decode(message) for message in messages[count:]]
        if front != held.front:
            part.update((n, _decode(body.raw[n])) for n in _FRONT if n in body.raw)
        new = self._messages_api.expand(part, old)
        kept = _until(old.blocks, count)
        if front == held.front:
            blocks = (*kept, *_moved(new.blocks, count))
        else:
            own = tuple(block for block in new.blocks if block.message < 0)
            said = tuple(block for block in kept if block.message >= 0)
            blocks = (*own, *said, *_moved(new.blocks[len(own) :], count))
        prompt = msgspec.structs.replace(
            new,
            blocks=blocks,
            prefix_digests=chain(new.level_order, new.parameters, blocks, old),
            provider=old.provider,
        )
        return prompt, _Held(prompt, messages, front, held.provider)

    def _hold(self, session: str, lane: str, held: _Held | None) -> None:
        key = (session, lane)
        self._newest.pop(session, None)
        self._newest[session] = lane
        if len(self._newest) > 2 * _LANES_KEPT:
            del self._newest[next(iter(self._newest))]
        if held is None:
            self._held.pop(key, None)
            return
        self._held[key] = held
        self._held.move_to_end(key)
        if len(self._held) > _LANES_KEPT:
            self._held.popitem(last=False)


def _front(body: Body) -> tuple[msgspec.Raw | None, ...]:
    return tuple(body.raw.get(name) for name in _FRONT)


def _common(one: list[msgspec.Raw], other: list[msgspec.Raw]) -> int:
    """Count the leading messages that are the same bytes."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _until(blocks: tuple[ContentBlock, ...], message: int) -> tuple[ContentBlock, ...]:
    """Return the blocks in front of a message."""
    end = len(blocks)
    while end and blocks[end - 1].message >= message:
        end -= 1
    return blocks[:end]


def _moved(blocks: tuple[ContentBlock, ...], by: int) -> tuple[ContentBlock, ...]:
    """Renumber the messages of blocks that were expanded by themselves."""
    return tuple(
        msgspec.structs.replace(
            block,
            message=block.message + by,
            path=f"messages[{block.message + by}]{block.path.partition(']')[2]}",
        )
        for block in blocks
    )

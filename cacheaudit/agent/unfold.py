"""Turns request bodies into prompts, and does again only what is new.

The content blocks of messages that a body repeats from the one before it are taken over. The
outcome is the one of :func:`cacheaudit.providers.registry.expand`; a test holds the two equal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from cacheaudit.agent.body import Body, History, decode, history_of
from cacheaudit.agent.sizes import Weights, weigh
from cacheaudit.errors import PromptError
from cacheaudit.ingest.answers import Answer
from cacheaudit.ingest.lanes import Lanes
from cacheaudit.model.ports import ProblemSink
from cacheaudit.model.prompt import ContentBlock, Prompt, chain, digest
from cacheaudit.providers.registry import all_providers, expand
from cacheaudit.providers.shape import may_be_messages, speak_messages
from cacheaudit.providers.threads import ThreadStore

_LANES_KEPT: Final = 48
_NAMES_KEPT: Final = 4_096
_LANES_TRIED: Final = 4
_THREADS_KEPT: Final = 256
_FRONT: Final = ("tools", "system")
_OTHER_BULK: Final = frozenset({"input", "contents", "instructions"})


class Unfolded(msgspec.Struct, frozen=True):
    """What became of a body.

    Attributes:
        prompt: Its prompt; ``None`` where it has not the shape of its API.
        lane: The lane that it belongs to.
        weights: Estimated sizes of the prompt's content blocks.
    """

    prompt: Prompt | None
    lane: str
    weights: Weights = ()


class _Held(msgspec.Struct, frozen=True):
    """The last request of a lane.

    Attributes:
        prompt: Its prompt.
        weights: Estimated sizes of its content blocks.
        history: Where its messages lie.
        front: Its tools and its system prompt as they came.
        provider: As which provider it was expanded.
        plain: Whether no message of it speaks for another API.
        around: Its small fields, where what stands around its messages was found to be of this API.
    """

    prompt: Prompt
    weights: Weights
    history: History
    front: tuple[bytes | None, ...]
    provider: str | None
    plain: bool
    around: Mapping[str, Any] | None = None


class Unfolder:
    """Remembers the last prompt of each lane, and the threads that servers keep.

    Args:
        problems: Counts bodies that do not have the shape of their API.
    """

    def __init__(self, problems: ProblemSink) -> None:
        self._problems = problems
        self._lanes = Lanes(_LANES_KEPT)
        self._named: dict[tuple[str, str], None] = {}
        self._only: dict[str, str | None] = {}
        self._held: OrderedDict[tuple[str, str], _Held] = OrderedDict()
        self._threads = ThreadStore(_THREADS_KEPT)
        self._messages_api = next(p for p in all_providers() if p.name == "anthropic")

    def prompt(
        self, body: Body, *, session: str, lane: str | None, provider: str | None, where: str
    ) -> Unfolded:
        """Expand a body and find its lane.

        Args:
            body: The body.
            session: Its session.
            lane: Its lane, where it is known; else it is told from the content.
            provider: Whose API it is, where known.
            where: Identity of the call, for problems.
        """
        base = self._held_of(body)
        try:
            prompt, weights, held = self._expand(body, base, session, lane, provider)
        except PromptError as error:
            self._problems("bad_body", where, error.message)
            return Unfolded(None, lane or "main")
        except (RecursionError, msgspec.DecodeError) as error:
            self._problems("bad_body", where, type(error).__name__)
            return Unfolded(None, lane or "main")
        # A refresh names the lane of what it repeats, whoever told that.
        if lane is not None and self._lanes.previous(session, lane) is None:
            self._name(session, lane)
        chosen = lane or self._lane(body, session)
        if chosen is None:
            chosen = self._lanes.guess(session, prompt, self._named)
        if lane is None:
            self._note(session, chosen)
        self._lanes.remember(session, chosen, prompt)
        self._hold(session, chosen, held)
        return Unfolded(prompt, chosen, weights)

    def remember(self, body: Body, answer: Answer) -> None:
        """Keep what a later request of the same thread builds on."""
        is_stored = "input" in body.raw and body.fields.get("store") is not False
        if answer.id is None or not (is_stored or isinstance(body.fields.get("thread"), dict)):
            return
        rebuilt = self._threads.rebuild(body.whole())
        if rebuilt.body is not None:
            self._threads.remember(answer.id, rebuilt.body, answer.content or None)

    def _held_of(self, body: Body) -> _Held | None:
        """Return the request whose messages a body repeats, of whichever lane it is."""
        if body.base is None:
            return None
        tried = islice(reversed(self._held.values()), _LANES_TRIED)
        return next((held for held in tried if held.history is body.base), None)

    def _lane(self, body: Body, session: str) -> str | None:
        """Return the lane of the session that a body goes on with.

        That is sure where it repeats all of it, and where there is no other and it begins alike.
        """
        if body.base is None or not body.count:
            return None
        is_whole = body.count >= len(body.base.ends)
        for (owner, lane), held in islice(reversed(self._held.items()), _LANES_TRIED):
            if held.history is body.base and owner == session and (owner, lane) not in self._named:
                return lane if is_whole or self._only.get(session) == lane else None
        return None

    def _note(self, session: str, lane: str) -> None:
        """Note which lane of a session is the only one that was told by its content."""
        if self._only.setdefault(session, lane) != lane:
            self._only[session] = None
        if len(self._only) > _NAMES_KEPT:
            del self._only[next(iter(self._only))]

    def _name(self, session: str, lane: str) -> None:
        """Note that the program itself named a lane: calls without a name are never of it."""
        self._named[session, lane] = None
        if len(self._named) > _NAMES_KEPT:
            del self._named[next(iter(self._named))]

    def _expand(
        self,
        body: Body,
        held: _Held | None,
        session: str,
        lane: str | None,
        provider: str | None,
    ) -> tuple[Prompt, Weights, _Held | None]:
        if "thread" in body.fields or "previous_response_id" in body.fields:
            rebuilt = self._threads.rebuild(body.whole())
            if rebuilt.body is None:
                raise PromptError(rebuilt.reason or "The thread cannot be rebuilt.")
            previous = self._lanes.previous(session, lane)
            prompt = expand(rebuilt.body, provider=provider, previous=previous)
            return prompt, weigh(prompt), None
        if held is not None and held.provider == provider and held.plain:
            new = [decode(message) for message in body.new]
            if _goes_on(body, new, held):
                return self._grown(body, held, new)
        previous = self._lanes.previous(session, lane)
        whole = body.whole()
        prompt = expand(whole, provider=provider, previous=previous)
        weights = weigh(prompt)
        return prompt, weights, self._fresh(body, whole, prompt, weights, provider)

    def histories(self) -> Iterator[History]:
        """Yield what a new body may go on from, the latest first."""
        for held in islice(reversed(self._held.values()), _LANES_TRIED):
            yield held.history

    def _fresh(
        self,
        body: Body,
        whole: Mapping[str, Any],
        prompt: Prompt,
        weights: Weights,
        provider: str | None,
    ) -> _Held | None:
        """Make what the next request may build on; ``None`` for bodies of another API."""
        speaks = getattr(self._messages_api, "speaks", None)
        if provider != "anthropic" or speaks is None or not speaks(whole):
            return None
        history = history_of(body)
        if history is None:
            return None
        plain = speak_messages(whole["messages"], first=True)
        return _Held(prompt, weights, history, _front(body), provider, plain)

    def _grown(
        self, body: Body, held: _Held, messages: list[Any]
    ) -> tuple[Prompt, Weights, _Held | None]:
        """Build on the request before, of which the body repeats ``body.count`` messages."""
        front = _front(body)
        old, count = held.prompt, body.count
        part: dict[str, Any] = dict(body.fields)
        part["messages"] = messages
        if front != held.front:
            part.update((n, decode(body.raw[n])) for n in _FRONT if n in body.raw)
        new = self._messages_api.expand(part, old)
        kept = _until(old.blocks, count)
        if front == held.front:
            blocks = (*kept, *_moved(new.blocks, count))
        else:
            own = tuple(block for block in new.blocks if block.message < 0)
            said = tuple(block for block in kept if block.message >= 0)
            blocks = (*own, *said, *_moved(new.blocks[len(own) :], count))
        if (
            blocks[: len(kept)] == kept
            and kept[-1:]
            and kept[-1].message >= 0
            and (new.parameters == old.parameters)
        ):
            prefixes = _further(old.prefix_digests[: len(kept)], blocks)
        else:
            prefixes = chain(new.level_order, new.parameters, blocks, old)
        prompt = msgspec.structs.replace(
            new,
            blocks=blocks,
            prefix_digests=prefixes,
            provider=old.provider,
        )
        weights = weigh(prompt, old, held.weights)
        history = history_of(body)
        if history is None:
            return prompt, weights, None
        return (
            prompt,
            weights,
            _Held(prompt, weights, history, front, held.provider, True, body.fields),
        )

    def _hold(self, session: str, lane: str, held: _Held | None) -> None:
        key = (session, lane)
        if held is None:
            self._held.pop(key, None)
            return
        self._held[key] = held
        self._held.move_to_end(key)
        if len(self._held) > _LANES_KEPT:
            self._held.popitem(last=False)


def _goes_on(body: Body, new: list[Any], held: _Held) -> bool:
    """Whether a body is one of the Messages API as well as the one whose messages it repeats."""
    if body.raw.keys() & _OTHER_BULK or not speak_messages(new, first=not body.count):
        return False
    if held.around == body.fields and held.front == _front(body):
        return True
    around = {**body.fields, "messages": []}
    if "tools" in body.raw:
        around["tools"] = decode(body.raw["tools"])
    if "system" in body.raw:
        around["system"] = None
    return may_be_messages(around)


def _front(body: Body) -> tuple[bytes | None, ...]:
    return tuple(bytes(body.raw[name]) if name in body.raw else None for name in _FRONT)


def _further(known: tuple[bytes, ...], blocks: tuple[ContentBlock, ...]) -> tuple[bytes, ...]:
    """Go on with the identities of prefixes inside the messages, as :func:`chain` does."""
    digests = list(known)
    for block in blocks[len(known) :]:
        digests.append(digest(digests[-1] + block.digest))
    return tuple(digests)


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

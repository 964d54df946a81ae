"""Watches the requests of one test: does each extend the one before it, as a cache needs?

Bodies are expanded and dropped at once; what is said of a break names places and sizes, no text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cacheaudit._typing import override
from cacheaudit.errors import CacheAuditError, PromptError
from cacheaudit.model.change import Change, first_change, is_extension
from cacheaudit.model.prompt import Prompt
from cacheaudit.providers.registry import expand

MAIN: Final = "main"
_MODEL_URL: Final = re.compile(
    r"/(messages|chat/completions|responses|converse(-stream)?|invoke(-with-response-stream)?)/?$"
    r"|:(stream)?generateContent$|:(stream)?rawPredict$",
    re.IGNORECASE,
)


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """A request that does not extend the one before it.

    Attributes:
        conversation: Conversation that it belongs to.
        number: Which request of the test it is, from 1.
        former: Number of the request that it should have extended.
        change: First change, seen from the former request.
    """

    conversation: str
    number: int
    former: int
    change: Change

    @override
    def __str__(self) -> str:
        change = self.change
        about = "" if change.tokens_origin == "recorded" else "about "
        at = "a byte not known" if change.byte_offset is None else f"byte {change.byte_offset:,}"
        offset = f"{at} of the field"
        told = change.tokens_after
        tokens = "tokens whose number is not known" if told is None else f"{told:,} tokens"
        about = "" if told is None else about
        lines = (
            f"Request {self.number} does not extend request {self.former}",
            f" (conversation {self.conversation!r}).\n",
            f"  level {change.level}, {change.path}: {change.kind.replace('_', ' ')}, {offset},",
            f" byte {change.prompt_byte_offset:,} of the prompt\n",
            f"  {about}{tokens} from there on are not read",
            f"\n  before: {change.before or 'nothing'}; after: {change.after or 'nothing'}",
        )
        return "".join(lines)


class _Talk:
    """One conversation: its last request."""

    __slots__ = ("compactions", "name", "number", "prompt")

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        self.prompt: Prompt | None = None
        self.compactions = 0


class CachePrefixGuard:
    """Records request bodies and finds those that move the cached prefix.

    Attributes:
        breaks: What was found, in order.
        requests: Number of requests recorded.
        skipped: Number of bodies that could not be judged: no model request, broken, or completed
            by the server from what it remembers.
    """

    def __init__(self) -> None:
        self.breaks: list[Break] = []
        self.requests = 0
        self.skipped = 0
        self._talks: dict[str, _Talk] = {}
        self._newest: _Talk | None = None

    def record(
        self,
        body: Mapping[str, Any] | str | bytes,
        *,
        conversation: str | None = None,
        provider: str | None = None,
    ) -> Break | None:
        """Take a request in and compare it with the one before it in its conversation.

        Args:
            body: The body as sent: an object, or its JSON. It is not kept and not changed.
            conversation: Name of the conversation. Without one, a request belongs to the
                conversation whose messages it shares, and one that begins anew with other messages
                opens a new one; forks of one history need names.
            provider: Provider, where the body's shape does not tell.

        Returns:
            The break, if this request makes one.

        Raises:
            PromptError: The body is no request of a supported API.
        """
        fields = _decoded(body)
        if _is_partial(fields):
            self.skipped += 1
            return None
        prompt = expand(fields, provider=provider)
        self.requests += 1
        talk = self._talk(conversation, prompt)
        found = self._judge(talk, prompt)
        talk.prompt, talk.number = prompt, self.requests
        self._newest = talk
        return found

    def compaction(self, conversation: str | None = None) -> None:
        """Announce that the history of a conversation is about to be compacted.

        One request may then change the messages; tools, system and settings have to stay as they
        are. A request for the summary that only appends to the history does not use this up.

        Args:
            conversation: Name of the conversation; the newest one by default.
        """
        if conversation is None:
            talk = self._newest or self._named(MAIN)
        else:
            talk = self._named(conversation)
        talk.compactions += 1

    @property
    def unused_compactions(self) -> list[str]:
        """Conversations of which a compaction was announced that never came."""
        return [talk.name for talk in self._talks.values() if talk.compactions]

    def on_request(self, request: Any) -> None:
        """Record what an HTTP client is about to send; an event hook of httpx and httpx2."""
        if _MODEL_URL.search(_path(request)):
            self._captured(request.read())

    async def on_async_request(self, request: Any) -> None:
        """Do the same for asynchronous clients."""
        if _MODEL_URL.search(_path(request)):
            self._captured(await request.aread())

    def transport(self, inner: Any) -> GuardedTransport:
        """Wrap a transport of httpx or httpx2, synchronous or not, so that it records."""
        return GuardedTransport(self, inner)

    def report(self) -> str:
        """Describe all breaks."""
        return "\n".join(str(item) for item in self.breaks)

    def _captured(self, data: bytes) -> None:
        """Record bytes on the wire; what cannot be read must not disturb the caller."""
        try:
            self.record(data)
        except CacheAuditError:
            self.skipped += 1

    def _named(self, name: str) -> _Talk:
        return self._talks.setdefault(name, _Talk(name))

    def _talk(self, name: str | None, prompt: Prompt) -> _Talk:
        if name is not None:
            return self._named(name)
        known = [talk for talk in self._talks.values() if _same_api(talk.prompt, prompt)]
        is_opening = not any(block.role == "assistant" for block in prompt.at_level("messages"))
        if is_opening:
            known = [talk for talk in known if _asks_again(talk.prompt, prompt)]
        shared = [(_shared(talk.prompt, prompt), talk) for talk in known]
        best = max(shared, key=lambda pair: (pair[0], pair[1].number), default=None)
        if best is not None and best[0]:
            return best[1]
        if not is_opening and self._newest is not None and self._newest in known:
            return self._newest
        main = self._named(MAIN)
        return main if main.prompt is None else self._named(f"conversation {len(self._talks) + 1}")

    def _judge(self, talk: _Talk, prompt: Prompt) -> Break | None:
        former = talk.prompt
        if former is None or not _same_api(former, prompt):
            return None
        change = first_change(former, prompt)
        if change is None:
            return None
        if talk.compactions and change.level == "messages" and change.kind != "parameter":
            talk.compactions -= 1
            return None
        found = Break(
            conversation=talk.name, number=self.requests, former=talk.number, change=change
        )
        self.breaks.append(found)
        return found


class GuardedTransport:
    """A transport that records each request and hands it on; works in httpx and httpx2.

    Args:
        guard: Takes the bodies.
        inner: The transport that really sends.
    """

    def __init__(self, guard: CachePrefixGuard, inner: Any) -> None:
        self._guard = guard
        self._inner = inner

    def handle_request(self, request: Any) -> Any:
        """Record and send."""
        self._guard.on_request(request)
        return self._inner.handle_request(request)

    async def handle_async_request(self, request: Any) -> Any:
        """Record and send."""
        await self._guard.on_async_request(request)
        return await self._inner.handle_async_request(request)

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()

    def __enter__(self) -> GuardedTransport:
        self._inner.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._inner.__exit__(*details)

    async def __aenter__(self) -> GuardedTransport:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self._inner.__aexit__(*details)


def _decoded(body: Mapping[str, Any] | str | bytes) -> Mapping[str, Any]:
    if isinstance(body, Mapping):
        return body
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PromptError(
            f"The request body is no JSON: {error}.", "Record the body that is sent."
        ) from error
    if not isinstance(fields, dict):
        raise PromptError(
            f"The request body is {type(fields).__name__}, not an object.",
            "Record the body that is sent.",
        )
    return fields


def _is_partial(body: Mapping[str, Any]) -> bool:
    thread = body.get("thread")
    is_continued = isinstance(thread, Mapping) and thread.get("type") == "continue"
    return is_continued or isinstance(body.get("previous_response_id"), str)


def _path(request: Any) -> str:
    return str(request.url).partition("?")[0]


def _same_api(former: Prompt | None, prompt: Prompt) -> bool:
    return former is not None and former.level_order == prompt.level_order


def _asks_again(former: Prompt | None, prompt: Prompt) -> bool:
    """Whether a request without any reply in it repeats a conversation's question.

    Sending the beginning of a longer conversation again is no repetition but a new start.
    """
    asked = prompt.at_level("messages")
    if former is None or not asked:
        return False
    if len(former.blocks) > len(prompt.blocks) and is_extension(prompt, former):
        return False
    return asked[-1].digest in {block.digest for block in former.at_level("messages")}


def _shared(former: Prompt | None, prompt: Prompt) -> int:
    """Count content blocks of messages that both requests hold, wherever they stand."""
    if former is None:
        return 0
    mine = {block.digest for block in former.at_level("messages")}
    return len(mine & {block.digest for block in prompt.at_level("messages")})

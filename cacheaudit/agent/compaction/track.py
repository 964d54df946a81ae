"""What a compactor remembers of its conversation: the last request, its usage, its turns."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from cacheaudit.agent.compaction.clearing import Batch
from cacheaudit.agent.compaction.economy import MOST_TURNS, Shape
from cacheaudit.agent.compaction.history import tokens_of
from cacheaudit.agent.compaction.kept import Kept
from cacheaudit.agent.compaction.request import extends
from cacheaudit.agent.compaction.rewrite import Parts
from cacheaudit.agent.compaction.settings import Compaction
from cacheaudit.agent.fan_out.plain import plain
from cacheaudit.dialects.detect import normalise
from cacheaudit.errors import PromptError, UsageError
from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt, digest
from cacheaudit.model.tokens import BYTES_PER_TOKEN
from cacheaudit.model.tokens import tokens_of as tokens_of_blocks
from cacheaudit.model.usage import Usage
from cacheaudit.providers.facts import rules
from cacheaudit.providers.registry import expand

PROVIDER: Final = "anthropic"
_DEFAULT_TTL: Final = "5m"
_SECONDS: Final = {"5m": 300.0, "1h": 3600.0}
# Without any observation: an ordinary tool round.
_FIRST_GROWTH: Final = 1_500


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """The last request that was answered.

    Attributes:
        body: As it was sent.
        usage: What it consumed.
        at: Its start.
        front: Estimated tokens of tools and system.
        estimated: Estimated tokens of the whole prompt.
        front_marked: A marker stands at the end of the front.
        kept_at: Start of the latest refresh of its entry, else its own.
    """

    body: Mapping[str, Any]
    usage: Usage
    at: float
    front: int
    estimated: int
    front_marked: bool
    kept_at: float

    @property
    def size(self) -> int:
        """Tokens of the prompt, as reported, else as estimated."""
        return self.usage.prompt_size or self.estimated

    @property
    def scale(self) -> Decimal:
        """Reported tokens for one estimated token."""
        return Decimal(self.size) / max(1, self.estimated)

    @property
    def stored(self) -> int:
        """Tokens that the provider holds since then."""
        return (self.usage.cache_read or 0) + (self.usage.cache_write or 0)

    @property
    def lifetime(self) -> str:
        """Name of the lifetime of what was written, or the default one."""
        return "1h" if self.usage.write_1h and not self.usage.write_5m else _DEFAULT_TTL


class Track:
    """One conversation.

    Args:
        settings: What is allowed.
        places_markers: Somebody else marks the front of unmarked requests.
    """

    def __init__(self, settings: Compaction, *, places_markers: bool) -> None:
        self._settings = settings
        self._places_markers = places_markers
        self._lock = threading.Lock()
        self.last: Last | None = None
        self.turns = 0
        self._first_size = 0
        self._since = 0
        self._copies: list[tuple[bytes | None, Any]] = []
        self._prompt: Prompt | None = None

    def copy(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request as plain values of our own; messages seen before are not copied again.

        Raises:
            UsageError: There are no messages.
        """
        given = request.get("messages")
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise UsageError("A request without messages cannot be compacted.")
        copies: list[tuple[bytes | None, Any]] = []
        for index, message in enumerate(given):
            known = self._copies[index] if index < len(self._copies) else None
            key = _key(message)
            if known is None or key is None or known[0] != key:
                known = (key, plain(message))
            copies.append(known)
        self._copies = copies
        body = {name: plain(value) for name, value in request.items() if name != "messages"}
        return {**body, "messages": [message for _, message in copies]}

    def took(self, body: Mapping[str, Any], usage: Usage, at: float) -> None:
        """Note a request that was answered."""
        prompt = self._prompt = _expanded(body, self._prompt)
        front, front_marked = (0, False) if prompt is None else _front(prompt)
        estimated = tokens_of_blocks(prompt.blocks)[0] if prompt is not None else 0
        made = Last(
            body=body,
            usage=usage,
            at=at,
            front=front,
            estimated=estimated or tokens_of(body["messages"]),
            front_marked=front_marked or self._places_markers,
            kept_at=at,
        )
        with self._lock:
            self.last = made
        self.turns += 1
        self._since += 1
        if self._since == 1:
            self._first_size = made.size

    def heard(self, call: Call) -> None:
        """Note that a refresh has read the entry: it lives on from there."""
        usage = call.usage
        if call.purpose != "keep_alive" or usage is None or call.started_at is None:
            return
        with self._lock:
            last = self.last
            if last is not None and usage.cache_read == last.stored and not usage.cache_write:
                at = max(last.kept_at, call.started_at)
                self.last = msgspec.structs.replace(last, kept_at=at)

    def compacted(self) -> None:
        """Note that the next request begins a new prefix."""
        self._since = 0
        with self._lock:
            self.last = None

    def lifetime_seconds(self, at: float) -> float:
        """Seconds that the last request's entry lives."""
        if self.last is None:
            return _SECONDS[_DEFAULT_TTL]
        model = self.last.body.get("model")
        known = rules(PROVIDER, model if isinstance(model, str) else None, at)
        lives = {} if known is None else known.lifetimes
        name = self.last.lifetime
        return lives.get(name, _SECONDS.get(name, 300.0))

    def is_warm(self, at: float) -> bool:
        """Whether the last request's entry can still be read."""
        last = self.last
        return last is not None and at - last.kept_at < self.lifetime_seconds(at)

    def size_of(self, body: Mapping[str, Any]) -> int:
        """Return the tokens that a request will have."""
        last = self.last
        if last is not None and extends(body, last.body):
            new = tokens_of(body["messages"][len(last.body["messages"]) :])
            return last.size + _scaled(new, last.scale)
        prompt = _expanded(body)
        whole = (
            tokens_of(body["messages"]) if prompt is None else tokens_of_blocks(prompt.blocks)[0]
        )
        return whole if last is None else _scaled(whole, last.scale)

    def shape(
        self,
        body: Mapping[str, Any],
        found: Parts,
        kept: Kept,
        chosen: Batch | None,
        at: float,
        *,
        idle: bool,
    ) -> Shape:
        """Describe the conversation for a decision."""
        settings, last = self._settings, self.last
        scale = Decimal(1) if last is None else last.scale
        prompt = _expanded(body) if last is None else None
        front = last.front if last is not None else (0 if prompt is None else _front(prompt)[0])
        beside = sum(len(block["text"].encode()) for block in kept.blocks())
        extra = round(beside / BYTES_PER_TOKEN)
        stays = tokens_of(found.recent)
        probability = Decimal(repr(settings.return_probability)) if idle else Decimal(1)
        size = self.size_of(body)
        warm = self.is_warm(at)
        return Shape(
            size=size,
            stored=last.stored if last is not None else size,
            front=_scaled(front, scale),
            front_stored=last is not None and last.front_marked,
            older=0 if found.is_done else _scaled(tokens_of(found.older), scale),
            after=_scaled(stays + extra, scale) + settings.expected_summary,
            freed=0 if chosen is None else _scaled(chosen.freed, scale),
            growth=self._growth(size),
            turns=self._remaining(),
            summary=settings.expected_summary,
            warm=warm,
            pause=idle,
            probability=probability,
            lifetime=_DEFAULT_TTL if last is None else last.lifetime,
            standalone_model=settings.standalone_model,
        )

    def _growth(self, size: int) -> int:
        if not self._since:
            return _FIRST_GROWTH
        return max(0, size - self._first_size) // self._since

    def _remaining(self) -> int:
        """Requests still to come: as told, else as many as there have been (at least one)."""
        told = self._settings.remaining_turns
        return min(MOST_TURNS, max(1, self.turns) if told is None else told)


def usage_of(reply: Mapping[str, Any]) -> Usage:
    """Read the usage of a reply; what is not there stays unknown."""
    given = reply.get("usage")
    if not isinstance(given, Mapping):
        return Usage()
    return normalise(given) or Usage()


def _front(prompt: Prompt) -> tuple[int, bool]:
    blocks = [block for block in prompt.blocks if block.level != "messages"]
    marked = any(prompt.blocks[index].level != "messages" for index in prompt.marked)
    return tokens_of_blocks(blocks)[0], marked


def _key(message: Any) -> bytes | None:
    """Identify a message by its content; ``None``: it holds objects of an SDK."""
    try:
        return digest(msgspec.json.encode(message))
    except (TypeError, ValueError, RecursionError):
        return None


def _expanded(body: Mapping[str, Any], previous: Prompt | None = None) -> Prompt | None:
    try:
        return expand(body, provider=PROVIDER, previous=previous)
    except (PromptError, RecursionError):
        return None


def _scaled(tokens: int, scale: Decimal) -> int:
    return int((tokens * scale).to_integral_value())

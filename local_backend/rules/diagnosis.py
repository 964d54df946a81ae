"""What changed since the request that a client names. Compares requests, not caches."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from local_backend.rules.base import Level, Prompt
from local_backend.rules.chain import fields, level_digest


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why the beginning of the named request could not be used again.

    Attributes:
        type: As the service words it.
        missed: About how many tokens would have been read; None where it does not say.
    """

    type: str
    missed: int | None = None


@dataclass(frozen=True, slots=True)
class _Note:
    model: tuple[str, str]
    tools: bytes
    system: bytes
    settings: tuple[bytes, bytes, bytes]
    messages: bytes
    cached: int


class Journal:
    """The last requests, in digests, so that a later one can be compared with one of them.

    Args:
        capacity: Requests remembered.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        self._capacity = capacity
        self._notes: OrderedDict[tuple[str, str], _Note] = OrderedDict()

    def record(self, prompt: Prompt, cached: int) -> None:
        """Remember a request.

        Args:
            prompt: The request.
            cached: Tokens of it that a later request could read.
        """
        self._notes[prompt.workspace, prompt.id] = _note(prompt, cached)
        while len(self._notes) > self._capacity:
            self._notes.popitem(last=False)

    def compare(self, prompt: Prompt, previous: str, read: int) -> Diagnosis | None:
        """What changed since the request whose response had an id; None for nothing that matters.

        Args:
            prompt: The request.
            previous: The id. Those of other workspaces are not known.
            read: Tokens that it reads from the cache after all.
        """
        before = self._notes.get((prompt.workspace, previous))
        if before is None:
            return Diagnosis("previous_message_not_found")
        now = _note(prompt, 0)
        missed = max(before.cached - read, 0)
        if before.model != now.model:
            return Diagnosis("model_changed", missed)
        if before.tools != now.tools:
            return Diagnosis("tools_changed", missed)
        if before.system != now.system:
            return Diagnosis("system_changed", missed)
        shared = min(len(before.messages), len(now.messages))
        if len(now.messages) < len(before.messages) or before.messages != now.messages[:shared]:
            return Diagnosis("messages_changed", missed)
        if before.settings != now.settings:
            return Diagnosis("unavailable")
        return None


def _note(prompt: Prompt, cached: int) -> _Note:
    messages = b"".join(
        fields(b.kind.encode(), b.digest, tag=b"rules-entry")
        for b in prompt.blocks
        if b.level == Level.MESSAGES
    )
    return _Note(
        model=(prompt.model, prompt.speed),
        tools=level_digest(prompt.blocks, Level.TOOLS),
        system=level_digest(prompt.blocks, Level.SYSTEM),
        settings=prompt.settings,
        messages=messages,
        cached=cached,
    )

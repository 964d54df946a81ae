"""Rebuilds requests that send only what is new, because the server holds the conversation.

Messages API: ``thread: {"type": "create"}`` begins a thread; ``{"type": "continue",
"previous_message_id": …}`` sends the new messages alone, and no system and no tools. Responses
API: ``previous_response_id`` does the same for the input; instructions and tools are sent anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

_CREATE_ONLY: Final = ("tools", "system")
_THREADS_KEPT: Final = 4_096


class Rebuilt(msgspec.Struct, frozen=True):
    """The outcome of rebuilding.

    Attributes:
        body: The full request; ``None`` where it cannot be known.
        reason: Why not.
    """

    body: dict[str, Any] | None
    reason: str | None = None


class _Turn(msgspec.Struct, frozen=True):
    """What the server holds after a response."""

    body: dict[str, Any]
    content: Sequence[Any] | None


class ThreadStore:
    """Remembers requests and responses by response id, and completes the requests that follow.

    Args:
        limit: Responses remembered; the oldest are dropped first.
    """

    def __init__(self, limit: int = _THREADS_KEPT) -> None:
        self._turns: dict[str, _Turn] = {}
        self._limit = limit

    def __len__(self) -> int:
        return len(self._turns)

    def remember(
        self, response_id: str, body: Mapping[str, Any], content: Sequence[Any] | None
    ) -> None:
        """Keep what a later request may continue from.

        Args:
            response_id: Id of the response.
            body: The full request, as :meth:`rebuild` gave it.
            content: Content of the response (``output`` of the Responses API); ``None`` where it
                was not recorded, which makes what follows impossible to rebuild.
        """
        self._turns.pop(response_id, None)
        self._turns[response_id] = _Turn(dict(body), content)
        while len(self._turns) > self._limit:
            del self._turns[next(iter(self._turns))]

    def rebuild(self, body: Mapping[str, Any]) -> Rebuilt:
        """Return the full request that a body stands for.

        A body that continues nothing is complete already. Objects inside are shared, not copied.
        """
        thread = body.get("thread")
        if isinstance(thread, dict) and thread.get("type") == "continue":
            return self._continue(body, thread.get("previous_message_id"))
        if isinstance(body.get("previous_response_id"), str):
            return self._respond(body, body["previous_response_id"])
        return Rebuilt({key: value for key, value in body.items() if key != "thread"})

    def _found(self, previous: Any) -> _Turn | str:
        if not isinstance(previous, str) or not previous:
            return "The request continues a thread but names no earlier response."
        turn = self._turns.get(previous)
        if turn is None:
            return f"The request continues {previous}, which was not recorded."
        if turn.content is None:
            return f"The request continues {previous}, whose content was not recorded."
        return turn

    def _continue(self, body: Mapping[str, Any], previous: Any) -> Rebuilt:
        turn = self._found(previous)
        new = body.get("messages")
        if isinstance(turn, str):
            return Rebuilt(None, turn)
        if not isinstance(new, list):
            return Rebuilt(None, "The request continues a thread but has no list of messages.")
        full: dict[str, Any] = {key: turn.body[key] for key in _CREATE_ONLY if key in turn.body}
        full |= {key: value for key, value in body.items() if key != "thread"}
        full["messages"] = [
            *turn.body.get("messages", ()),
            {"role": "assistant", "content": list(turn.content or ())},
            *new,
        ]
        return Rebuilt(full)

    def _respond(self, body: Mapping[str, Any], previous: str) -> Rebuilt:
        turn = self._found(previous)
        if isinstance(turn, str):
            return Rebuilt(None, turn)
        full = {key: value for key, value in body.items() if key != "previous_response_id"}
        full["input"] = [
            *_items(turn.body.get("input")),
            *(turn.content or ()),
            *_items(body.get("input")),
        ]
        return Rebuilt(full)


def _items(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}] if value else []
    return list(value) if isinstance(value, list) else []

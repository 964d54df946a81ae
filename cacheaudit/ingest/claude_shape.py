"""How the lines of one transcript are built, learnt from lines that were read the long way.

Most lines of a file begin alike but for the id of the line before: then one comparison stands for
what would otherwise be searched for and decoded anew in each of them.
"""

from __future__ import annotations

import string
from typing import Final

from cacheaudit.ingest.claude_parts import STAMP, Bytes
from cacheaudit.ingest.claude_wire import Framed, Tail

_PARENT: Final = b'{"parentUuid":"'
_UUID: Final = 36
_QUOTE: Final = ord('"')
# Where the id of the line before has ended; what stands from here on repeats from line to line.
AHEAD: Final = len(_PARENT) + _UUID
_MAIN: Final = b'","isSidechain":false,'
_MESSAGE: Final = b'"message":{'
_BEHIND: Final = b'","type":"assistant","uuid":"'
_STAMP_LENGTH: Final = 24
_FROM_STAMP: Final = len(STAMP) + _STAMP_LENGTH + 2
_FROM_UUID: Final = _UUID + 2 + _FROM_STAMP
_FROM_TYPE: Final = _FROM_UUID + len(_BEHIND)
_OWN: Final = b',"uuid":"'
_CLOSED: Final = b'",'
_FROM_OWN: Final = _FROM_UUID + len(_OWN)
# What ids and times are written with.
_PLAIN: Final = (string.ascii_letters + string.digits + "-:.").encode()
# Of what follows the content: where one of these stands in front, the end does not say it all.
_BELONGS_BEHIND: Final = (
    b'"type":"assistant"',
    b'"requestId"',
    b'"timestamp"',
    b'"uuid"',
    b'"costUSD"',
    b'"usage"',
    b'"stop_reason"',
    b'"diagnostics"',
)
_UNKNOWN: Final = b"\n"  # in no line


class Shape:
    """What the lines of a transcript have in common; what is not known yet matches none.

    Attributes:
        answer: What responses repeat from ``AHEAD`` to the id of the message.
        user: What user lines repeat from ``AHEAD`` to the role.
        type_at: Where the type stands in lines that have no message, from the line's beginning.
        id_at: Where the id of the message begins, from the line's beginning.
        id_length: Its length.
        behind_id: What stands behind it, up to the list that the content is.
        model: What the repeated part says, as do ``session``, ``agent`` and ``version``.
    """

    __slots__ = (
        "agent",
        "answer",
        "behind_id",
        "id_at",
        "id_length",
        "model",
        "session",
        "type_at",
        "user",
        "version",
    )

    def __init__(self) -> None:
        self.answer: Bytes = _UNKNOWN
        self.user: Bytes = _UNKNOWN
        self.behind_id: Bytes = _UNKNOWN
        self.type_at = 0
        self.id_at = 0
        self.id_length = 0
        self.model: str | None = None
        self.session: str | None = None
        self.agent: str | None = None
        self.version: str | None = None

    def learn_user(self, data: Bytes, start: int, message: int, role: int) -> None:
        """Learn from a user line; its first message stands there, and its role ends at ``role``."""
        if not data.startswith(_MAIN, start + AHEAD):
            return
        front = data[start + AHEAD : message]
        if b"{" not in front and data.startswith(_PARENT, start):
            self.user = front + data[message:role]

    def learn_answer(self, data: Bytes, start: int, content: int, framed: Framed) -> None:
        """Learn from a line of a response that was decoded without its content.

        Args:
            data: The buffer.
            start: Where the line begins in it.
            content: Where the message's content begins.
            framed: The line without it.
        """
        if not data.startswith(_MAIN, start + AHEAD) or not data.startswith(_PARENT, start):
            return
        front = data[start + AHEAD : content]
        message, at = front.find(_MESSAGE), front.find(b'"id":"') + 6
        stop = front.find(b'"', at)
        if not 0 <= message < at < stop or front[at:stop] != framed.message.id.encode():
            return
        if front.count(b"{") != 1 or b"[" in front or b"\\" in front:
            return
        if any(name in front for name in _BELONGS_BEHIND) or not _is_in_front(front, framed):
            return
        self.answer, self.behind_id = front[:at], front[stop:] + b'"content":['
        self.id_at, self.id_length = AHEAD + at, stop - at
        self.type_at = AHEAD + message
        self.model, self.session = framed.message.model, framed.session_id
        self.agent, self.version = framed.agent_id, framed.version

    def shortened(self, data: Bytes, start: int, stop: int, end: int) -> Bytes:
        """Return a line of ``answer`` without what it repeats and without its content."""
        at = start + self.id_at
        parent, own = data[start : start + AHEAD], data[at : at + self.id_length]
        return parent + b'","message":{"id":"' + own + b'",' + data[stop:end]


def is_only_the_rest(framed: Framed) -> bool:
    """Whether a shortened line says what it must, and nothing that the repeated part says too."""
    parent = framed.parent_uuid
    return (
        framed.type == "assistant"
        and framed.timestamp is not None
        and parent is not None
        and len(parent) == _UUID
        and framed.message.model is None
        and framed.session_id is None
        and framed.agent_id is None
        and framed.version is None
        and framed.is_sidechain is None
    )


def repeated_end(data: Bytes, at: int, end: int, tail: Tail | Framed) -> Bytes | None:
    """Return what the next line of a response repeats of ``data[at:end]``.

    It reaches to the line's own id; only that and the time follow.

    Returns:
        ``None`` where the line does not end that way.
    """
    if tail.uuid is None or len(tail.uuid) != _UUID or not tail.request_id:
        return None
    if not data.startswith(_BEHIND, end - _FROM_TYPE):
        return None
    return data[at : end - _FROM_UUID]


def is_usual_front(data: Bytes, start: int) -> bool:
    """Whether a line begins with the id of another one, up to the quote behind it."""
    front = data[start : start + AHEAD]
    return front.startswith(_PARENT) and front.translate(None, _PLAIN) == b'{"""'


def is_usual_end(data: Bytes, end: int) -> bool:
    """Whether a line ends with its own id, up to the quote before it, and its time."""
    at = end - _FROM_UUID
    return (
        data.startswith(_CLOSED + STAMP, end - _FROM_STAMP - len(_CLOSED))
        and data[end - 2] == _QUOTE
        and data[at:end].translate(None, _PLAIN) == b'",""""}'
    )


def ends_of_user(data: Bytes, start: int, message: int, end: int) -> Bytes | None:
    """Return a user line without its message, where its id and its time are all that follows it.

    Args:
        data: The buffer.
        start: Where the line begins in it.
        message: Where its message begins.
        end: Where it ends.

    Returns:
        ``None`` where what belongs in front may stand behind.
    """
    if not data.startswith(_OWN, end - _FROM_OWN) or not data.startswith(STAMP, end - _FROM_STAMP):
        return None
    front = data[start:message]
    if b'"parentUuid":' not in front or b'"uuid":' in front:
        return None
    return front + data[end - _FROM_OWN + 1 : end]


def _is_in_front(front: Bytes, framed: Framed) -> bool:
    """Whether all that a line says of its session stands in front of the content."""
    return all(
        value is None or name in front
        for name, value in (
            (b'"model":', framed.message.model),
            (b'"sessionId":', framed.session_id),
            (b'"agentId":', framed.agent_id),
            (b'"version":', framed.version),
        )
    )

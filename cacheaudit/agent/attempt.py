"""One HTTP attempt while it runs: references to what went past, nothing decoded, nothing copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from cacheaudit.agent.rope import Rope, rope
from cacheaudit.agent.scope import Scope

Kind = Literal["call", "batch", "results"]
Ending = Literal["read", "closed", "failed"]

# A longer answer keeps its beginning and its end, where the usage stands.
LONGEST_ANSWER: Final = 64 << 20
_TAIL: Final = 16


class Attempt:
    """What a hook notes of one attempt. Filled by one thread, then read by the writer.

    Attributes:
        key: Identity of the attempt, unique everywhere.
        logical: Identity of the logical call, shared by its retries.
        number: 0 for the first attempt.
        kind: A model call, a batch that is handed in, or the results of one.
        scope: Session, lane, task and purpose in force when the call was made.
        era: Process that the attempt belongs to: a fork begins a new one.
        started_at: Request start.
        first_byte_at: Arrival of the response's head.
        ended_at: End of the response.
        url: Where it went, as anything that ``str`` turns into the address.
        packed: Body of the request as sent; ``None`` where it could not be had.
        sent: The few request headers that are kept, by lower-case name.
        received: The few response headers that are kept.
        status: HTTP status.
        answer: Body of a response that was read in one piece, decompressed.
        chunks: Pieces of a streamed response, as they came.
        times: Moment of each piece.
        ending: How the response ended; ``None`` while it runs.
        failure: Kind of the exception that ended the attempt.
        reserved: Bytes that count against the recorder's limit.
        prepared: What the writer has worked out already, for a stream that it wrote before its end.
        finished: The writer has seen its end.
        void: Nothing was sent, so that there is nothing to record.
        sender: What can send the request again; ``None`` where nobody will.
        marked: It carries cache markers, and all of them are the planner's.
    """

    __slots__ = (
        "_kept",
        "answer",
        "chunks",
        "ended_at",
        "ending",
        "era",
        "failure",
        "finished",
        "first_byte_at",
        "key",
        "kind",
        "logical",
        "marked",
        "number",
        "packed",
        "prepared",
        "received",
        "reserved",
        "scope",
        "sender",
        "sent",
        "started_at",
        "status",
        "times",
        "url",
        "void",
    )

    def __init__(
        self, key: str, logical: str, number: int, kind: Kind, scope: Scope, started_at: float
    ) -> None:
        self.key = key
        self.logical = logical
        self.number = number
        self.kind: Kind = kind
        self.scope = scope
        self.era = 0
        self.started_at = started_at
        self.first_byte_at: float | None = None
        self.ended_at: float | None = None
        self.url: Any = None
        self.packed: Rope | None = None
        self.sent: dict[str, str] = {}
        self.received: dict[str, str] = {}
        self.status: int | None = None
        self.answer: bytes | None = None
        self.chunks: list[bytes] = []
        self.times: list[float] = []
        self.ending: Ending | None = None
        self.failure: str | None = None
        self.reserved = 0
        self.prepared: Any = None
        self.finished = False
        self.void = False
        self.sender: Any = None
        self.marked = False
        self._kept = 0

    @property
    def body(self) -> bytes | None:
        """Bytes of the request as sent, put together."""
        return None if self.packed is None else bytes(self.packed)

    @body.setter
    def body(self, data: bytes | None) -> None:
        self.packed = None if data is None else rope(data)

    @property
    def is_stream(self) -> bool:
        """Whether the response came, or comes, in pieces."""
        return self.answer is None and bool(self.chunks)

    def take(self, chunk: bytes, at: float) -> None:
        """Note one piece of a streamed response."""
        self._kept += len(chunk)
        self.chunks.append(chunk)
        self.times.append(at)
        if self._kept > LONGEST_ANSWER and len(self.chunks) > 2 * _TAIL:
            self._kept -= len(self.chunks[-_TAIL])
            del self.chunks[-_TAIL], self.times[-_TAIL]


class Sink:
    """Receives what passes through a stream and tells the recorder when it is over.

    No method raises.
    """

    __slots__ = ("_attempt", "_done", "_fault", "_now", "_progress")

    def __init__(
        self,
        attempt: Attempt,
        now: Callable[[], float],
        done: Callable[[Attempt], None],
        progress: Callable[[Attempt], None],
        fault: Callable[[str, BaseException], None],
    ) -> None:
        self._attempt = attempt
        self._now = now
        self._done = done
        self._progress = progress
        self._fault = fault

    def chunk(self, chunk: bytes) -> None:
        """Note a piece."""
        try:
            attempt = self._attempt
            attempt.take(chunk, self._now())
            if len(attempt.chunks) == 1:
                self._progress(attempt)
        except Exception as error:
            self._fault("chunk", error)

    def end(self, how: Ending, error: BaseException | None = None) -> None:
        """Note the end; only the first one counts."""
        try:
            attempt = self._attempt
            if attempt.ending is not None:
                return
            attempt.ending = how
            attempt.ended_at = self._now()
            if error is not None:
                attempt.failure = failure_name(error)
            self._done(attempt)
        except Exception as fault:
            self._fault("end", fault)


def failure_name(error: BaseException) -> str:
    """Name an exception in one plain word where its kind is well known."""
    name = type(error).__name__
    for word, plain in _FAILURES:
        if word in name:
            return plain
    return name


_FAILURES: Final = (
    ("Cancel", "cancelled"),
    ("KeyboardInterrupt", "interrupted"),
    ("Timeout", "timeout"),
    ("ConnectionError", "connection"),
    ("ConnectError", "connection"),
    ("NetworkError", "connection"),
    ("ReadError", "connection"),
    ("WriteError", "connection"),
    ("ProtocolError", "connection"),
)

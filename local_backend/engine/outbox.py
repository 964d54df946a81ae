"""Events on their way out, counted as they are written down."""

from __future__ import annotations

from local_backend.engine.api import Event, Finished, FinishReason, Piece, Started
from local_backend.engine.counts import Counts
from local_backend.engine.generation import Generation
from local_backend.engine.stops import Found


class Outbox:
    """What happened and was not handed out yet.

    Args:
        counts: Told of everything.
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._events: list[Event] = []

    def __len__(self) -> int:
        return len(self._events)

    def take(self) -> list[Event]:
        """All of it, in order; the outbox is empty then."""
        events, self._events = self._events, []
        return events

    def start(self, generation: Generation, now: float) -> None:
        """A prompt is complete."""
        generation.is_started = True
        usage = generation.usage()
        admitted = now if generation.admitted_s is None else generation.admitted_s
        self._counts.started(usage)
        self._events.append(
            Started(
                name=generation.request.name,
                usage=usage,
                queue_s=admitted - generation.submitted_s,
                prefill_s=now - admitted,
            )
        )

    def piece(self, generation: Generation, token: int, text: str) -> None:
        """An answer has one more token."""
        self._events.append(Piece(name=generation.request.name, token=token, text=text))

    def end(
        self,
        generation: Generation,
        reason: FinishReason,
        stop_sequence: str | None,
        error: Exception | None,
    ) -> None:
        """An answer ended; what was held back of its text goes out."""
        rest: str | Found = "" if stop_sequence is not None else generation.text.finish()
        if isinstance(rest, Found):
            reason, stop_sequence = FinishReason.STOP_SEQUENCE, rest.sequence
            rest = rest.before
        self._counts.ended(reason)
        self._events.append(
            Finished(
                name=generation.request.name,
                reason=reason,
                text=rest,
                output_tokens=generation.output,
                stop_sequence=stop_sequence,
                error=None if error is None else f"{type(error).__name__}: {error}",
            )
        )

"""A request on its way through the engine."""

from __future__ import annotations

from local_backend.engine.api import GenerationRequest, PromptUsage
from local_backend.engine.stops import StopText
from local_backend.kvcache.keys import TokenKey
from local_backend.kvcache.sequence import Sequence

# Where the K and V of a prompt's position came from.
RESIDENT, RESTORED, JOINED, COMPUTED = range(1, 5)


class Generation:
    """What the engine knows of one request.

    Attributes:
        request: What was asked for.
        order: Number of its submission; who came first goes first.
        key: Its prompt; the answer so far is added whenever its pages are given back.
        text: Its answer as text.
        submitted_s: When it was submitted.
        deadline_s: When it is given up; None for never.
        room: Most tokens that its answer may have.
        sequence: Its pages; None while it waits.
        pending: The last token drawn, which was not computed yet.
        output: Tokens of the answer so far.
        admitted_s: When it first got pages.
        is_started: Whether its prompt is complete, and its user knows.
        reach: Tokens that it had when its pages were given back; it may have these again whatever
            the limit on hits.
        leader: A request whose pages it waits for.
        leader_until: Tokens of the leader that it waits for.
        found: Tokens that would have been hit when it began to wait for a leader.
    """

    sequence: Sequence | None = None
    pending: int | None = None
    output = 0
    admitted_s: float | None = None
    is_started = False
    reach = 0
    leader: Generation | None = None
    leader_until = 0
    found: int | None = None

    def __init__(
        self,
        request: GenerationRequest,
        order: int,
        key: TokenKey,
        text: StopText,
        submitted_s: float,
        room: int,
    ) -> None:
        self.request = request
        self.order = order
        self.key = key
        self.text = text
        self.submitted_s = submitted_s
        self.deadline_s = None if request.deadline_s is None else submitted_s + request.deadline_s
        self.room = room
        self.prompt = len(request.tokens)
        self._origin = bytearray(self.prompt)
        self._restore_s = 0.0
        self._limited_by: str | None = None

    @property
    def needs_token(self) -> bool:
        """Whether a token is to be drawn; not where only the prompt is wanted."""
        return self.request.max_tokens > 0

    @property
    def hit_limit(self) -> int:
        """Most tokens that it may find at its next admission."""
        most = len(self.key) - 1 if self.needs_token else len(self.key)
        limit = self.request.hit_limit
        return most if limit is None else min(most, max(limit, self.reach))

    @property
    def is_prefill(self) -> bool:
        """Whether it has pages, and its prompt is not complete."""
        return self.sequence is not None and self.sequence.computed < len(self.sequence.key)

    # What became of the prompt.

    def note_admitted(self, sequence: Sequence, now: float) -> None:
        """It got pages, some of them with content."""
        self.sequence = sequence
        if self.admitted_s is None:
            self.admitted_s = now
        hit = min(sequence.computed, self.prompt)
        self._note(RESIDENT, 0, hit)
        if self.found is not None:
            self._note(JOINED, self.found, hit)
        if sequence.restored:
            self._note(RESTORED, hit - sequence.restored, hit)
        self._restore_s += sequence.restore_s
        self._limited_by = sequence.limited_by or self._limited_by

    def _note(self, origin: int, start: int, end: int) -> None:
        start = max(start, self.reach)
        if start < end:
            self._origin[start:end] = bytes([origin]) * (end - start)

    def note_computed(self, start: int, end: int) -> int:
        """Positions were computed; how many of them it had had before."""
        again = max(0, min(end, self.reach) - start)
        end = min(end, self.prompt)
        if start < end:
            self._origin[start:end] = bytes([COMPUTED]) * (end - start)
        return again

    def usage(self) -> PromptUsage:
        """What the cache did for the prompt."""
        count = self._origin.count
        computed, joined = count(COMPUTED), count(JOINED)
        return PromptUsage(
            prompt=self.prompt,
            hit=self.prompt - computed,
            computed=computed,
            joined=joined,
            restored=count(RESTORED),
            restore_s=self._restore_s,
            limited_by=self._limited_by,
        )

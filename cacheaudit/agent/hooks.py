"""What every hook does around an attempt: open it, plan it, note what came of it. Never raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from cacheaudit.agent.attempt import Attempt
from cacheaudit.agent.capture import Capture
from cacheaudit.agent.faults import Faults
from cacheaudit.agent.interest import interest
from cacheaudit.agent.plan import Logical, LogicalCalls, Outgoing, Planner, new_id
from cacheaudit.agent.recorder import Recorder
from cacheaudit.agent.scope import current

Mode = Literal["auto", "observe"]
# A refresh must repeat what was sent; a probe must send what it says.
_AS_IT_IS: Final = frozenset({"keep_alive", "probe"})


class Hooks:
    """The part that middleware, transport and proxy share.

    Args:
        owner: Whose scopes apply.
        recorder: Where attempts go.
        faults: Counts what fails.
        now: The clock.
        planner: Changes requests; ``None``: nothing is ever changed.
        watch: Told of every request that is sent, in the thread that sends it.
    """

    def __init__(
        self,
        owner: str,
        recorder: Recorder,
        faults: Faults,
        now: Callable[[], float],
        planner: Planner | None = None,
        watch: Callable[[Attempt], None] | None = None,
    ) -> None:
        self._owner = owner
        self._recorder = recorder
        self._faults = faults
        self._now = now
        self._planner = planner
        self._watch = watch
        self._capture = Capture(recorder, faults, now)
        self._logical = LogicalCalls()

    @property
    def plans(self) -> bool:
        """Whether requests may be changed."""
        return self._planner is not None

    def begin(
        self, method: str, url: str, number: int = 0, retry_key: str | None = None
    ) -> Attempt | None:
        """Open an attempt; ``None``: the request is not one to record, or cannot be."""
        try:
            kind = interest(method, url)
            if kind is None:
                return None
            known = self._logical.again(retry_key) if number else None
            if known is None:
                known = Logical(new_id())
                self._logical.first(retry_key, known)
            key = known.id if number == 0 else new_id()
            attempt = Attempt(key, known.id, number, kind, current(self._owner), self._now())
            return attempt if self._recorder.reserve(attempt) else None
        except Exception as error:
            self._faults("begin", error)
            return None

    def plan(
        self, attempt: Attempt, body: Any, url: str, retry_key: str | None = None
    ) -> Mapping[str, Any] | None:
        """Return the body to send instead; ``None``: the request stays as it is."""
        if self._planner is None or attempt.kind != "call" or not isinstance(body, dict):
            return None
        if attempt.scope.purpose in _AS_IT_IS:
            return None
        try:
            if attempt.number and (known := self._logical.again(retry_key)) is not None:
                attempt.marked = known.marked
                return known.body
            outgoing = Outgoing(body, url, attempt.scope, attempt.logical, attempt.started_at)
            planned = self._planner.plan(outgoing)
            if planned is not None and not isinstance(planned, dict):
                raise TypeError("a plan is a body or nothing")
            ours = getattr(self._planner, "is_ours", None)
            attempt.marked = planned is not None and ours is not None and ours(attempt.logical)
            self._logical.first(retry_key, Logical(attempt.logical, planned, attempt.marked))
        except Exception as error:
            self._faults("plan", error)
            return None
        return planned

    def sent(self, attempt: Attempt, request: Any) -> None:
        """Note the HTTP request of an attempt."""
        try:
            self._capture.request(attempt, request)
            if self._watch is not None:
                self._watch(attempt)
        except Exception as error:
            self._faults("request", error)

    def received(self, attempt: Attempt, response: Any, retry_key: str | None = None) -> None:
        """Note the HTTP response of an attempt, or watch it go past."""
        try:
            self._capture.response(attempt, response)
            if attempt.status is not None and attempt.status < 400:
                self._logical.forget(retry_key)
        except Exception as error:
            self._faults("response", error)
            self.lost(attempt)

    def failed(self, attempt: Attempt, error: BaseException) -> None:
        """Note that an attempt brought no response."""
        try:
            self._capture.failure(attempt, error)
        except Exception as fault:
            self._faults("failure", fault)
            self.lost(attempt)

    def lost(self, attempt: Attempt) -> None:
        """Record of an attempt what is known, where the rest cannot be had."""
        try:
            if attempt.ending is None:
                attempt.ending = "closed"
                self._recorder.hand_over(attempt)
        except Exception as error:
            self._faults("lost", error)

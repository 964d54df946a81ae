"""Takes from requests and responses what is recorded of them. Credentials are never among it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cacheaudit.agent.attempt import Attempt, Sink, failure_name
from cacheaudit.agent.faults import Faults
from cacheaudit.agent.recorder import Recorder
from cacheaudit.agent.tee import tee

# The headers that tell the cache key, the session, the client and the number of the attempt.
_SENT: Final = (
    "anthropic-beta",
    "user-agent",
    "x-stainless-retry-count",
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "x-session-id",
    "conversation_id",
    "x-session-affinity",
)
_RECEIVED: Final = (
    "content-type",
    "content-encoding",
    "request-id",
    "x-request-id",
    "x-amzn-requestid",
    "x-amzn-bedrock-input-token-count",
    "x-amzn-bedrock-output-token-count",
    "x-amzn-bedrock-cache-read-input-token-count",
    "x-amzn-bedrock-cache-write-input-token-count",
)


class Capture:
    """Notes what a request and its response say.

    Args:
        recorder: Gets the attempts that have ended.
        faults: Counts what fails.
        now: The clock.
    """

    def __init__(self, recorder: Recorder, faults: Faults, now: Callable[[], float]) -> None:
        self._recorder = recorder
        self._faults = faults
        self._now = now

    def request(self, attempt: Attempt, request: Any) -> None:
        """Note an HTTP request of an ``httpx``-like library."""
        attempt.url = request.url
        attempt.sent = _picked(request.headers, _SENT)
        try:
            attempt.body = request.content
        except Exception as error:
            # The body is a stream: reading it here would take it from the caller.
            self._faults("body", error)
        self._recorder.weigh(attempt)

    def response(self, attempt: Attempt, response: Any) -> None:
        """Note a response: its body where it is there already, else put a tee on its stream."""
        attempt.first_byte_at = self._now()
        attempt.status = response.status_code
        attempt.received = _picked(response.headers, _RECEIVED)
        sink = self._sink(attempt)
        if response.is_closed or response.is_stream_consumed:
            try:
                attempt.answer = response.content
            except Exception as error:
                self._faults("content", error)
            sink.end("read")
            return
        stood_in = tee(response.stream, sink)
        if stood_in is None:
            self._faults.count("stream:unknown_kind")
            sink.end("closed")
            return
        response.stream = stood_in

    def failure(self, attempt: Attempt, error: BaseException) -> None:
        """Note an attempt that brought no response."""
        if attempt.url is None and (request := request_of(error)) is not None:
            self.request(attempt, request)
        elif attempt.packed is not None and not attempt.reserved:
            self._recorder.weigh(attempt)
        attempt.failure = failure_name(error)
        self._sink(attempt).end("failed")

    def _sink(self, attempt: Attempt) -> Sink:
        hand_over = self._recorder.hand_over
        return Sink(attempt, self._now, hand_over, hand_over, self._faults)


def request_of(error: BaseException) -> Any:
    """Return the request that an exception names; asking one that names none is an error there."""
    try:
        return getattr(error, "request", None)
    except Exception:
        return None


def _picked(headers: Any, names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name in names if (value := headers.get(name)) is not None}

"""Sends the four requests one after another, and stops where going on would tell nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from cacheaudit.agent.probe.http import Event, RequestFailedError
from cacheaudit.agent.probe.requests import CASES, Case, Probe
from cacheaudit.ingest.answers import merged, raw_usage, read_answer
from cacheaudit.model.redact import word
from cacheaudit.model.usage import Usage

SCHEMA: Final = "cacheaudit.probe/1"


class Server(Protocol):
    """Sends one request."""

    def events(self, body: Mapping[str, Any], tick: Callable[[], float]) -> Iterator[Event]:
        """See :meth:`cacheaudit.agent.probe.http.Endpoint.events`."""
        ...


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one request brought. What the server did not say is ``None``.

    Attributes:
        case: Which of the four.
        requested_model: Model as sent.
        response_model: Model that answered.
        first_text_s: Seconds to the first piece of text.
        request_s: Seconds to the end of the response.
        total_input: All input tokens.
        cache_read: Those that were read from the cache.
        cache_write: Those that were written to it.
        uncached_input: The others.
        output: Output tokens.
        usage: As the server sent it.
        stop_reason: Why the response ended.
        complete: It ended as a response should.
        error: What went wrong.
        schema: Form of this record.
    """

    case: str
    requested_model: str
    response_model: str | None = None
    first_text_s: float | None = None
    request_s: float | None = None
    total_input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    uncached_input: int | None = None
    output: int | None = None
    usage: dict[str, Any] = {}
    stop_reason: str | None = None
    complete: bool = False
    error: str | None = None
    schema: str = SCHEMA


def probe(
    plan: Probe,
    server: Server,
    tick: Callable[[], float],
    pause: Callable[[], None] = lambda: None,
) -> Iterator[Row]:
    """Send at most four requests, none of them twice.

    It stops behind a request that failed or broke off, and behind the second one where that does
    not show that it read from the cache.

    Args:
        plan: What to send.
        server: Who sends it.
        tick: A clock that only rises, in seconds.
        pause: Waits between requests, for servers that store with a delay.
    """
    for number, case in enumerate(CASES):
        if number:
            pause()
        row = ask(plan.body(case), case, server, tick)
        yield row
        if not row.complete or (case == "confirm" and not row.cache_read):
            return


def ask(
    body: Mapping[str, Any],
    case: Case | str,
    server: Server,
    tick: Callable[[], float],
    began: Callable[[], None] | None = None,
) -> Row:
    """Send one request and say what came back.

    Args:
        body: The request.
        case: What it is called.
        server: Who sends it.
        tick: A clock that only rises, in seconds.
        began: Called when the response begins.
    """
    events: list[dict[str, Any]] = []
    first_text: float | None = None
    error: str | None = None
    is_over = False
    start = tick()
    try:
        for event in server.events(body, tick):
            if began is not None:
                began()
            if event.data is None:
                is_over = True  # the end mark of Chat Completions
                continue
            events.append(event.data)
            if first_text is None and _has_text(event.data):
                first_text = event.at
            is_over = is_over or _is_end(event.data)
            if _is_error(event.data):
                break
    except RequestFailedError as failure:
        error = str(failure)
    seconds = tick() - start
    is_whole = len(events) == 1 and _is_whole(events[0])
    answer = read_answer(events[0], body) if is_whole else merged(events, body)
    if error is None and answer.error is not None:
        error = word(answer.error.type or "error")
    if error is None and not is_over:
        error = "ended_early"
    usage = answer.usage or Usage()
    return Row(
        case=case,
        requested_model=str(body.get("model")),
        response_model=answer.model,
        first_text_s=None if first_text is None else round(first_text, 3),
        request_s=round(seconds, 3),
        total_input=usage.total_input,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        uncached_input=usage.uncached_input,
        output=usage.output,
        usage=_usage(events),
        stop_reason=answer.stop_reason,
        complete=error is None,
        error=error,
    )


def _has_text(event: Mapping[str, Any]) -> bool:
    delta = event.get("delta")
    if isinstance(delta, Mapping):
        return bool(delta.get("text"))
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        found = choices[0].get("delta")
        return isinstance(found, Mapping) and bool(found.get("content"))
    return False


def _is_end(event: Mapping[str, Any]) -> bool:
    """Whether an event is the last of a stream, or a whole response."""
    return event.get("type") == "message_stop" or _is_whole(event)


def _is_whole(event: Mapping[str, Any]) -> bool:
    return event.get("type") == "message" or event.get("object") == "chat.completion"


def _is_error(event: Mapping[str, Any]) -> bool:
    return event.get("type") == "error" or isinstance(event.get("error"), Mapping)


def _usage(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Put together what the server said of usage: later words replace earlier ones."""
    found: dict[str, Any] = {}
    for event in events:
        said = raw_usage(event) or {}
        found.update({name: value for name, value in said.items() if value is not None})
    return found

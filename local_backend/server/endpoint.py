"""What all endpoints share: identity, caller, limits, errors, counters."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from local_backend.server.auth import workspace_of
from local_backend.server.clock import ManualClock, parse_moment
from local_backend.server.errors import (
    ApiError,
    ClientGoneError,
    InvalidRequestError,
    error_response,
)
from local_backend.server.service import Caller, Service

NOW = "x-cacheaudit-now"
BEGAN = "x-cacheaudit-began"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """One request as an endpoint gets it.

    Attributes:
        id: Of the request.
        http: The request on the wire.
        caller: Who asks, and when.
    """

    id: str
    http: Request
    caller: Caller


Handler = Callable[[Service, Call], Awaitable[Response]]


class Endpoint:
    """An ASGI application around one handler.

    Args:
        service: What it works with.
        name: For the counters.
        handler: Answers a request, or raises :class:`ApiError`.
        is_open: Whether it is answered without a key, and however many requests there are.
    """

    def __init__(
        self, service: Service, name: str, handler: Handler, *, is_open: bool = False
    ) -> None:
        self._service = service
        self._name = name
        self._handler = handler
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request_id = self._service.new_id("req_")
        statuses: list[int] = []

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        request = Request(scope, receive, watched)
        metrics = self._service.metrics
        try:
            with ExitStack() as held:
                if not self._is_open:
                    held.enter_context(self._service.gate)
                    metrics.open_requests += 1
                    held.callback(self._closed)
                response = await self._answer(request, request_id)
                await response(scope, receive, watched)
        except ClientGoneError:
            metrics.disconnects += 1
            statuses = statuses or [499]
        except ApiError as error:
            await error_response(error, request_id)(scope, receive, watched)
        finally:
            if statuses:
                metrics.requests[self._name, statuses[0]] += 1

    def _closed(self) -> None:
        self._service.metrics.open_requests -= 1

    async def _answer(self, request: Request, request_id: str) -> Response:
        try:
            call = Call(request_id, request, self._caller(request))
            response = await self._handler(self._service, call)
        except (ApiError, ClientGoneError):
            raise
        except RecursionError:
            raise InvalidRequestError("", "the body is nested too deeply") from None
        except Exception as error:  # a fault of ours; its message may quote the prompt
            log_fault(error, request_id)
            raise ApiError(500, "the server failed; the log knows more") from None
        response.headers["request-id"] = request_id
        return response

    def _caller(self, request: Request) -> Caller:
        service = self._service
        workspace = "" if self._is_open else workspace_of(request.headers, service.settings)
        now, began = (self._moment(request, header) for header in (NOW, BEGAN))
        if isinstance(service.clock, ManualClock) and now is not None:
            service.clock.reach(now)
        moment = service.clock.now() if now is None else now
        # A request that brings its own time does not wait for the clock, which others moved.
        return Caller(
            workspace=workspace, now=moment, readable_from=now if began is None else began
        )

    def _moment(self, request: Request, header: str) -> float | None:
        text = request.headers.get(header)
        if text is None:
            return None
        if not self._service.clock.manual:
            raise InvalidRequestError(header, "works only where the server runs on a manual clock")
        return parse_moment(text, header)


def log_fault(error: Exception, request_id: str) -> None:
    """Log where something went wrong, and what kind of thing, but not what it was about."""
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in frames[:-6:-1])
    _log.error("%s: %s at %s", request_id, type(error).__name__, places)

"""The hook of the Anthropic SDK: its public middleware, for both kinds of client.

The SDK runs the chain once for every HTTP attempt, inside its own loop of retries. Nothing of it is
replaced: the middleware hands the request on and looks at the response that comes back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from cacheaudit._lazy import need
from cacheaudit.agent.attempt import Attempt
from cacheaudit.agent.capture import request_of
from cacheaudit.agent.faults import Faults
from cacheaudit.agent.hooks import Hooks

MARK: Final = "cacheaudit_hooks"
SenderOf = Callable[[Attempt], Any]


def middleware(hooks: Hooks, faults: Faults, sender: SenderOf | None = None, home: str = "") -> Any:
    """Make the middleware; an instance of the SDK's own class, good for both kinds of client.

    Args:
        hooks: Where attempts go.
        faults: Counts what fails.
        sender: Makes what can send a request again, where somebody may want to.
        home: Address that the client's paths are relative to.

    Raises:
        MissingExtraError: The SDK is not installed.
    """
    base: type = need("anthropic", "anthropic").Middleware
    steps = _Steps(hooks, faults, sender, home)

    def handle(_: Any, request: Any, call_next: Callable[[Any], Any]) -> Any:
        attempt, request = steps.before(request)
        if attempt is None:
            return call_next(request)
        try:
            response = call_next(request)
        except BaseException as error:
            steps.failed(attempt, request, error)
            raise
        steps.after(attempt, request, response)
        return response

    async def handle_async(_: Any, request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        attempt, request = steps.before(request)
        if attempt is None:
            return await call_next(request)
        try:
            response = await call_next(request)
        except BaseException as error:
            steps.failed(attempt, request, error)
            raise
        steps.after(attempt, request, response)
        return response

    made = type(
        "CacheAuditMiddleware",
        (base,),
        {"handle": handle, "handle_async": handle_async, MARK: hooks},
    )
    return made()


class _Steps:
    """What happens before and after the rest of the chain. No method raises."""

    def __init__(self, hooks: Hooks, faults: Faults, sender: SenderOf | None, home: str) -> None:
        self._hooks = hooks
        self._faults = faults
        self._sender = sender
        self._home = home.rstrip("/")

    def before(self, request: Any) -> tuple[Attempt | None, Any]:
        """Open the attempt and, where there is a planner, change the request."""
        attempt = None
        try:
            key = request.options.idempotency_key
            url = request.url
            attempt = self._hooks.begin(request.method, url, request.retries_taken, key)
            if attempt is None:
                return None, request
            if self._sender is not None:
                attempt.sender = self._sender(attempt)
            address = self._home + url if url.startswith("/") else url
            planned = self._hooks.plan(attempt, request.json, address, key)
            return attempt, request if planned is None else with_body(request, planned)
        except Exception as error:
            self._faults("before", error)
            return attempt, request

    def after(self, attempt: Attempt, request: Any, response: Any) -> None:
        """Note what came back."""
        try:
            http = getattr(response, "http_response", None)
            if http is None:
                # Another middleware answered in the server's place.
                attempt.void = True
                self._hooks.lost(attempt)
                return
            self._hooks.sent(attempt, http.request)
            self._hooks.received(attempt, http, request.options.idempotency_key)
        except Exception as error:
            self._faults("after", error)
            self._hooks.lost(attempt)

    def failed(self, attempt: Attempt, request: Any, error: BaseException) -> None:
        """Note that nothing came back; the body is kept, since it may have reached the server."""
        try:
            if request_of(error) is None:
                attempt.url = request.url
                body = request.json
                attempt.body = msgspec.json.encode(body) if isinstance(body, dict) else None
        except Exception as fault:
            self._faults("failed", fault)
        self._hooks.failed(attempt, error)


def with_body(request: Any, body: Mapping[str, Any]) -> Any:
    """Return a request with another body.

    The SDK's own ``copy`` makes a deep copy of the body that is replaced, which takes longer than
    all the rest of a plan; it is used where the request has another make than the one known here.
    """
    try:
        options = request.options.model_copy(update={"json_data": body})
        return type(request)(
            options=options,
            cast_to=request.cast_to,
            stream=request.stream,
            stream_cls=request.stream_cls,
            retries_taken=request.retries_taken,
        )
    except (AttributeError, TypeError):
        return request.copy(body=body)

"""The hook of every other client: a transport that stands in front of another one.

It imports neither ``httpx`` nor ``httpx2``: both ask a transport for the same few methods. It
serves synchronous and asynchronous clients, as far as the transport behind it does.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from cacheaudit.agent.attempt import Attempt
from cacheaudit.agent.body import decode
from cacheaudit.agent.faults import Faults
from cacheaudit.agent.hooks import Hooks
from cacheaudit.agent.plan import new_id

encode: Final = msgspec.json.Encoder().encode
_LATEST: Final[ContextVar[str]] = ContextVar("cacheaudit_logical_call", default="")


class RecordingTransport:
    """Records what goes through it; see :meth:`cacheaudit.CacheAudit.transport`.

    Args:
        inner: The transport that does the work.
        hooks: Where attempts go.
        faults: Counts what fails.
    """

    def __init__(self, inner: Any, hooks: Hooks, faults: Faults) -> None:
        self._inner = inner
        self._hooks = hooks
        self._faults = faults

    def handle_request(self, request: Any) -> Any:
        """Send a request and return the response, as the transport behind does."""
        attempt, request = self._before(request)
        if attempt is None:
            return self._inner.handle_request(request)
        try:
            response = self._inner.handle_request(request)
        except BaseException as error:
            self._hooks.failed(attempt, error)
            raise
        self._hooks.received(attempt, response, _LATEST.get())
        return response

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request and return the response, as the transport behind does."""
        attempt, request = self._before(request)
        if attempt is None:
            return await self._inner.handle_async_request(request)
        try:
            response = await self._inner.handle_async_request(request)
        except BaseException as error:
            self._hooks.failed(attempt, error)
            raise
        self._hooks.received(attempt, response, _LATEST.get())
        return response

    def _before(self, request: Any) -> tuple[Attempt | None, Any]:
        try:
            number = _count(request.headers.get("x-stainless-retry-count"))
            key = self._key(number)
            attempt = self._hooks.begin(request.method, request.url.path, number, key)
        except Exception as error:
            self._faults("before", error)
            return None, request
        if attempt is not None:
            request = self._planned(attempt, request, key)
            self._hooks.sent(attempt, request)
        return attempt, request

    def _planned(self, attempt: Attempt, request: Any, key: str) -> Any:
        """Return the request with the body that is sent instead, or as it is."""
        try:
            if not self._hooks.plans or _is_signed(request.headers):
                return request
            body = _json(request)
            planned = self._hooks.plan(attempt, body, str(request.url), key)
            return request if planned is None else _rebuilt(request, encode(planned))
        except Exception as error:
            self._faults("planned", error)
            return request

    def _key(self, number: int) -> str:
        """Name the logical call: a client makes its retries where it made the first attempt."""
        if number == 0 or not _LATEST.get():
            _LATEST.set(new_id())
        return _LATEST.get()

    def close(self) -> None:
        """Close the transport behind."""
        self._inner.close()

    async def aclose(self) -> None:
        """Close the transport behind."""
        await self._inner.aclose()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._inner.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)


def _count(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 4 else 0


def _json(request: Any) -> Any:
    """Return the body of a request; ``None`` where it is streamed, compressed, or no JSON."""
    try:
        return decode(request.content)
    except (msgspec.DecodeError, RuntimeError):
        return None


def _is_signed(headers: Any) -> bool:
    """Whether a signature over the body was made already: nothing may be changed then."""
    return "x-amz-content-sha256" in headers or str(headers.get("authorization", "")).startswith(
        "AWS4"
    )


def _rebuilt(request: Any, content: bytes) -> Any:
    """Return a request of the same library with another body."""
    headers = [
        (name, value)
        for name, value in request.headers.multi_items()
        if name.lower() not in ("content-length", "transfer-encoding")
    ]
    return type(request)(
        request.method,
        request.url,
        headers=headers,
        content=content,
        extensions=request.extensions,
    )

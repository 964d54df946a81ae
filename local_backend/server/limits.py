"""How much may be asked for, and how long it may take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from starlette.requests import ClientDisconnect, Request

from local_backend.server.errors import ApiError, ClientGoneError, InvalidRequestError
from local_backend.server.settings import Settings

_Result = TypeVar("_Result")


class Gate:
    """Counts the requests being answered; one too many is turned away.

    Args:
        most: How many may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.inside = 0

    def __enter__(self) -> Gate:
        if self.inside >= self._most:
            raise ApiError(429, f"{self._most} requests are being answered", retry_after=1)
        self.inside += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.inside -= 1


async def read_json(request: Request, settings: Settings) -> Any:
    """The body of a request as JSON.

    Raises:
        ApiError: It is too large, too slow, or no JSON.
        ClientGoneError: The client left before it was complete.
    """
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() not in ("identity", ""):
        raise InvalidRequestError("content-encoding", "bodies are taken as they are only")
    body = await _read_body(request, settings)
    try:
        found = json.loads(body, parse_constant=_no_number)
        if b"\\ud" in body.lower():  # half a character can be escaped, but is no text
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except UnicodeEncodeError:
        raise InvalidRequestError("", "the body has half of a surrogate pair") from None
    except (ValueError, RecursionError) as error:
        place = f" at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidRequestError("", f"the body is not valid JSON{place}") from None


async def _read_body(request: Request, settings: Settings) -> bytes:
    most = settings.max_body_bytes
    too_large = ApiError(413, f"the body is larger than {most} bytes")
    with suppress(ValueError):
        if int(request.headers.get("content-length", "0")) > most:
            raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        raise ApiError(408, "the body did not arrive in time") from None
    except ClientDisconnect:
        raise ClientGoneError("the client left while it sent its body") from None
    return bytes(body)


async def unless_gone(request: Request, work: Awaitable[_Result]) -> _Result:
    """Wait for something as long as there is a client; its body must have been read.

    Raises:
        ClientGoneError: It left.
    """
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(gone(request))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise ClientGoneError("the client left before its answer began")
    finally:
        for task in (doing, leaving):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def gone(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")

"""Errors as clients of the Messages API expect them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from local_backend.errors import LocalBackendError

TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class ApiError(LocalBackendError):
    """An answer that is an error.

    Args:
        status: HTTP status; the type of the error follows from it.
        message: For the client; never holds text of a prompt.
        retry_after: Seconds after which it makes sense to try again; None for no advice.
    """

    error_code = "api_error"

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.type = TYPES.get(status, "api_error")
        self.retry_after = retry_after


class InvalidRequestError(ApiError):
    """A request that does not have the shape of its API.

    Args:
        path: Where in the body; empty for the body as a whole.
        reason: What is wrong there.
    """

    error_code = "invalid_request"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(400, f"{path}: {reason}" if path else reason)
        self.path = path


class AddressError(LocalBackendError):
    """The address to listen on is taken, or none of this machine."""

    error_code = "address"


class ClientGoneError(LocalBackendError):
    """The client closed the connection; nobody is left to answer."""

    error_code = "client_gone"


def error_body(error: ApiError, request_id: str) -> dict[str, Any]:
    """The JSON of an error."""
    return {
        "type": "error",
        "error": {"type": error.type, "message": error.message},
        "request_id": request_id,
    }


def error_response(error: ApiError, request_id: str) -> JSONResponse:
    """The answer that an error is."""
    headers = {"request-id": request_id}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    return JSONResponse(error_body(error, request_id), status_code=error.status, headers=headers)

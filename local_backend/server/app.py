"""The application: which path leads to which endpoint."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from local_backend.server import (
    admin,
    chat_completions,
    count_tokens,
    health,
    messages,
    models,
)
from local_backend.server.endpoint import Endpoint, Handler
from local_backend.server.errors import ApiError, error_response
from local_backend.server.service import Service

_OPEN = True
ROUTES: tuple[tuple[str, str, Handler, bool], ...] = (
    ("POST", "/v1/messages", messages.create, False),
    ("POST", "/v1/messages/count_tokens", count_tokens.count, False),
    ("POST", "/v1/chat/completions", chat_completions.create, False),
    ("GET", "/v1/models", models.list_models, False),
    ("GET", "/v1/models/{name:path}", models.get_model, False),
    ("POST", "/admin/clock", admin.move_clock, False),
    ("GET", "/health", health.health, _OPEN),
    ("GET", "/metrics", health.metrics, _OPEN),
)


def build_app(service: Service) -> Starlette:
    """The application around a service."""

    async def refuse(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        message = {404: f"there is no {request.url.path}", 405: "this method is not allowed here"}
        problem = ApiError(status, message.get(status, "the request cannot be answered"))
        return error_response(problem, service.new_id("req_"))

    return Starlette(
        routes=[
            Route(path, Endpoint(service, path, handler, is_open=is_open), methods=[method])
            for method, path, handler, is_open in ROUTES
        ],
        exception_handlers={HTTPException: refuse},
    )

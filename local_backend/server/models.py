"""``GET /v1/models``."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from local_backend.server.endpoint import Call
from local_backend.server.errors import ApiError
from local_backend.server.service import Service

_UNKNOWN_DATE = "1970-01-01T00:00:00Z"


async def list_models(service: Service, call: Call) -> Response:
    """The model under all its names, for clients of either kind."""
    del call
    found = [_info(service, name) for name in service.names]
    ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]}
    return JSONResponse({"object": "list", "data": found, "has_more": False, **ends})


async def get_model(service: Service, call: Call) -> Response:
    """One of them.

    Raises:
        ApiError: There is no such model.
    """
    name = str(call.http.path_params["name"])
    if name not in service.names:
        raise ApiError(404, f"model: {name!r} is not served here; {service.model!r} is")
    return JSONResponse(_info(service, name))


def _info(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "type": "model",
        "object": "model",
        "display_name": name,
        "created_at": _UNKNOWN_DATE,
        "created": 0,
        "owned_by": "local",
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "line": None,
        "capabilities": None,
        "max_input_tokens": service.context_length,
        "max_tokens": service.context_length,
    }

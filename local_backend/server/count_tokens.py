"""``POST /v1/messages/count_tokens``: counts that are exact, since the prompt is rendered."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from local_backend.server.endpoint import Call
from local_backend.server.limits import read_json
from local_backend.server.request import parse_request
from local_backend.server.service import Service


async def count(service: Service, call: Call) -> Response:
    """Count the tokens of a request, in all and by content block.

    Raises:
        ApiError: The request is wrong.
    """
    request = parse_request(await read_json(call.http, service.settings), counting=True)
    rendered = await service.render(request, "", call.caller.workspace)
    return JSONResponse(
        {
            "input_tokens": rendered.total,
            "content_tokens": list(rendered.content_tokens),
            "tail_tokens": rendered.tail,
        }
    )

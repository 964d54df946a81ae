"""``POST /admin/clock``: there only on a manual clock, for replays and tests."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from local_backend.server.checks import Fields
from local_backend.server.clock import ManualClock
from local_backend.server.endpoint import Call
from local_backend.server.errors import ApiError
from local_backend.server.limits import read_json
from local_backend.server.service import Service

_FAR = 1e10


async def move_clock(service: Service, call: Call) -> Response:
    """Let time pass.

    Raises:
        ApiError: The body does not say how much, or the clock is the machine's.
    """
    clock = service.clock
    if not isinstance(clock, ManualClock):
        raise ApiError(404, "the clock cannot be set: start the server with --clock manual")
    fields = Fields(await read_json(call.http, service.settings), "")
    fields.only(("advance_s",))
    seconds = fields.number("advance_s", 0.0, _FAR)
    if seconds is None:
        raise fields.refuse("advance_s", "is required")
    clock.advance(seconds)
    return JSONResponse({"now": clock.now()})

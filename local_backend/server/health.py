"""``GET /health`` and ``GET /metrics``."""

from __future__ import annotations

from starlette.responses import JSONResponse, PlainTextResponse, Response

from local_backend._version import __version__
from local_backend.server.endpoint import Call
from local_backend.server.service import Service


async def health(service: Service, call: Call) -> Response:
    """Whether the server answers, and with what."""
    del call
    stats = service.engine.stats()
    return JSONResponse(
        {
            "status": "ok",
            "version": __version__,
            "model": service.model,
            "rules": service.rules.name,
            "clock": "manual" if service.clock.manual else "system",
            "now": service.clock.now(),
            "context_length": service.context_length,
            "running": stats.running,
            "waiting": stats.waiting,
        }
    )


async def metrics(service: Service, call: Call) -> Response:
    """Counters in the Prometheus text format."""
    del call
    text = service.metrics.text(service.engine.stats(), service.rules.entries())
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

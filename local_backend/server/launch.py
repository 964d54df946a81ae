"""From settings to a server that answers."""

from __future__ import annotations

import importlib
import logging
import socket
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import uvicorn

from local_backend._lazy import TORCH, need
from local_backend._typing import override
from local_backend.models.registry import TINY, Loaded, load
from local_backend.rules import AnthropicRules, DeepSeekRules, ImplicitRules, ServiceRules
from local_backend.rules.anthropic import AnthropicSettings
from local_backend.rules.deepseek import DeepSeekSettings
from local_backend.server.app import build_app
from local_backend.server.clock import Clock, ManualClock, SystemClock
from local_backend.server.connection import connections
from local_backend.server.service import Service
from local_backend.server.settings import Settings
from local_backend.tokenizer.byte_level import TEMPLATE, ByteTokenizer
from local_backend.tokenizer.template import ChatTemplate

if TYPE_CHECKING:
    from local_backend.engine.loop import EngineLoop

_BACKLOG = 2048
_GRACE_S = 5
# Tokens of prompts in one pass, beside one of each running answer.
_STEP_TOKENS = 448


class Server(uvicorn.Server):
    """A server with everything that it runs on.

    Args:
        service: What it serves.
        on_ready: Told the address as soon as it listens.
    """

    def __init__(self, service: Service, on_ready: Callable[[str], None]) -> None:
        settings = service.settings
        super().__init__(
            uvicorn.Config(
                build_app(service),
                host=settings.host,
                port=settings.port,
                http=connections(settings),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                backlog=_BACKLOG,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=_GRACE_S,
                server_header=False,
            )
        )
        self._on_ready = on_ready

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


def load_model(settings: Settings) -> Loaded:
    """Load the model that settings name.

    Raises:
        ModelError: It cannot be loaded.
    """
    torch = need("torch", "running a model", TORCH)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    if settings.model != TINY or settings.context_length is None:
        return load(settings.model, settings.dtype, seed=settings.seed)
    tiny = importlib.import_module("local_backend.models.tiny")
    shape = replace(tiny.tiny_config(settings.dtype), context_length=settings.context_length)
    model = tiny.tiny_decoder(settings.seed, settings.dtype, config=shape)
    tokenizer = ByteTokenizer()
    return Loaded(model, tokenizer, ChatTemplate(TEMPLATE, tokenizer))


def make_engine(settings: Settings, loaded: Loaded) -> EngineLoop:
    """An engine for a model, started.

    Raises:
        EngineConfigError: The settings do not fit the model.
    """
    build = importlib.import_module("local_backend.engine.build")
    config = importlib.import_module("local_backend.engine.config")
    loop = importlib.import_module("local_backend.engine.loop")
    sizes: dict[str, Any] = {
        "page_size": settings.grain,
        "pages": settings.pages,
        "context_length": settings.context_length,
    }
    chosen = config.EngineConfig(
        max_running=settings.max_running,
        max_waiting=settings.max_waiting,
        step_tokens=_STEP_TOKENS + settings.max_running,
        **sizes,
    )
    started: EngineLoop = loop.EngineLoop(
        build.build_engine(loaded.model, loaded.tokenizer, chosen)
    )
    started.start()
    return started


def make_rules(settings: Settings) -> ServiceRules:
    """The cache rules that settings name."""
    if settings.rules == "implicit":
        return ImplicitRules()
    if settings.rules == "deepseek":
        return DeepSeekRules(DeepSeekSettings(grain=settings.grain))
    chosen = AnthropicSettings(
        minimum=settings.min_cache_tokens,
        collapse_runs=settings.collapse_runs,
        grain=settings.grain,
    )
    return AnthropicRules(chosen)


def make_clock(settings: Settings) -> Clock:
    """The clock that settings name."""
    return ManualClock() if settings.clock == "manual" else SystemClock()


def new_id(prefix: str) -> str:
    """An identity that nobody had before."""
    return f"{prefix}{uuid.uuid4().hex[:24]}"


def make_service(settings: Settings, loaded: Loaded, engine: EngineLoop) -> Service:
    """A service on an engine."""
    return Service(settings, loaded, engine, make_rules(settings), make_clock(settings), new_id)


def run(settings: Settings, on_ready: Callable[[str], None]) -> None:
    """Serve until a signal ends it.

    Raises:
        LocalBackendError: It cannot start.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    loaded = load_model(settings)
    engine = make_engine(settings, loaded)
    try:
        Server(make_service(settings, loaded, engine), on_ready).run()
    finally:
        engine.close()

"""From settings to a server that answers."""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from local_backend._lazy import TORCH, need
from local_backend._typing import override
from local_backend.kvcache.offload import Offload
from local_backend.kvcache.tiers.base import Tier
from local_backend.kvcache.tiers.disk import DiskTier
from local_backend.kvcache.tiers.host import HostTier
from local_backend.kvcache.tiers.stack import TierStack
from local_backend.models.registry import TINY, Loaded, load
from local_backend.rules import AnthropicRules, DeepSeekRules, ImplicitRules, ServiceRules
from local_backend.rules.anthropic import AnthropicSettings
from local_backend.rules.deepseek import DeepSeekSettings
from local_backend.server.app import build_app
from local_backend.server.clock import Clock, ManualClock, SystemClock
from local_backend.server.connection import connections
from local_backend.server.errors import AddressError
from local_backend.server.options import KEYS
from local_backend.server.service import Service
from local_backend.server.settings import MIB, Settings
from local_backend.tokenizer.byte_level import TEMPLATE, ByteTokenizer
from local_backend.tokenizer.template import ChatTemplate

if TYPE_CHECKING:
    from local_backend.engine.loop import EngineLoop
    from local_backend.layers.operators import Operators

_log = logging.getLogger(__name__)
_BACKLOG = 2048
# Seconds that answers may go on after the signal that ends the server.
_GRACE_S = 2
# Tokens of prompts in one pass, beside one of each running answer.
_STEP_TOKENS = 1024


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
                http=connections(settings, service.new_id),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                backlog=_BACKLOG,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=3 * _GRACE_S,
                server_header=False,
            )
        )
        self._on_ready = on_ready
        self._engine = service.engine

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End in order on a signal, and count that as success."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        wanted = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let answers end for a while; then the engine ends them, and clients are told."""
        ending = asyncio.ensure_future(self._end_answers())
        await super().shutdown(sockets)
        ending.cancel()

    async def _end_answers(self) -> None:
        await asyncio.sleep(_GRACE_S)
        await asyncio.to_thread(self._engine.close)


def take_address(settings: Settings) -> socket.socket:
    """The address to listen on, taken before anything takes long.

    Raises:
        AddressError: It cannot be had.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((settings.host, settings.port))
        # Two sockets may be bound to one port until one of them listens.
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise AddressError(
            f"cannot listen on {settings.host}, port {settings.port}: {error.strerror}",
            "choose another one with --host and --port; port 0 is any that is free",
        ) from None
    return found


def load_model(settings: Settings) -> Loaded:
    """Load the model that settings name.

    Raises:
        ModelError: It cannot be loaded.
    """
    need("torch", "running a model", TORCH)
    operators = choose_operators(settings)
    if settings.model != TINY or settings.context_length is None:
        return load(settings.model, settings.dtype, operators=operators, seed=settings.seed)
    tiny = importlib.import_module("local_backend.models.tiny")
    shape = replace(tiny.tiny_config(settings.dtype), context_length=settings.context_length)
    model = tiny.tiny_decoder(settings.seed, settings.dtype, operators=operators, config=shape)
    tokenizer = ByteTokenizer()
    return Loaded(model, tokenizer, ChatTemplate(TEMPLATE, tokenizer))


def choose_operators(settings: Settings) -> Operators | None:
    """What computes the model; None for what it comes with."""
    exact = settings.deterministic or settings.model == TINY
    threads = importlib.import_module("local_backend.kernels.threads")
    # The kernels compute in these two types; float64 is for comparing, not for speed.
    has_kernels = settings.dtype in ("float32", "bfloat16") and settings.kernels
    if has_kernels and threads.native_status().startswith("compiled"):
        compiled = importlib.import_module("local_backend.layers.kernel_operators")
        found: Operators = compiled.KernelOperators(exact=exact)
        return found
    if not exact:
        return None
    plain: Operators = importlib.import_module("local_backend.layers.operators").ExactOperators()
    return plain


def set_threads(settings: Settings) -> None:
    """Give torch and the kernels their threads. They hold for the whole process.

    The kernels have threads of their own, and those of torch would only be in their way.
    """
    torch = need("torch", "running a model", TORCH)
    if not settings.kernels:
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        return
    torch.set_num_threads(1)
    if settings.threads is not None:
        importlib.import_module("local_backend.kernels.threads").set_threads(settings.threads)


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
        deterministic=settings.deterministic,
        **sizes,
    )
    engine = build.build_engine(
        loaded.model, loaded.tokenizer, chosen, offload=make_offload(settings)
    )
    started: EngineLoop = loop.EngineLoop(engine)
    started.start()
    return started


def make_offload(settings: Settings) -> Offload | None:
    """Where pages go that leave the cache; None where they are dropped.

    Raises:
        TierError: The folder cannot be used.
    """
    tiers: list[Tier] = []
    if settings.host_mib:
        tiers.append(HostTier(settings.host_mib * MIB))
    if settings.disk is not None:
        tiers.append(DiskTier(Path(settings.disk), settings.disk_mib * MIB))
    return Offload(TierStack(tiers)) if tiers else None


def make_rules(settings: Settings) -> ServiceRules:
    """The cache rules that settings name."""
    if settings.rules == "implicit":
        return ImplicitRules()
    if settings.rules == "deepseek":
        unit = DeepSeekSettings().unit // settings.token_scale
        return DeepSeekRules(DeepSeekSettings(unit=max(1, unit), grain=settings.grain))
    chosen = AnthropicSettings(
        minimum=settings.min_cache_tokens,
        scale=settings.token_scale,
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
    if settings.is_exposed:
        _log.warning("whoever reaches %s may use the model: set %s", settings.host, KEYS)
    with take_address(settings) as address:
        set_threads(settings)
        loaded = load_model(settings)
        engine = make_engine(settings, loaded)
        try:
            Server(make_service(settings, loaded, engine), on_ready).run([address])
        finally:
            engine.close()

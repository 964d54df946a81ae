"""All that can be set when the server starts."""

from __future__ import annotations

from dataclasses import dataclass

RULES = ("anthropic", "implicit", "deepseek")
CLOCKS = ("system", "manual")
KIB = 1024
MIB = 1024 * KIB
TINY = "tiny"
PAGE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a server.

    Attributes:
        model: Name of a model, or a GGUF file.
        dtype: Type of weights, activations, K and V.
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        aliases: Further names that clients may ask for the model by.
        any_model: Whether every name is answered; each has a cache of its own.
        api_keys: Keys of which a client must show one; none for no check.
        rules: Cache rules in front of the engine.
        min_cache_tokens: Shortest prefix that is cached, for models without a published minimum.
        token_scale: Tokens of a prompt elsewhere that one token here stands for; minimums and units
            are divided by it.
        collapse_runs: Whether a run of tool calls, or of their results, is one position of a
            lookback.
        clock: ``manual`` lets clients set the time.
        max_body_bytes: Largest request body.
        body_timeout_s: Seconds in which a body must have arrived.
        write_timeout_s: Seconds after which a client that takes nothing is dropped.
        max_requests: Requests answered at the same time; more are told to come back.
        max_connections: Connections open at the same time; more are closed at once.
        max_running: Requests computed side by side.
        max_waiting: Requests that may wait beyond these before others are told to come back.
        request_timeout_s: Seconds after which an answer is given up; None for never.
        ping_s: Seconds of silence on a stream after which a ping is sent.
        media_tokens: Tokens that stand for an image or a document that is not text.
        context_length: Most tokens of a conversation, answer included; None for what the model is
            meant for. The little decoder can have any.
        page_size: Tokens in a page of the KV cache; hits are whole pages where nothing follows.
            None for 1 with the little decoder where no page is moved elsewhere, else 16.
        pages: Pages of the KV cache; None for as many as the engine thinks right.
        host_mib: MiB of memory for pages that left the cache; 0 for none.
        disk: Folder for such pages, which outlive the server; None for none.
        disk_mib: MiB that the folder may hold.
        kernels: Whether compiled kernels compute where there are any.
        deterministic: Whether answers must not depend, to the bit, on batching or caching. They
            never do with the little decoder.
        threads: Threads to compute with; None for all cores.
        seed: Of weights that are drawn, and of random numbers where a request brings no seed.
    """

    model: str = "tiny"
    dtype: str = "float32"
    host: str = "127.0.0.1"
    port: int = 8377
    aliases: tuple[str, ...] = ()
    any_model: bool = False
    api_keys: tuple[str, ...] = ()
    rules: str = "anthropic"
    min_cache_tokens: int = 1024
    token_scale: int = 1
    collapse_runs: bool = True
    clock: str = "system"
    max_body_bytes: int = 32 * MIB
    body_timeout_s: float = 30.0
    write_timeout_s: float = 30.0
    max_requests: int = 256
    max_connections: int = 4096
    max_running: int = 64
    max_waiting: int = 256
    request_timeout_s: float | None = 600.0
    ping_s: float = 10.0
    media_tokens: int = 256
    context_length: int | None = None
    page_size: int | None = None
    pages: int | None = None
    host_mib: int = 0
    disk: str | None = None
    disk_mib: int = 4096
    kernels: bool = True
    deterministic: bool = False
    threads: int | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        """What clients call the model: its name, or that of its file."""
        return self.model.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gguf")

    @property
    def is_exposed(self) -> bool:
        """Whether others than this machine may reach it, and need no key."""
        local = self.host in ("localhost", "::1") or self.host.startswith("127.")
        return not local and not self.api_keys

    @property
    def grain(self) -> int:
        """Tokens in a page."""
        is_single = self.model == TINY and not self.host_mib and self.disk is None
        return self.page_size or (1 if is_single else PAGE)

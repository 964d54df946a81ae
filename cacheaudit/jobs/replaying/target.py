"""Where a replay goes: engines started for it, or one server by its address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.jobs.replaying.blocks import BYTES, Encoding
from cacheaudit.jobs.replaying.client import Client, Failure, Server
from cacheaudit.jobs.replaying.filler import filler
from cacheaudit.jobs.replaying.local import LocalServer
from cacheaudit.jobs.replaying.plan import RuleSet

LOCAL: Final = "local"
_SAMPLE: Final = 1_000
# A response comes in one piece, and a long prompt may be computed for a long time.
_PATIENCE_S: Final = 3_600.0


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay asks of its backend.

    Attributes:
        backend: ``local``, or an address.
        clock: ``recorded`` or ``fast``.
        scale: Recorded tokens that one token stands for.
        model: Model of the local engine.
        context_length: Tokens of the longest prompt and its answer.
        pages: Pages of the local engine's cache; ``None``: as many as it thinks right.
        each_block: Whether a lookback counts every content block.
        key: Credential for an address.
    """

    backend: str = LOCAL
    clock: str = "recorded"
    scale: int = 1
    model: str = "tiny"
    context_length: int = 0
    pages: int | None = None
    each_block: bool = False
    key: str | None = None


class Target(msgspec.Struct, frozen=True):
    """One server, ready.

    Attributes:
        client: Talks to it.
        server: What it says of itself.
        encoding: How it counts.
    """

    client: Client
    server: Server
    encoding: Encoding


class Targets:
    """Starts, or connects to, a server for each kind of rules, when the first request needs it.

    Args:
        wanted: What is asked.
        tick: A clock that only rises, in seconds.
    """

    def __init__(self, wanted: Wanted, tick: Callable[[], float]) -> None:
        self._wanted = wanted
        self._tick = tick
        self._stack = ExitStack()
        self._open: dict[str, Target] = {}

    def __enter__(self) -> Targets:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hang up, and end what was started."""
        self._stack.close()

    def of(self, rules: RuleSet) -> Target:
        """Return the server for calls that follow some rules.

        Raises:
            UsageError: It does not start or answer, or cannot keep the recorded time.
            MissingExtraError: The local engine is not installed.
        """
        is_local = self._wanted.backend == LOCAL
        name = rules if is_local else LOCAL
        found = self._open.get(name)
        if found is None:
            url = self._started(rules) if is_local else self._wanted.backend
            found = self._open[name] = self._connected(url)
        return found

    def _started(self, rules: RuleSet) -> str:
        return self._stack.enter_context(LocalServer(options(self._wanted, rules)))

    def _connected(self, url: str) -> Target:
        client = Client(url, self._tick, key=self._wanted.key, timeout=_PATIENCE_S)
        self._stack.callback(client.close)
        server = client.describe()
        if isinstance(server, Failure):
            raise UsageError(
                f"No server answers at {url} ({server.kind}).",
                "Start one: cacheaudit serve --clock manual --any-model",
            )
        if self._wanted.clock == "recorded" and server.clock != "manual":
            raise UsageError(
                f"The server at {url} keeps its own time, so recorded pauses cannot be replayed.",
                "Start it with `cacheaudit serve --clock manual`, or say --clock fast.",
            )
        return Target(client, server, _encoding(client, server))


def options(wanted: Wanted, rules: RuleSet) -> Sequence[str]:
    """Write the options of a local server."""
    found = ["--model", wanted.model, "--any-model", "--rules", rules, "--request-timeout", "0"]
    found += ["--clock", "manual" if wanted.clock == "recorded" else "system"]
    if wanted.scale > 1:
        found += ["--token-scale", str(wanted.scale)]
    if wanted.each_block:
        found += ["--each-block"]
    if wanted.model == "tiny":
        found += ["--context-length", str(wanted.context_length)]
    if wanted.pages is not None:
        found += ["--pages", str(wanted.pages)]
    return found


def _encoding(client: Client, server: Server) -> Encoding:
    """See how many tokens a text of known length becomes."""
    if not server.is_ours:
        return Encoding(4.0, 0, is_ours=False)
    text = filler(b"sample", _SAMPLE)
    body = {"model": server.model or "", "messages": [{"role": "user", "content": text}]}
    counted = client.count(body, {})
    if not counted:
        return BYTES
    if counted[0] == _SAMPLE + BYTES.turn_tokens:
        return BYTES
    return Encoding(_SAMPLE / counted[0], 0)

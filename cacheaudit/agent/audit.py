"""What users import: one object that wraps clients, names sessions and answers for the record."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

from cacheaudit.agent.attempt import Attempt
from cacheaudit.agent.config import load_config
from cacheaudit.agent.decisions import keep_decision
from cacheaudit.agent.faults import Faults
from cacheaudit.agent.hooks import Hooks, Mode
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.agent.keep_alive.settings import Mode as KeepAliveMode
from cacheaudit.agent.learners import Learner, tell
from cacheaudit.agent.ledger import SOURCE, Ledger
from cacheaudit.agent.middleware import MARK, middleware
from cacheaudit.agent.plan import Planner, new_id
from cacheaudit.agent.recorder import Limits, Recorder, RecorderState
from cacheaudit.agent.scope import current, nested
from cacheaudit.agent.session import Outcome, SessionScope
from cacheaudit.agent.sizes import Made
from cacheaudit.agent.transport import RecordingTransport
from cacheaudit.errors import UsageError
from cacheaudit.model.call import Call, Session
from cacheaudit.model.clock import Clock, SystemClock, iso

if TYPE_CHECKING:
    from cacheaudit.agent.engine import LocalEngine
    from cacheaudit.agent.fan_out.send import AsyncSend, FanOutResult, Send
    from cacheaudit.agent.keep_alive.keeper import KeeperState
    from cacheaudit.agent.keep_alive.service import KeepAliveService
    from cacheaudit.agent.maker import CallMaker
    from cacheaudit.agent.planner.policy import PlanPolicy
    from cacheaudit.agent.telemetry import Telemetry
    from cacheaudit.store import Store

_Client = TypeVar("_Client")
# Requests of the store whose pauses the planner starts from.
_STARTS = 2_000


class CacheAudit:
    """Records the calls of the clients that it wraps.

    Nothing of it can fail a call: what goes wrong inside is counted (:attr:`state`), and logged
    once.

    What is not given is taken from the variables ``CACHEAUDIT_DB``, ``CACHEAUDIT_MODE`` and so on,
    then from ``[tool.cacheaudit]`` of the nearest ``pyproject.toml``.

    Args:
        db: Where calls are kept: the name of a SQLite file or an SQLAlchemy URL. Without it, the
            file in the user's data folder that every command reads.
        mode: ``observe`` changes no byte of any request. ``auto``, the default, lets a planner
            place cache markers.
        planner: Changes requests before they are sent, in mode ``auto``; without one, the
            built-in :class:`~cacheaudit.agent.planner.planner.BreakpointPlanner`.
        policy: What the built-in planner may do.
        store_text: Keep the text of prompts and of error messages too.
        project: Project that sessions are filed under.
        limits: How much may wait to be written.
        on_call: Told of every recorded call, in the writer's thread.
        keep_alive: ``"running"``, ``"idle"`` or a :class:`~keep_alive.settings.KeepAlive`: send
            requests again so that their cache entries live on. Off by default: it costs money.
        backend: Whom :meth:`client` asks where it is not told.
        telemetry: Send spans and metrics to OpenTelemetry; or a
            :class:`~cacheaudit.agent.telemetry.Telemetry` of one's own. Off by default.
        clock: Where times come from.

    Raises:
        ConfigError: A setting makes no sense.
        MissingExtraError: ``telemetry`` is asked for and OpenTelemetry is not installed.
    """

    def __init__(
        self,
        db: str | os.PathLike[str] | None = None,
        mode: Mode | None = None,
        *,
        planner: Planner | None = None,
        policy: PlanPolicy | None = None,
        store_text: bool | None = None,
        project: str | None = None,
        limits: Limits | None = None,
        on_call: Callable[[Call], None] | None = None,
        keep_alive: KeepAlive | KeepAliveMode | None = None,
        backend: str | None = None,
        telemetry: bool | Telemetry | None = None,
        clock: Clock | None = None,
    ) -> None:
        config = load_config(
            {
                "db": None if db is None else os.fspath(db),
                "mode": mode,
                "store_text": store_text,
                "project": project,
                "keep_alive": keep_alive,
                "backend": backend,
                "telemetry": None if telemetry is None else bool(telemetry),
            },
            os.environ,
            _here(),
        )
        self.mode: Mode = config.mode
        self.config = config
        self._db = config.db
        self._store_text = config.store_text
        self._planner = (planner or _planner(policy)) if config.mode == "auto" else None
        self._owner = new_id()
        self._now = (clock or SystemClock()).now
        self._faults = Faults()
        self._client: weakref.ref[Any] | None = None
        self._engine: LocalEngine | None = None
        self._refreshes: KeepAliveService | None = None
        self._watchers: list[Callable[[Attempt], None]] = []
        self.learners: list[Learner] = []
        if self._planner is not None:
            self.learners.append(self._planner.learn)
        built_in = None if planner is not None else self._planner
        self._reads_no_sizes = None if built_in is None else built_in.learn
        is_told = bool(on_call or self.learners or config.telemetry)
        self._recorder = Recorder(
            make=self._make,
            open_store=self._open,
            faults=self._faults,
            limits=limits,
            learn=self._learn if is_told or config.keep_alive.mode != "off" else None,
            project=config.project,
        )
        if config.keep_alive.mode != "off":
            from cacheaudit.agent.keep_alive.service import KeepAliveService

            self._refreshes = KeepAliveService(
                config.keep_alive, self._recorder, self._faults, self._now, self._owner
            )
            self._watchers.append(self._refreshes.sent)
            self.learners.append(self._refreshes.learn)
        if config.telemetry:
            told = _telemetry(telemetry)
            self._watchers.append(told.sent)
            self.learners.append(told.learn)
        if on_call is not None:
            self.learners.append(on_call)
        watch = self._watch if self._watchers else None
        self._hooks = Hooks(
            self._owner, self._recorder, self._faults, self._now, self._planner, watch
        )

    def client(
        self, target: str | None = None, *, asynchronous: bool = False, **settings: Any
    ) -> Any:
        """Make a client whose calls are recorded.

        Args:
            target: ``anthropic``, ``claude_aws``, ``bedrock``, ``google_cloud``, ``foundry``,
                ``openai``, ``deepseek``, ``openrouter``, the address of a server that speaks the
                Messages API, or ``local``, which starts the bundled engine; ``None``: the
                configured ``backend``.
            asynchronous: Make an asynchronous client.
            **settings: Arguments of the client.

        Raises:
            UsageError: There is no such target.
            MissingExtraError: The SDK or the engine is not installed.
        """
        from cacheaudit.agent.targets import make_client

        return make_client(
            target or self.config.backend,
            environment=os.environ,
            wrap=self.wrap,
            transport=self.transport,
            local=self._local,
            asynchronous=asynchronous,
            **settings,
        )

    def _local(self) -> str:
        """Start the engine where it does not run, and return its address."""
        from cacheaudit.agent.engine import LocalEngine

        if self._engine is None:
            self._engine = LocalEngine()
        return self._engine.address

    def wrap(self, client: _Client) -> _Client:
        """Return a client that is used like ``client`` and whose calls are recorded.

        Args:
            client: An ``Anthropic`` or ``AsyncAnthropic`` of SDK 0.121 or newer, or its kin for
                Bedrock, Google Cloud and Foundry. The client itself stays as it is.

        Raises:
            UsageError: The client has no middleware: use :meth:`transport`.
        """
        derive = getattr(client, "with_middleware", None)
        if derive is None:
            raise UsageError(
                f"{type(client).__name__} has no middleware to record with.",
                "Give it a recording transport: "
                "http_client=httpx.Client(transport=audit.transport(httpx.HTTPTransport())); "
                "docs/guide/sdk.md has the line for each library.",
            )
        for known in getattr(client, "middleware", ()):
            if getattr(known, MARK, None) is self._hooks:
                return client
        base = str(getattr(client, "base_url", ""))
        origin = None if self._refreshes is None else self._refreshes.origin()
        sender = None if origin is None else origin.of
        wrapped: _Client = derive(middleware(self._hooks, self._faults, sender, base))
        if origin is not None:
            origin.bind(wrapped)
        self._client = weakref.ref(wrapped)
        return wrapped

    def transport(self, inner: Any) -> Any:
        """Return a transport that records what goes through it and lets ``inner`` do the work.

        Args:
            inner: A transport of ``httpx`` or ``httpx2``, for synchronous or asynchronous clients:
                ``httpx.HTTPTransport()``, ``httpx2.AsyncHTTPTransport()`` …
        """
        return RecordingTransport(inner, self._hooks, self._faults)

    def session(
        self,
        name: str | None = None,
        *,
        task: str | None = None,
        purpose: str | None = None,
        fresh: bool = False,
    ) -> SessionScope:
        """Name the session of the calls made inside a ``with`` block.

        Inside another session of this audit it opens a lane of that session, for a subagent.

        Args:
            name: Session id, or the lane's name; made up where there is none.
            task: What the whole-task ledger groups by.
            purpose: Why the calls are made, where it is not told by the request: ``main``,
                ``subagent``, ``compaction``, ``keep_alive``, ``warm_up``, ``probe``, ``other``.
            fresh: Begin a session of its own even inside another one.

        Raises:
            UsageError: There is no such purpose.
        """
        scope = nested(current(self._owner), name, task=task, purpose=purpose, fresh=fresh)
        return SessionScope(self, self._owner, scope, is_run=scope.lane is None)

    def purpose(self, purpose: str) -> SessionScope:
        """Say why the calls inside a ``with`` block are made, in the lane that is open.

        Raises:
            UsageError: There is no such purpose.
        """
        return SessionScope(self, self._owner, current(self._owner).meant(purpose))

    def fan_out(
        self,
        requests: Sequence[Mapping[str, Any]],
        *,
        client: Any = None,
        send: Send | None = None,
        **settings: Any,
    ) -> FanOutResult:
        """Send requests that share a prefix so that it is written once and read by the others.

        Requests are grouped by what they share. Where that is long enough to be kept, its end is
        marked, one request of the group is sent first, and the others when its response begins.

        Args:
            requests: Arguments of ``messages.create``, one mapping a request; none is changed.
            client: Client to send with; ``None``: the one that was wrapped last.
            send: Sends one request in the client's place: ``send(body, began)`` returns the
                response and, where ``began`` is not ``None``, calls it when that has begun.
            **settings: Fields of :class:`~cacheaudit.agent.fan_out.service.FanOut`:
                ``concurrency``, ``mark``, ``order``, ``warm_up``, ``least``,
                ``return_exceptions``.

        Returns:
            The responses in the order of the requests, with ``groups``.

        Raises:
            UsageError: There is no client, or a request cannot be sent like this.
        """
        from cacheaudit.agent.fan_out.service import FanOut, FanOutService

        service = FanOutService(self._owner, self._now, self.purpose)
        return service.run(requests, FanOut(**settings), client or self._latest(), send)

    async def afan_out(
        self,
        requests: Sequence[Mapping[str, Any]],
        *,
        client: Any = None,
        send: AsyncSend | None = None,
        **settings: Any,
    ) -> FanOutResult:
        """Send requests that share a prefix, as tasks of the event loop; see :meth:`fan_out`.

        Raises:
            UsageError: There is no client, or a request cannot be sent like this.
        """
        from cacheaudit.agent.fan_out.service import FanOut, FanOutService

        service = FanOutService(self._owner, self._now, self.purpose)
        return await service.run_async(requests, FanOut(**settings), client or self._latest(), send)

    def _latest(self) -> Any:
        return None if self._client is None else self._client()

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until every call that has ended is written; ``False``: not in time."""
        return self._recorder.flush(timeout)

    def close(self, timeout: float = 10.0) -> bool:
        """Write everything, streams that still run as far as they came, and close the store."""
        if self._refreshes is not None:
            self._refreshes.close()
        done = self._recorder.close(timeout)
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def state(self) -> RecorderState:
        """What was written, what waits, and what could not be recorded."""
        return self._recorder.state

    @property
    def keep_alive(self) -> KeeperState | None:
        """What became of refreshes so far; ``None`` where keep-alive is off."""
        return None if self._refreshes is None else self._refreshes.state

    def settle(self, session: str) -> None:
        """Say that a session's run is over: from now on it counts as idle for keep-alive.

        The end of a ``with audit.session(...)`` block says so by itself.
        """
        if self._refreshes is not None:
            self._refreshes.settle(session)

    def outcome(self, session: str, outcome: Outcome | None, task: str | None = None) -> bool:
        """Say whether a task's result was accepted: it is kept with the task's last call.

        Args:
            session: Session id.
            outcome: ``accepted`` or ``rejected``; ``None`` takes it back.
            task: The task; ``None``: the last call of the session, whichever task it is of.

        Returns:
            Whether there is a call to keep it with.

        Raises:
            UsageError: There is no such outcome.
            StoreError: The store cannot be written.
        """
        if outcome not in (None, *get_args(Outcome)):
            raise UsageError(
                f"{outcome!r} is no outcome.", f"Choose {' or '.join(get_args(Outcome))}."
            )

        def write(ledger: Ledger) -> bool:
            store: Any = ledger.store()
            return bool(store.set_outcome(session, outcome, task))

        return self._recorder.ask(write)

    def sessions(self, names: list[str] | None = None) -> list[Session]:
        """Read sessions back from the store, all or those named, behind all calls that ended.

        Raises:
            StoreError: The store cannot be read.
        """
        from cacheaudit.ingest.replays import without_replays

        def read(ledger: Ledger) -> list[Session]:
            store: Any = ledger.store()
            return [without_replays(found) for found in store.sessions(names)]

        return self._recorder.ask(read)

    def export(self, path: str | os.PathLike[str], session: str | None = None) -> int:
        """Write a ``*.session.jsonl`` file of one session, or of all in the store.

        Returns:
            The number of calls written.

        Raises:
            StoreError: The store cannot be read.
            OSError: The file cannot be written.
        """
        from cacheaudit.model.record import RecordWriter
        from cacheaudit.store.types import to_json

        writer = RecordWriter(with_text=self._store_text)
        count = 0
        with Path(path).open("w", encoding="utf-8") as out:
            for found in self.sessions(None if session is None else [session]):
                for call in found.calls:
                    out.write(to_json(writer.record(call)) + "\n")
                    count += 1
        return count

    def note(self, **decision: Any) -> None:
        """Keep a decision with its prices: fields of a :class:`~store.records.Decision`."""
        made = {"session": current(self._owner).session or "", "at": self._now(), **decision}
        keep_decision(self._recorder, self._faults, made)

    def planned(self, session: str | None = None) -> list[str]:
        """Say what the planner did in a session of this program and why, line by line."""
        told = getattr(self._planner, "report", None)
        return [] if told is None else list(told(session))

    def _make(self) -> CallMaker:
        from cacheaudit.agent.maker import CallMaker
        from cacheaudit.ingest.problems import Problems

        return CallMaker(f"run-{iso(self._now())}-{new_id()[:6]}", Problems())

    def _open(self) -> Store:
        from cacheaudit.store import default_url, open_store

        url = self._db or default_url(os.environ, Path.home(), sys.platform)
        store = open_store(url, store_text=self._store_text)
        self._seed(store)
        return store

    def _seed(self, store: Store) -> None:
        """Let the planner learn from the pauses between earlier requests."""
        seed = getattr(self._planner, "seed", None)
        if seed is None:
            return
        try:
            from cacheaudit.agent.planner.gaps import pauses_of

            seed(pauses_of(store.recent_starts(_STARTS), self._now()))
            if getattr(self._planner, "wants_past", False):
                self._planner.credit(store.marked_totals(SOURCE))  # type: ignore[union-attr]
        except Exception as error:
            self._faults("seed", error)

    def _learn(self, made: Made) -> None:
        tell(self.learners, made, self._faults, self._reads_no_sizes)

    def _watch(self, attempt: Attempt) -> None:
        for watcher in self._watchers:
            watcher(attempt)


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError:  # the folder was deleted
        return Path.home()


def _telemetry(given: bool | Telemetry | None) -> Telemetry:
    if given is not None and not isinstance(given, bool):
        return given
    from cacheaudit.agent.telemetry import Telemetry

    return Telemetry()


def _planner(policy: PlanPolicy | None) -> Planner:
    from cacheaudit.agent.planner.planner import BreakpointPlanner

    return BreakpointPlanner(policy)


def wrap(
    client: _Client,
    db: str | os.PathLike[str] | None = None,
    mode: Mode | None = None,
) -> _Client:
    """Return a client whose calls are recorded; short for ``CacheAudit(db, mode).wrap(client)``.

    Raises:
        UsageError: The client has no middleware.
    """
    return CacheAudit(db, mode).wrap(client)

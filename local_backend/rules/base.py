"""What rules are told of a request, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol

from local_backend.errors import LocalBackendError

TTLS: Mapping[str, float] = {"5m": 300.0, "1h": 3600.0}


class MarkerError(LocalBackendError):
    """A cache marker that the service refuses.

    Args:
        path: Where in the request it stands.
        reason: What is wrong with it.
    """

    error_code = "marker"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path


class Level(IntEnum):
    """Part of a request, in the order in which a change of it drops what follows."""

    TOOLS = 0
    SYSTEM = 1
    MESSAGES = 2


class Miss(StrEnum):
    """Why not everything was read that an earlier request had stored."""

    NOT_MARKED = "not_marked"
    BELOW_MINIMUM = "below_minimum"
    NOTHING_STORED = "nothing_stored"
    LOOKBACK = "lookback"
    EXPIRED = "expired"
    NOT_READABLE_YET = "not_readable_yet"
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One content block of a prompt.

    Attributes:
        level: Where it stands.
        kind: Its type on the wire: ``tool``, ``text``, ``tool_use`` ...
        digest: Of its content, markers left out.
        tokens: Tokens that it was rendered to.
        ttl: Lifetime that its marker asks for; None for no marker.
        markable: Whether it could bear a marker.
        path: Where it stands in the request, for messages about it.
    """

    level: Level
    kind: str
    digest: bytes
    tokens: int
    ttl: str | None = None
    markable: bool = True
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request as the rules see it.

    Attributes:
        id: Of the response, by which a later request may name it.
        model: As asked for; entries of two models are apart.
        workspace: Entries of two workspaces are apart.
        blocks: In the order in which they are rendered.
        tokens: All token ids; at least as many as the blocks have together. What stands behind
            the last block, such as the beginning of the answer, is never cached.
        settings: By level, a digest of the parameters whose change drops that level.
        speed: Part of what a diagnosis calls the model.
        automatic: Lifetime of the marker of the request as a whole; None for none.
    """

    id: str
    model: str = ""
    workspace: str = ""
    blocks: tuple[Block, ...] = ()
    tokens: tuple[int, ...] = ()
    settings: tuple[bytes, bytes, bytes] = (b"", b"", b"")
    speed: str = "standard"
    automatic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a request may read, decided when it starts.

    Attributes:
        prompt: The request.
        start: Second at which it started; lifetimes count from here.
        read: Tokens that the service would read; None where only the engine can tell.
        miss: Why it is not more.
        ends: Of each marker that stores something: tokens up to it, lifetime, identity.
    """

    prompt: Prompt
    start: float
    read: int | None
    miss: Miss | None = None
    ends: tuple[tuple[int, str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Input tokens of a request in disjoint parts; together they are the prompt.

    Attributes:
        read: Read from the cache.
        writes: Stored, by lifetime.
        uncached: Neither.
        evicted: Tokens that the service would have read, but the engine no longer held.
        miss: Why not more was read.
    """

    read: int
    writes: Mapping[str, int] = field(default_factory=dict)
    uncached: int = 0
    evicted: int = 0
    miss: Miss | None = None

    @property
    def written(self) -> int:
        """Tokens stored, whatever their lifetime."""
        return sum(self.writes.values())

    @property
    def total(self) -> int:
        """All input tokens."""
        return self.read + self.written + self.uncached


class ServiceRules(Protocol):
    """The cache of a service, as far as it can be described without an engine.

    One thread calls it. For every request ``plan`` comes first; ``began`` follows when the first
    response begins, and ``ended`` when it is complete; neither follows for a request that failed.
    """

    @property
    def name(self) -> str:
        """What the rules are called by in settings and reports."""
        ...

    @property
    def tools_first(self) -> bool:
        """Whether tools are rendered before the system prompt."""
        ...

    def check(self, prompt: Prompt) -> None:
        """Refuse what the service would refuse, without looking anything up.

        Raises:
            MarkerError: A marker is not allowed.
        """
        ...

    def plan(self, prompt: Prompt, now: float) -> Plan:
        """Look a request up.

        Raises:
            MarkerError: A marker is not allowed.
        """
        ...

    def began(self, plan: Plan, held: int, readable_from: float) -> Outcome:
        """Store what a request stores, and say what it is charged for.

        Args:
            plan: What :meth:`plan` answered.
            held: Tokens that the engine did not have to compute.
            readable_from: Second from which others can read what is stored.
        """
        ...

    def ended(self, plan: Plan, output: tuple[int, ...], now: float) -> None:
        """Take note of a complete answer, by its token ids."""
        ...

    def entries(self) -> int:
        """Number of things stored, expired ones that were not swept yet included."""
        ...

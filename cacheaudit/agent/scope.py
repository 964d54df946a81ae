"""Which session and lane a call belongs to, carried by context variables."""

from __future__ import annotations

import uuid
from contextvars import ContextVar, Token
from typing import Final

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.model.call import PURPOSES


class Scope(msgspec.Struct, frozen=True, gc=False):
    """Where a call belongs.

    Attributes:
        session: Session id; ``None``: the request's own word, else the run's.
        lane: Lane; ``None``: told from the content.
        task: What the whole-task ledger groups by.
        purpose: Why the calls are made; ``None``: told from the request.
    """

    session: str | None = None
    lane: str | None = None
    task: str | None = None
    purpose: str | None = None

    def meant(self, purpose: str) -> Scope:
        """Return the scope with another purpose.

        Raises:
            UsageError: The purpose is none of those that the record knows.
        """
        _check(purpose)
        return msgspec.structs.replace(self, purpose=purpose)


NOWHERE: Final = Scope()

# (owner, scope) of every scope that is open, innermost last. Owners do not see each other's.
_OPEN: ContextVar[tuple[tuple[str, Scope], ...]] = ContextVar("cacheaudit_scopes", default=())


def current(owner: str) -> Scope:
    """Return the innermost open scope of an owner."""
    for name, scope in reversed(_OPEN.get()):
        if name == owner:
            return scope
    return NOWHERE


def nested(
    outer: Scope, name: str | None, *, task: str | None, purpose: str | None, fresh: bool
) -> Scope:
    """Return the scope that opens inside another one: a session, or a lane of the session around.

    Raises:
        UsageError: The purpose is none of those that the record knows.
    """
    if purpose is not None:
        _check(purpose)
    if fresh or outer.session is None:
        return Scope(name or uuid.uuid4().hex, None, task, purpose)
    inner = name or f"lane-{uuid.uuid4().hex[:8]}"
    lane = inner if outer.lane is None else f"{outer.lane}/{inner}"
    return Scope(outer.session, lane, task or outer.task, purpose or "subagent")


def _check(purpose: str) -> None:
    if purpose not in PURPOSES:
        raise UsageError(f"{purpose!r} is no purpose.", f"Choose one of: {', '.join(PURPOSES)}.")


def enter(owner: str, scope: Scope) -> Token[tuple[tuple[str, Scope], ...]]:
    """Open a scope."""
    return _OPEN.set((*_OPEN.get(), (owner, scope)))


def leave(token: Token[tuple[tuple[str, Scope], ...]]) -> None:
    """Close it. Leaving in another context than that of entering closes nothing there."""
    try:
        _OPEN.reset(token)
    except (ValueError, RuntimeError):
        return

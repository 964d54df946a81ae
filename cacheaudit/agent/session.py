"""A session while it is open: its calls, its report, its outcome."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from cacheaudit.agent.scope import enter, leave
from cacheaudit.model.call import Call

if TYPE_CHECKING:
    from contextvars import Token

    from cacheaudit.agent.audit import CacheAudit
    from cacheaudit.agent.scope import Scope

Outcome = Literal["accepted", "rejected"]


class SessionScope:
    """A session, or a lane of one, while it is open; from :meth:`CacheAudit.session`.

    Attributes:
        id: The session's id.
        lane: The lane's name; ``None`` where it is told from the content.
    """

    def __init__(
        self, audit: CacheAudit, owner: str, scope: Scope, *, is_run: bool = False
    ) -> None:
        self._audit = audit
        self._owner = owner
        self._scope = scope
        self._is_run = is_run
        self._tokens: list[Token[Any]] = []
        self.id = scope.session
        self.lane = scope.lane

    def __enter__(self) -> Self:
        self._tokens.append(enter(self._owner, self._scope))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._tokens:
            leave(self._tokens.pop())
            if self._is_run and self.id is not None:
                self._audit.settle(self.id)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def outcome(self, outcome: Outcome | None) -> bool:
        """Say whether the result of the session's task was accepted, once its calls have ended.

        Returns:
            Whether there is a call to keep it with.

        Raises:
            UsageError: There is no such outcome.
            StoreError: The store cannot be written.
        """
        return self._audit.outcome(str(self.id), outcome, self._scope.task)

    def calls(self) -> tuple[Call, ...]:
        """Return the session's calls that have ended, from the store.

        Raises:
            StoreError: The store cannot be read.
        """
        found = self._audit.sessions([str(self.id)])
        return tuple(call for session in found for call in session.calls)

    def report(self) -> str:
        """Say what the session read and wrote, what that cost and what was lost to which cause.

        Raises:
            StoreError: The store cannot be read.
        """
        from cacheaudit.agent.summary import summary

        found = self._audit.sessions([str(self.id)])
        text = summary(str(self.id), found, self._audit.state)
        return "\n".join([text, *self._audit.planned(str(self.id))])

"""Requests that wait for pages: first come, first served, and no more of them than agreed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from local_backend.errors import CacheStateError, QueueFullError
from local_backend.kvcache.keys import TokenKey
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.sequence import Container, Sequence


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits.

    Attributes:
        name: Unique among waiting and live requests.
        key: Its prompt.
        reserve: Tokens that it may add, for a static container.
        container: How it grows.
    """

    name: str
    key: TokenKey
    reserve: int = 0
    container: Container = Container.DYNAMIC


class AdmissionQueue:
    """Lets requests in, in order; a large one at the head is not overtaken, so none starves.

    Args:
        manager: Where they want to.
        max_waiting: Most requests waiting; 0 refuses whatever does not fit at once.
    """

    def __init__(self, manager: CacheManager, max_waiting: int) -> None:
        self._manager = manager
        self._max_waiting = max_waiting
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(
        self,
        name: str,
        key: TokenKey,
        *,
        reserve: int = 0,
        container: Container = Container.DYNAMIC,
    ) -> Sequence | None:
        """Let a request in, or let it wait.

        Returns:
            The request, or None where it waits.

        Raises:
            QueueFullError: It would have to wait, and too many do.
            RequestTooLargeError: It can never fit.
            CacheStateError: The name is taken, or the prompt is empty.
        """
        if any(request.name == name for request in self._waiting):
            raise CacheStateError(f"request {name!r} waits already")
        if not self._waiting:
            sequence = self._manager.admit(name, key, reserve=reserve, container=container)
            if sequence is not None:
                return sequence
        else:
            tokens = len(key) + (reserve if container is Container.STATIC else 0)
            self._manager.require_possible(name, tokens)
        if len(self._waiting) >= self._max_waiting:
            raise QueueFullError(
                f"request {name!r} does not fit now and {len(self._waiting)} wait already",
                "send it again later",
            )
        self._waiting.append(Waiting(name, key.copy(), reserve, container))
        return None

    def cancel(self, name: str) -> bool:
        """Forget a waiting request; False where none of that name waits."""
        for request in self._waiting:
            if request.name == name:
                self._waiting.remove(request)
                return True
        return False

    def admit_waiting(self) -> list[Sequence]:
        """Let in whoever fits now, in order. Call it after pages were given back."""
        self._manager.poll()  # pages that were under way to a tier may be free now
        admitted = []
        while self._waiting:
            head = self._waiting[0]
            sequence = self._manager.admit(
                head.name, head.key, reserve=head.reserve, container=head.container
            )
            if sequence is None:
                break
            self._waiting.popleft()
            admitted.append(sequence)
        return admitted

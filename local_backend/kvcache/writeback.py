"""Carries pages to the tiers beside the work, and says when each has arrived.

A job names pages and their identities as they were when it was made; what the index does to its
entries meanwhile (splitting them, say) does not concern it. The owner keeps the pages pinned until
the job is done and gives the pin back from its own thread, in `poll`.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from local_backend._typing import override
from local_backend.kvcache.specs import GroupSpec
from local_backend.kvcache.store import PageStore
from local_backend.kvcache.tiers.stack import TierStack


@dataclass(slots=True)
class Job:
    """Pages on their way.

    Attributes:
        group: Whose pages they are.
        keys: Their identities.
        read: Gives the bytes of the page at an index; called by the carrier.
        done: What the owner does when the job has ended.
        kept: How many arrived in at least one tier.
    """

    group: GroupSpec
    keys: Sequence[bytes]
    read: Callable[[int], bytes]
    done: Callable[[Job], None]
    kept: int = 0


def read_from(store: PageStore, pages: Sequence[int]) -> Callable[[int], bytes]:
    """Reads pinned pages when their turn comes."""
    return lambda index: store.read_page(pages[index])


class Carrier(Protocol):
    """Takes jobs and reports them done."""

    def submit(self, job: Job) -> bool:
        """Take a job; False where too many pages are waiting."""
        ...

    def poll(self) -> int:
        """Let the owners of ended jobs know, in the caller's thread; how many there were."""
        ...

    def flush(self) -> None:
        """Wait until nothing is under way, then poll."""
        ...

    def close(self) -> None:
        """Finish what is under way and stop."""
        ...

    @property
    def waiting_pages(self) -> int:
        """Pages of jobs that have not ended."""
        ...


class StepCarrier(Carrier):
    """Carries only when told to, page by page: the order is the caller's.

    Args:
        tiers: Where to.
        max_pages: Most pages waiting.
    """

    def __init__(self, tiers: TierStack, max_pages: int = 4096) -> None:
        self._tiers = tiers
        self._max_pages = max_pages
        self._waiting: deque[Job] = deque()
        self._ended: list[Job] = []
        self._next = 0

    @property
    @override
    def waiting_pages(self) -> int:
        return sum(len(job.keys) for job in self._waiting) - self._next

    @override
    def submit(self, job: Job) -> bool:
        if self.waiting_pages + len(job.keys) > self._max_pages:
            return False
        self._waiting.append(job)
        return True

    def step(self) -> bool:
        """Carry one page; False where none waits."""
        if not self._waiting:
            return False
        job = self._waiting[0]
        _carry(self._tiers, job, self._next)
        self._next += 1
        if self._next == len(job.keys):
            self._waiting.popleft()
            self._next = 0
            self._ended.append(job)
        return True

    @override
    def poll(self) -> int:
        ended, self._ended = self._ended, []
        for job in ended:
            job.done(job)
        return len(ended)

    @override
    def flush(self) -> None:
        while self.step():
            pass
        self.poll()

    @override
    def close(self) -> None:
        self.flush()


class ThreadCarrier(Carrier):
    """Carries in a thread of its own.

    Args:
        tiers: Where to.
        max_pages: Most pages waiting; beyond it jobs are turned away, so a slow disk costs hits
            later and never time now.
    """

    def __init__(self, tiers: TierStack, max_pages: int = 4096) -> None:
        self._tiers = tiers
        self._max_pages = max_pages
        self._waiting = 0
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._ended: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kv-carrier", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            for index in range(len(job.keys)):
                _carry(self._tiers, job, index)
            self._ended.put(job)
            self._jobs.task_done()
        self._jobs.task_done()

    @property
    @override
    def waiting_pages(self) -> int:
        return self._waiting

    @override
    def submit(self, job: Job) -> bool:
        if self._waiting + len(job.keys) > self._max_pages or not self._thread.is_alive():
            return False
        self._waiting += len(job.keys)
        self._jobs.put(job)
        return True

    @override
    def poll(self) -> int:
        count = 0
        while True:
            try:
                job = self._ended.get_nowait()
            except queue.Empty:
                return count
            self._waiting -= len(job.keys)
            job.done(job)
            count += 1

    @override
    def flush(self) -> None:
        self._jobs.join()
        self.poll()

    @override
    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self.poll()


def _carry(tiers: TierStack, job: Job, index: int) -> None:
    """Move one page. A page that cannot be read or stored is a miss later, not a crash now."""
    try:
        payload = job.read(index)
        job.kept += tiers.store(job.group, job.keys[index], payload) > 0
    except Exception:  # whatever a store or tier raises, the thread must live
        return

"""What a job reads and how it tells its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.jobs.selection import Selection
from cacheaudit.model.clock import iso
from cacheaudit.simulate.switches import Switches

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


def silent(_done: int, _total: int) -> None:
    """Tell nobody."""


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a job works on.

    Attributes:
        paths: Files and folders; none means the usual folders of every known agent.
        environment: Environment variables, for the agents' override variables.
        home: The user's home folder.
        prices: Price files that come before the built-in tables.
        since: Calls before this moment are left out (seconds since the epoch).
        until: Calls from this moment on are left out.
        db: SQLAlchemy URL of a store to read instead of files.
        switches: Disputed rules of providers, where a job simulates.
        replayed: Results of replays that count as evidence.
        selection: Rules to run, where a job diagnoses.
        quick: Nothing is diagnosed and nothing simulated.
    """

    paths: tuple[Path, ...]
    environment: Mapping[str, str]
    home: Path
    prices: tuple[Path, ...] = ()
    since: float | None = None
    until: float | None = None
    db: str | None = None
    switches: Switches = Switches()
    replayed: tuple[Path, ...] = ()
    selection: Selection = Selection()
    quick: bool = False

    def __post_init__(self) -> None:
        """Refuse a period that holds no moment."""
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError(
                f"The period is empty: it begins {iso(self.since)} and ends {iso(self.until)}.",
                "Give --since an earlier time than --until.",
            )

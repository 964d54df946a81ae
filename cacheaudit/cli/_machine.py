"""What a command may know of the machine it runs on, handed in so that tests can set it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cacheaudit.model.clock import Clock, SystemClock


class Machine(msgspec.Struct, frozen=True):
    """Environment, home folder and clock."""

    environment: Mapping[str, str]
    home: Path
    clock: Clock

    @classmethod
    def real(cls) -> Machine:
        """Return this machine."""
        home = os.environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - never raises
        return cls(dict(os.environ), Path(home), SystemClock())

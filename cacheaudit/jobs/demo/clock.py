"""A clock that runs, and jumps where the demo pretends that time passes."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Final
from urllib.parse import urlsplit

from cacheaudit.errors import UsageError

_PATIENCE: Final = 30.0


class JumpingClock:
    """Real time plus jumps; the server's clock jumps with it.

    Args:
        start: First moment, in seconds since the epoch.
        address: Of a server whose clock can be set.
    """

    def __init__(self, start: float, address: str) -> None:
        if urlsplit(address).scheme != "http":
            raise UsageError(f"{address!r} is no address of the local engine.")
        self._start = start - time.perf_counter()
        self._address = address

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return self._start + time.perf_counter()

    def jump(self, seconds: float) -> None:
        """Let time pass at once."""
        if seconds <= 0:
            return
        self._start += seconds
        request = urllib.request.Request(  # noqa: S310 - http, checked above
            f"{self._address}/admin/clock",
            json.dumps({"advance_s": seconds}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:  # noqa: S310
            answer.read()

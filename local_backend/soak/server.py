"""The server of a soak as a process of its own, and its books as it tells them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict

from local_backend.errors import SoakError

_LINE = re.compile(r"^cacheaudit_(\w+)(?:\{(.*)\})? (\d+)$", re.MULTILINE)
_PAGES = re.compile(r'group="([^"]+)",state="(\w+)"')
_SETTLE_S = 300.0
# A starved machine is no fault of the server.
_END_S = 300.0


class Child:
    """A server that was started, and answers.

    Args:
        options: Of its command line.

    Raises:
        SoakError: It does not start.
    """

    def __init__(self, options: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "local_backend.server", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self._process.stdout.readline() if self._process.stdout else ""
        self.address = line.strip()
        if not self.address.startswith("http"):
            _, errors = self._process.communicate()
            raise SoakError(f"the server did not start: {errors[-500:]}")

    def books(self) -> Books:
        """What ``/metrics`` says now.

        Raises:
            SoakError: It says nothing for a minute.
        """
        try:
            with urllib.request.urlopen(f"{self.address}/metrics", timeout=60) as answer:  # noqa: S310
                return Books(answer.read().decode())
        except OSError as error:
            self.kill()
            raise SoakError(f"the server does not tell its books: {error}") from error

    def settle(self) -> Books:
        """Wait until nothing is asked and no page is in use; the books then, or as they are."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            books = self.books()
            if books.is_settled or time.monotonic() > deadline:
                return books
            time.sleep(0.02)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate()

    def stop(self) -> tuple[int, str]:
        """Ask it to end; its exit code and what it had to complain about."""
        self._process.send_signal(signal.SIGTERM)
        try:
            _, errors = self._process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -1, f"it did not end within {_END_S:.0f} s"
        return self._process.returncode, errors


class Books:
    """The counters of a server at one moment.

    Args:
        text: In the format of ``/metrics``.
    """

    def __init__(self, text: str) -> None:
        self.values: dict[str, int] = defaultdict(int)
        self.pages: dict[str, dict[str, int]] = defaultdict(dict)
        for name, labels, value in _LINE.findall(text):
            place = _PAGES.search(labels)
            if name == "kv_pages" and place is not None:
                self.pages[place[1]][place[2]] = int(value)
            else:
                self.values[name] += int(value)

    @property
    def is_settled(self) -> bool:
        """Whether nobody asks and no page is in use."""
        idle = all(not pages["protected"] for pages in self.pages.values())
        return idle and not self.values["open_requests"] and not self.values["engine_running"]

    @property
    def lost(self) -> int:
        """Pages that are in none of the three states, or in two of them."""
        return sum(
            abs(pages["total"] - pages["available"] - pages["evictable"] - pages["protected"])
            for pages in self.pages.values()
        )

    @property
    def total(self) -> int:
        """All pages."""
        return sum(pages["total"] for pages in self.pages.values())

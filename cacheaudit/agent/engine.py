"""The bundled engine as a server of its own, for as long as an audit wants it."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, Queue
from typing import Final

from cacheaudit.errors import CacheAuditError, MissingExtraError

_MODULE: Final = "local_backend.server"
_READY: Final = 120.0
_GRACE: Final = 10.0


class LocalEngine:
    """A process that serves the Messages API on loopback.

    Args:
        options: Options of the server, beside those that it gets from here.
        timeout: Seconds until it must be ready.

    Attributes:
        address: Where it listens.

    Raises:
        MissingExtraError: The engine is not installed.
        CacheAuditError: It did not start.
    """

    def __init__(self, options: Sequence[str] = (), timeout: float = _READY) -> None:
        # Only looked for: this package never imports that one.
        if importlib.util.find_spec(_MODULE.partition(".")[0]) is None:
            raise MissingExtraError(
                "The local engine is not installed.", "Run: pip install 'cacheaudit[local]'"
            )
        command = [sys.executable, "-m", _MODULE, "--port", "0", "--any-model", *options]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._said: Queue[bytes] = Queue()
        self._reader = threading.Thread(
            target=self._read, name="cacheaudit-engine-output", daemon=True
        )
        self._reader.start()
        try:
            self.address = self._said.get(timeout=timeout).decode().strip()
        except Empty:
            self.address = ""
        if not self.address:
            self.close()
            raise CacheAuditError(
                "The local engine did not start.",
                "Run `cacheaudit serve` to see why.",
            )
        atexit.register(_closer(self))

    def _read(self) -> None:
        """Take what the server prints, so that it never waits for a reader."""
        out, err = self._process.stdout, self._process.stderr
        if out is None or err is None:
            return
        drain = threading.Thread(target=err.read, name="cacheaudit-engine-errors", daemon=True)
        drain.start()
        self._said.put(out.readline())
        out.read()
        drain.join()
        out.close()
        err.close()

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(_GRACE)


def _closer(engine: LocalEngine) -> Callable[[], None]:
    found = weakref.ref(engine)

    def close() -> None:
        if (mine := found()) is not None:
            with contextlib.suppress(Exception):
                mine.close()

    return close

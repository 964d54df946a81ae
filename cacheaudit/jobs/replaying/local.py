"""The local engine as a process of its own: started, waited for, ended."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Final

from cacheaudit.errors import MissingExtraError, UsageError

_MODULE: Final = "local_backend.server"
_START_S: Final = 180.0
_END_S: Final = 20.0
_SHOWN: Final = 2_000


class LocalServer:
    """A server on a free port of this machine.

    Args:
        options: Of ``python -m local_backend.server``, without the address.
        module: What is run.

    Raises:
        MissingExtraError: The local engine is not installed.
    """

    def __init__(self, options: Sequence[str], module: str = _MODULE) -> None:
        # Only looked for: this package never imports that one.
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            raise MissingExtraError(
                "The local engine is not installed.",
                "Run: pip install 'cacheaudit[local]', or name a server: --backend URL",
            )
        self._command = [sys.executable, "-m", module, "--port", "0", *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def __enter__(self) -> str:
        """Start the server and return its address.

        Raises:
            UsageError: It did not start.
        """
        # A file, since a pipe that nobody empties would stop a server that has much to say.
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        try:
            return self._address(self._process)
        except BaseException:
            self._end()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server."""
        self._end()

    def _address(self, process: subprocess.Popen[bytes]) -> str:
        late = threading.Timer(_START_S, process.kill)
        late.daemon = True
        late.start()
        try:
            line = process.stdout.readline() if process.stdout is not None else b""
        finally:
            late.cancel()
        address = line.decode("utf-8", errors="replace").strip()
        if address.startswith("http://"):
            return address
        process.kill()
        process.wait()
        raise UsageError("The local engine did not start.", self._said() or None)

    def _said(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", errors="replace").strip()
        return said[-_SHOWN:]

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

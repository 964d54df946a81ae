"""``python -m local_backend.server``: prints one line with its address when it is ready."""

from __future__ import annotations

import importlib
import os
import sys

from local_backend._lazy import need
from local_backend.errors import LocalBackendError
from local_backend.server.options import parse_options

SERVER = "pip install 'cacheaudit-local[server]'"


def main() -> int:
    """Serve; returns the exit code: 0 after a signal, 2 where it cannot start."""
    settings = parse_options(sys.argv[1:], os.environ)
    try:
        for package in ("starlette", "uvicorn"):
            need(package, "the server", SERVER)
        launch = importlib.import_module("local_backend.server.launch")
        launch.run(settings, _announce)
    except LocalBackendError as error:
        sys.stderr.write(f"Error: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"  {error.hint}\n")
        return 2
    return 0


def _announce(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

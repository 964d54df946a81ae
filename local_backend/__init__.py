"""The local engine. Importing it loads no numeric library."""

from __future__ import annotations

from local_backend._version import __version__
from local_backend.errors import LocalBackendError

__all__ = ["LocalBackendError", "__version__"]

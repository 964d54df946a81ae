"""What scripts keep from one to the next."""

from __future__ import annotations

import json
import threading
from typing import Any

from cacheaudit.agent.codemode.settings import CodeLimits


class Values:
    """JSON values by key, within limits.

    Args:
        limits: How much may be kept.
    """

    def __init__(self, limits: CodeLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._kept: dict[str, bytes] = {}

    def store(self, key: Any, value: Any) -> None:
        """Keep a value in place of one under the same key.

        Raises:
            TypeError: The key is no text, or the value no JSON.
            ValueError: It is too large, or all together are.
        """
        if not isinstance(key, str):
            raise TypeError("store() takes a text as its key")
        try:
            data = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, UnicodeEncodeError) as error:
            raise TypeError(f"store() keeps JSON values only: {error}") from None
        size = len(data) + len(key.encode("utf-8", "replace"))
        if size > self._limits.value_bytes:
            raise ValueError(
                f"store(): {size} bytes are more than one value may have,"
                f" {self._limits.value_bytes}; keep a text with save_output()"
            )
        with self._lock:
            others = sum(len(k) + len(v) for k, v in self._kept.items() if k != key)
            if others + size > self._limits.values_bytes:
                raise ValueError(
                    f"store(): all values together may have {self._limits.values_bytes} bytes"
                )
            self._kept[key] = data

    def load(self, key: Any, default: Any = None) -> Any:
        """Return a value, or the default."""
        with self._lock:
            data = self._kept.get(key) if isinstance(key, str) else None
        return default if data is None else json.loads(data)

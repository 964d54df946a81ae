"""Limits of scripts."""

from __future__ import annotations

import msgspec

from cacheaudit.errors import ConfigError


class CodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a script may go. Every limit is always in force.

    Attributes:
        memory: Bytes that its values may take.
        compute_seconds: Seconds that it may compute; waiting for tools does not count.
        seconds: Seconds from its start to its end, tools included.
        recursion: Nested calls of functions.
        calls: Calls of tools.
        helper_calls: Calls of ``text()`` and the other helpers.
        output_bytes: Output that is kept, UTF-8; what a script prints beyond ends it.
        result_bytes: Most that one tool may hand to a script, and a script to ``excerpt()``.
        value_bytes: Most that one ``store()`` may keep, as JSON.
        values_bytes: Most that all of them may keep.
        script_chars: Length of a script.
        workers: Scripts at once.
        catalog_tokens: Estimated tokens of the tools that the description lists.

    Raises:
        ConfigError: A limit is not above 0.
    """

    memory: int = 256 << 20
    compute_seconds: float = 30.0
    seconds: float = 300.0
    recursion: int = 500
    calls: int = 1_000
    helper_calls: int = 20_000
    output_bytes: int = 16 << 20
    result_bytes: int = 64 << 20
    value_bytes: int = 256 << 10
    values_bytes: int = 1 << 20
    script_chars: int = 200_000
    workers: int = 2
    catalog_tokens: int = 3_000

    def __post_init__(self) -> None:
        """Refuse what would be no limit."""
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"The limit {name} of scripts must be above 0.")

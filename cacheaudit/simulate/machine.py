"""What every cache machine offers, and where each of them is found by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from cacheaudit.errors import ConfigError
from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.request import Outcome, SimRequest
from cacheaudit.simulate.switches import Switches

_MODULES: Final = {
    "claude": "claude",
    "openai_v1": "openai_v1",
    "openai_v2": "openai_v2",
    "deepseek": "deepseek",
    "gemini": "gemini",
    "qwen": "qwen",
    "minimax": "minimax",
    "kimi": "kimi",
    "longest_prefix": "longest_prefix",
    "local": "local",
}


class Machine(Protocol):
    """State of one provider's cache. Requests must come in order of their start."""

    def step(self, request: SimRequest, rules: Any) -> Outcome:
        """Take one request and say what was read and written."""
        ...


class Kind(msgspec.Struct, frozen=True):
    """One machine.

    Attributes:
        name: As the facts name it.
        make: Makes an empty cache.
        rules: Puts dated facts and switches together into what ``step`` takes.
    """

    name: str
    make: Callable[[], Machine]
    rules: Callable[[Rules, Switches], Any]


def kinds() -> tuple[str, ...]:
    """Names of all machines."""
    return tuple(_MODULES)


def kind(name: str) -> Kind:
    """Find a machine by name.

    Raises:
        ConfigError: There is none of that name.
    """
    module = _MODULES.get(name)
    if module is None:
        raise ConfigError(f"There is no cache machine {name!r}.", f"Known: {', '.join(_MODULES)}.")
    found: Kind = importlib.import_module(f"cacheaudit.simulate.{module}").KIND
    return found

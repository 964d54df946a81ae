"""One configuration: arguments go before ``CACHEAUDIT_*``, those before ``[tool.cacheaudit]``."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.agent.hooks import Mode
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.errors import ConfigError

_FILE: Final = "pyproject.toml"
_TABLE: Final = "[tool.cacheaudit]"
_MODES: Final = ("auto", "observe")
_AMOUNTS: Final = frozenset({"min_savings", "budget_per_day"})
_COUNTS: Final = frozenset({"most_refreshes"})
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit goes by.

    Attributes:
        db: Where calls are kept; ``None``: the file in the user's data folder.
        mode: ``auto`` or ``observe``.
        store_text: Keep the text of prompts too.
        project: Project that sessions are filed under.
        keep_alive: When entries are refreshed.
        backend: Whom :meth:`~cacheaudit.CacheAudit.client` asks: a provider's name, an address, or
            ``local``.
        telemetry: Send spans and metrics to OpenTelemetry.
    """

    db: str | None = None
    mode: Mode = "auto"
    store_text: bool = False
    project: str | None = None
    keep_alive: KeepAlive = KeepAlive()
    backend: str = "anthropic"
    telemetry: bool = False


def load_config(given: Mapping[str, Any], environment: Mapping[str, str], folder: Path) -> Config:
    """Put arguments, environment and file together.

    Args:
        given: Arguments by the names of :class:`Config`; ``None``: not given.
        environment: Environment variables.
        folder: Where the search for ``pyproject.toml`` begins; it goes on upwards.

    Raises:
        ConfigError: A value makes no sense; the message says where it stands.
    """
    found: dict[str, Any] = dict(_from_file(folder))
    for name in Config.__struct_fields__:
        variable = f"CACHEAUDIT_{name.upper()}"
        text = environment.get(variable)
        if text:
            found[name] = _READERS[name](text, variable)
    found.update({name: value for name, value in given.items() if value is not None})
    if "keep_alive" in found:
        found["keep_alive"] = _keep_alive(found["keep_alive"], "keep_alive")
    if "mode" in found:
        found["mode"] = _mode(found["mode"], "mode")
    return Config(**found)


def _from_file(folder: Path) -> Mapping[str, Any]:
    for place in (folder, *folder.parents):
        file = place / _FILE
        if not file.is_file():
            continue
        try:
            whole = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}  # somebody else's file, and not ours to complain about
        table = whole.get("tool", {})
        mine = table.get("cacheaudit", {}) if isinstance(table, dict) else {}
        return _checked(mine, file) if isinstance(mine, dict) else {}
    return {}


def _checked(table: Mapping[str, Any], file: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        where = f"{file}: {_TABLE} {key}"
        if name not in _READERS:
            near = difflib.get_close_matches(name, _READERS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(_READERS)}."
            raise ConfigError(f"{where} is no setting.", hint)
        found[name] = _READERS[name](value, where)
    if isinstance(found.get("db"), str) and "://" not in found["db"]:
        found["db"] = str(file.parent / Path(found["db"]).expanduser())
    return found


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where} is no text.", "Give a text in quotes.")
    return value


def _flag(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else None
    if word in _YES or word in _NO:
        return word in _YES
    raise ConfigError(f"{where} is {value!r}.", "Give true or false.")


def _mode(value: Any, where: str) -> Any:
    if value not in _MODES:
        raise ConfigError(
            f"There is no mode {value!r} ({where}).", f"Choose {' or '.join(_MODES)}."
        )
    return value


def _keep_alive(value: Any, where: str) -> KeepAlive:
    if isinstance(value, KeepAlive):
        return value
    fields: dict[str, Any] = {"mode": value} if isinstance(value, str) else value
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{where} is no setting.", "Give a mode, or a table of its fields.")
    made: dict[str, Any] = {}
    for key, item in fields.items():
        name = key.replace("-", "_")
        if name not in KeepAlive.__struct_fields__ or name == "on_decision":
            raise ConfigError(f"{where} has no {key}.", "docs/guide/keep-alive.md lists them.")
        made[name] = item if name == "mode" else _number(name, item, f"{where}: {key}")
    return KeepAlive(**made)


def _number(name: str, value: Any, where: str) -> Decimal | float | int:
    """Read a number as the field wants it; amounts of money stay exact."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where} is no number.", "docs/guide/keep-alive.md lists them.")
    if name in _AMOUNTS:
        return Decimal(str(value))
    return int(value) if name in _COUNTS else float(value)


_READERS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "db": _text,
    "mode": _mode,
    "store_text": _flag,
    "project": _text,
    "keep_alive": _keep_alive,
    "backend": _text,
    "telemetry": _flag,
}

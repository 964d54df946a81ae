"""Column types that lose nothing: exact decimals, any text, JSON."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import msgspec
from sqlalchemy import Dialect, Text
from sqlalchemy.types import TypeDecorator
from typing_extensions import override  # SQLAlchemy brings it

# What a database's text cannot hold: NUL and halves of surrogate pairs (file names that are no
# UTF-8). They are written behind a private-use character, which is therefore written so itself.
_ESCAPE = "\ue000"
_UNSTORABLE = re.compile("[\0\ud800-\udfff\ue000]")
_ESCAPED = re.compile(_ESCAPE + "([0-9a-f]{4})")


class ExactDecimal(TypeDecorator[Decimal]):
    """A decimal as text, with every digit and the number of trailing zeros that it came with."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if not value.is_finite():
            raise ValueError(f"{value} is no amount.")
        return str(value)

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)


class AnyText(TypeDecorator[str]):
    """Text with any character, those included that databases refuse."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or not _UNSTORABLE.search(value):
            return value
        return _UNSTORABLE.sub(lambda hit: f"{_ESCAPE}{ord(hit[0]):04x}", value)

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or _ESCAPE not in value:
            return value
        return _ESCAPED.sub(lambda hit: chr(int(hit[1], 16)), value)


class JsonText(TypeDecorator[Any]):
    """A JSON value as text; ``None`` is SQL ``NULL``."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else to_json(value)

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else from_json(value)


def to_json(value: Any) -> str:
    """Write JSON, whatever characters its strings hold."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(msgspec.to_builtins(value))


def from_json(text: str) -> Any:
    """Read JSON that :func:`to_json` wrote."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


__all__ = ["AnyText", "ExactDecimal", "JsonText", "from_json", "to_json"]

"""The beta features that a request asked for, in whichever form its record keeps the header."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cacheaudit.model.call import Call

# As header (recorded on the wire), in the body of other platforms, as argument of an SDK.
_FIELDS: Final = ("anthropic-beta", "anthropic_beta", "betas")


def betas_of(call: Call) -> tuple[str, ...] | None:
    """Return the beta features that a call asked for, in the order of its record.

    Returns:
        ``None`` where that was not recorded.
    """
    found = _field(call)
    return None if found is None else _features(call.extra[found])


def with_betas(call: Call, features: Iterable[str]) -> dict[str, Any]:
    """Return what a call's record says besides, with other features in the form it has them in."""
    field = _field(call)
    if field is None:
        return dict(call.extra)
    asked: list[str] | str = list(features)
    if isinstance(call.extra[field], str):
        asked = ",".join(asked)
    return {**call.extra, field: asked}


def _field(call: Call) -> str | None:
    return next((name for name in _FIELDS if isinstance(call.extra.get(name), str | list)), None)


def _features(value: str | list[Any]) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    return tuple(text for item in items if (text := str(item).strip()))

"""Writes markers into a copy of a request that shares everything else with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class Spot(msgspec.Struct, frozen=True):
    """A place to mark.

    Attributes:
        level: Part of the prompt.
        outer: Index of the tool, system block or message.
        inner: Index inside the message; -1 elsewhere.
        marker: What is written there.
        field: Name of the field.
        text: Type of a text block that takes the place of plain text.
    """

    level: str
    outer: int
    inner: int
    marker: Mapping[str, Any]
    field: str = "cache_control"
    text: str = "text"


def marker(ttl: str) -> dict[str, Any]:
    """Return a marker; the default lifetime is not written out."""
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}


def marked(
    body: Mapping[str, Any], spots: Sequence[Spot], turns: str = "messages"
) -> dict[str, Any]:
    """Return a request with markers; the one given stays as it is.

    Text given as a string becomes a list of one text block where it has to carry a marker, which
    the provider reads as the same.

    Args:
        body: The request.
        spots: Where to mark.
        turns: Field that holds the conversation.
    """
    made = dict(body)
    for spot in spots:
        if spot.level == "messages":
            made[turns] = _in_turn(made[turns], body[turns], spot)
        elif isinstance(body[spot.level], str):
            made[spot.level] = [_text(body[spot.level], spot)]
        else:
            made[spot.level] = _with(made[spot.level], body[spot.level], spot.outer, spot)
    return made


def _in_turn(turns: Any, original: Any, spot: Spot) -> list[Any]:
    """Mark a content block of a message, copying the message once."""
    copied: list[Any] = list(turns) if turns is original else turns
    message = copied[spot.outer]
    if message is original[spot.outer]:
        message = copied[spot.outer] = dict(message)
    content = message["content"]
    if isinstance(content, str):
        message["content"] = [_text(content, spot)]
    else:
        message["content"] = _with(content, original[spot.outer]["content"], spot.inner, spot)
    return copied


def _with(items: Any, original: Any, index: int, spot: Spot) -> list[Any]:
    """Mark one of several blocks in a list that is ours, or becomes so."""
    copied: list[Any] = list(items) if items is original else items
    block = copied[index]
    if isinstance(block, str):
        copied[index] = _text(block, spot)
    else:
        copied[index] = {**block, spot.field: dict(spot.marker)}
    return copied


def _text(text: str, spot: Spot) -> dict[str, Any]:
    return {"type": spot.text, "text": text, spot.field: dict(spot.marker)}

"""Writes finished text where a result goes."""

from __future__ import annotations

from typing import BinaryIO


def write_text(text: str, stream: BinaryIO) -> None:
    """Write text as UTF-8."""
    stream.write(text.encode())

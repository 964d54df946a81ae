"""Keeps what a compaction replaces, so that it can be read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cacheaudit.agent.compaction.history import Message, blocks_of
from cacheaudit.agent.outputs.store import OutputStore
from cacheaudit.errors import OutputError


class Originals:
    """Conversations by handle, one message a row; tool results that were cleared, as they were.

    Args:
        store: Where they are kept; ``read_output`` and ``search_output`` read from it too.
    """

    def __init__(self, store: OutputStore) -> None:
        self._store = store

    def keep(self, messages: Sequence[Message]) -> str:
        """Keep a conversation and return its handle.

        Raises:
            OutputError: It cannot be written.
            TypeError: It holds something that is no JSON.
        """
        rows = b"\n".join(msgspec.json.encode(message) for message in messages)
        return self._store.put(rows).handle

    def messages(self, handle: str) -> list[dict[str, Any]]:
        """Read a conversation back.

        Raises:
            OutputError: Nothing is kept under the handle, or no conversation.
        """
        text = self._store.text(handle)
        try:
            # Other ends of lines may stand inside a message as they are.
            return [msgspec.json.decode(row, type=dict[str, Any]) for row in text.split("\n")]
        except msgspec.MsgspecError:
            raise OutputError(f"{handle} holds no conversation.") from None

    def keep_result(self, block: Message) -> str:
        """Keep the content of a tool result and return its handle.

        Raises:
            OutputError: It cannot be written.
        """
        return self._store.put(result_text(block)).handle


def result_text(block: Message) -> str:
    """Return what a tool returned as text; parts that are none as JSON."""
    parts = [
        str(inner["text"])
        if inner.get("type") == "text" and "text" in inner
        else msgspec.json.encode(inner).decode()
        for inner in blocks_of(block)
    ]
    return "\n".join(parts)

"""Reads the answer to a request for a summary, or says why it is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cacheaudit.agent.compaction.history import Block, blocks_of


class Refused(msgspec.Struct, frozen=True):
    """Why an answer is no summary."""

    reason: str


def read_summary(reply: Mapping[str, Any]) -> str | Refused:
    """Return the summary's text."""
    stop = reply.get("stop_reason")
    if stop == "tool_use" or any(b.get("type") == "tool_use" for b in blocks_of(reply)):
        return Refused("called_a_tool")
    if stop in ("max_tokens", "model_context_window_exceeded"):
        return Refused("cut_off")
    if stop == "refusal":
        return Refused("refusal")
    texts = [str(b.get("text") or "") for b in blocks_of(reply) if b.get("type") == "text"]
    text = "\n".join(texts).strip()
    return text or Refused("empty")


def read_compaction(reply: Mapping[str, Any]) -> Block | Refused:
    """Return the provider's own compaction, to be sent back as it is."""
    for block in blocks_of(reply):
        if block.get("type") == "compaction":
            return block if block.get("content") else Refused("server_failed")
    return Refused("not_supported")

"""The provider's own word on a cache miss, from either API that gives one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheaudit.dialects.reading import Reader, text
from cacheaudit.model.call import MissReason


def miss_reason(
    response: Mapping[str, Any], request: Mapping[str, Any] | None = None
) -> MissReason | None:
    """Read the diagnostics of a response.

    Args:
        response: The response (or the transcript's copy of it).
        request: The request, where it was recorded. The Messages API answers null both where it
            found no divergence and where nothing was asked; only the request tells them apart.

    Returns:
        ``None`` where nothing was asked or nothing is known; ``pending`` where the comparison had
        not finished; ``none`` where the provider compared and found no divergence.
    """
    if "prompt_cache_diagnostics" in response:
        return openai_reason(response["prompt_cache_diagnostics"])
    if "diagnostics" not in response:
        return None
    return anthropic_reason(response["diagnostics"], compared=_asked(request))


def anthropic_reason(diagnostics: Any, *, compared: bool = False) -> MissReason | None:
    """Read the object ``diagnostics`` of the Messages API.

    Args:
        diagnostics: Its value.
        compared: Whether the request named an earlier message, so that null means no divergence.
    """
    if diagnostics is None:
        return MissReason("none") if compared else None
    if not isinstance(diagnostics, dict) or "cache_miss_reason" not in diagnostics:
        return None
    reason = diagnostics["cache_miss_reason"]
    if reason is None:
        return MissReason("pending")
    if isinstance(reason, str):
        return MissReason(reason)
    if not isinstance(reason, dict):
        return None
    kind = text(reason, "type")
    if kind is None:
        return None
    return MissReason(kind, Reader().count(reason.get("cache_missed_input_tokens")))


def openai_reason(diagnostics: Any) -> MissReason | None:
    """Read the object ``prompt_cache_diagnostics`` of the Responses API."""
    if not isinstance(diagnostics, dict):
        return None
    kind = text(diagnostics, "type")
    if kind == "cache_hit":
        return MissReason("none")
    if kind != "cache_miss":
        return None if kind is None else MissReason(kind)
    reason = diagnostics.get("reason")
    if isinstance(reason, dict):
        reason = reason.get("type")
    missed = Reader().count(diagnostics.get("cache_missed_tokens"))
    return MissReason(reason if isinstance(reason, str) and reason else kind, missed)


def _asked(request: Mapping[str, Any] | None) -> bool:
    asked = request.get("diagnostics") if request is not None else None
    return isinstance(asked, dict) and isinstance(asked.get("previous_message_id"), str)

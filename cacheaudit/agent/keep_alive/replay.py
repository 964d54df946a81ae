"""Makes of a request the one that refreshes its entry, or says why that is not safe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cacheaudit.agent.keep_alive.economy import Ineligible

# A thread's position, a container's state, a summary: sending these twice changes something.
_ONCE_ONLY: Final = ("thread", "previous_response_id", "container", "compaction", "prewarm")


class Replay(msgspec.Struct, frozen=True):
    """A request that reads the same prefix and generates next to nothing.

    Attributes:
        body: What to send.
        output_tokens: Most that it generates: 0 or 1.
    """

    body: dict[str, Any]
    output_tokens: int


def replay(body: Mapping[str, Any]) -> Replay | Ineligible:
    """Turn the body of a Messages request into its refresh.

    Only the output limit changes, and streaming is left off: neither is part of the cache key. The
    limit is 0 where the provider takes that, else 1.

    Args:
        body: What was sent; it is not changed.
    """
    if not isinstance(body.get("messages"), list) or "max_tokens" not in body:
        return Ineligible("other_api")
    for name in _ONCE_ONLY:
        if body.get(name) is not None:
            return Ineligible(name)
    thinking = body.get("thinking")
    if isinstance(thinking, Mapping) and thinking.get("type") == "enabled":
        # Its budget must stay below the output limit, so the limit cannot be lowered.
        return Ineligible("thinking_budget")
    limit = 1 if _refuses_zero(body) else 0
    kept = {name: value for name, value in body.items() if name not in _LEFT_OUT}
    return Replay({**kept, "max_tokens": limit}, limit)


# Streaming is refused with a limit of 0; diagnostics would compare the conversation with a refresh.
_LEFT_OUT: Final = frozenset({"stream", "diagnostics"})


def _refuses_zero(body: Mapping[str, Any]) -> bool:
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") in ("any", "tool"):
        return True
    config = body.get("output_config")
    return (isinstance(config, Mapping) and config.get("format") is not None) or (
        body.get("output_format") is not None
    )

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


def replay(body: Mapping[str, Any], surface: str | None = "claude_api") -> Replay | Ineligible:
    """Turn the body of a Messages request into its refresh.

    Only the output limit changes, and streaming is left off: neither is part of the cache key. The
    limit is 0 where the provider is known to take that, else 1.

    Args:
        body: What was sent; it is not changed.
        surface: Platform that it was sent to.
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
    limit = 0 if surface in _TAKES_ZERO and not _refuses_zero(body) else 1
    kept = {name: value for name, value in body.items() if name not in _LEFT_OUT}
    return Replay({**kept, "max_tokens": limit}, limit)


# Documented for the maker's own API and what runs it; nothing is said of other platforms.
_TAKES_ZERO: Final = frozenset({"claude_api", "claude_aws", "foundry", "local"})
# Streaming is refused with a limit of 0; diagnostics would compare the conversation with a refresh.
_LEFT_OUT: Final = frozenset({"stream", "diagnostics"})


def replay_url(url: str) -> str:
    """Return the address that does the same without streaming, where streaming has its own."""
    for streamed, whole in _STREAMED:
        if url.endswith(streamed):
            return url.removesuffix(streamed) + whole
    return url


_STREAMED: Final = (
    ("/invoke-with-response-stream", "/invoke"),
    (":streamRawPredict", ":rawPredict"),
)


def _refuses_zero(body: Mapping[str, Any]) -> bool:
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") in ("any", "tool"):
        return True
    config = body.get("output_config")
    return (isinstance(config, Mapping) and config.get("format") is not None) or (
        body.get("output_format") is not None
    )

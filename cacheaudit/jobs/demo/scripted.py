"""A client whose requests are real and whose answers are scripted.

A small local model cannot reason. Every request goes to the server as it is, is computed there and
comes back with its real usage; only what the model said is replaced, so that a conversation takes
the course that a capable model would give it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from cacheaudit.agent.fan_out.plain import plain

Block = Mapping[str, Any]
# What the model is to say to a request.
Script = Callable[[Mapping[str, Any]], Sequence[Block]]
_MOST_OUTPUT: Final = 48


class ScriptedClient:
    """Used in the place of an ``Anthropic`` client; responses are their JSON.

    Args:
        client: Sends the requests.
        script: Tells what the model says.
        most_output: Most tokens that the server generates for an answer.
    """

    def __init__(self, client: Any, script: Script, most_output: int = _MOST_OUTPUT) -> None:
        self.messages = _Messages(client.messages, script, most_output)


class _Messages:
    def __init__(self, messages: Any, script: Script, most_output: int) -> None:
        self._messages = messages
        self._script = script
        self._most = most_output

    def create(self, **request: Any) -> dict[str, Any]:
        """Send a request and return its response with what the script says."""
        said = list(self._script(request))
        length = len(msgspec.json.encode(said))
        limit = min(int(request.get("max_tokens") or 1), self._most, max(1, length))
        reply = cast(
            "dict[str, Any]", plain(self._messages.create(**{**request, "max_tokens": limit}))
        )
        called = any(block.get("type") == "tool_use" for block in said)
        return {**reply, "content": said, "stop_reason": "tool_use" if called else "end_turn"}
